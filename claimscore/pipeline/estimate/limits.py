"""The hours that the limits of a language model's server ask for."""

from __future__ import annotations

from claimscore.config import LLMConfig
from claimscore.pipeline.estimate.figures import TaskEstimate
from claimscore.pipeline.llm.providers.base import Provider, is_local, servers_of


def hours_of_limits(
    llm: LLMConfig, provider: Provider, total: TaskEstimate
) -> tuple[float | None, str]:
    """How long a model's requests take at the limits of all its servers together, and which
    decides it.

    None, with the reason, where a server's limits are not known: then nothing tells its pace.
    """
    if is_local(llm.family):
        return None, "answers are made on this machine, in milliseconds"
    if llm.is_batch:
        return None, "a batch is promised within 24 hours; how soon it comes is not known"
    bounds = []
    if llm.rpm is not None:
        bounds.append((llm.rpm, f"{llm.rpm:,.0f} requests a minute"))
    if llm.tpm is not None:
        used = total.prompt_tokens.expected + total.completion_tokens.expected
        bounds.append((llm.tpm * total.requests / used, f"{llm.tpm:,.0f} tokens a minute"))
    if not bounds:
        return None, "no limit of the server is known: --rpm or --tpm would tell the hours"
    servers = len(servers_of(provider))
    per_minute, reason = min(bounds)
    of_each = f" of each of {servers} servers" if servers > 1 else ""
    return total.requests / (servers * per_minute) / 60, f"hours: {reason}{of_each}"
