"""What sends the requests of a provider, be it one server or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claimscore.pipeline.llm.limits import Limiter
from claimscore.pipeline.llm.outage import Outage
from claimscore.pipeline.llm.providers.base import Provider, servers_of
from claimscore.pipeline.llm.sender import Sender
from claimscore.pipeline.llm.servers.dispatch import Servers

__all__ = ["Servers", "open_sender"]


def open_sender(
    provider: Provider,
    limiter: Limiter | Sequence[Limiter],
    *,
    max_outage_s: float,
    **parts: Any,
) -> Sender | Servers:
    """What sends a provider's requests; `limiter` is one for each of its servers."""
    providers = servers_of(provider)
    limiters = [limiter] if isinstance(limiter, Limiter) else list(limiter)
    if len(providers) > 1:
        return Servers(providers, limiters, max_outage_s=max_outage_s, **parts)
    return Sender(providers[0], limiter=limiters[0], outage=Outage(max_outage_s), **parts)
