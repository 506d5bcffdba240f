"""The hours that the limits of a language model's server ask for."""

from __future__ import annotations

from claimscore.config import LLMConfig, api_key, user_state_dir
from claimscore.pipeline.estimate.figures import Estimate
from claimscore.pipeline.llm.providers.base import Provider, servers_of
from claimscore.pipeline.llm.ratelimit.shared import LIMITS_FILE, SharedLimits, shared_scope


def hours_of_limits(
    llm: LLMConfig, provider: Provider, estimate: Estimate
) -> tuple[float | None, str]:
    """How long the requests take at the limits of all servers together, and which decides it.

    None, with the reason, where a server's limits are not known: then nothing tells its pace.
    """
    if llm.family == "builtin":
        return None, "builtin answers on this machine, in milliseconds"
    if llm.family == "openai-batch":
        return None, "a batch is promised within 24 hours; how soon it comes is not known"
    total = estimate.total
    used = total.prompt_tokens.expected + total.completion_tokens.expected
    per_minute, reasons = 0.0, []
    for server in servers_of(provider):
        rpm, tpm, source = _limits(llm, server)
        bounds = []
        if rpm is not None:
            bounds.append((rpm, f"{rpm:,.0f} requests a minute ({source})"))
        if tpm is not None:
            bounds.append(
                (tpm * estimate.requests / used, f"{tpm:,.0f} tokens a minute ({source})")
            )
        if not bounds:
            return None, "no limit of the server is known: --rpm or --tpm would tell the hours"
        requests, reason = min(bounds)
        per_minute += requests
        reasons.append(reason)
    return estimate.requests / per_minute / 60, f"hours: {', and '.join(reasons)}"


def _limits(llm: LLMConfig, server: Provider) -> tuple[float | None, float | None, str]:
    """Requests and tokens a minute of a server: as given, else as any process last learnt them."""
    if llm.rpm is not None or llm.tpm is not None:
        return llm.rpm, llm.tpm, "as given"
    path, url = user_state_dir() / LIMITS_FILE, getattr(server, "base_url", None)
    if url is None or not path.is_file():
        return None, None, ""
    learnt = SharedLimits(path, shared_scope(url, api_key())).recall()
    if learnt is None:
        return None, None, ""
    rpm = learnt.rpm or (learnt.found_rps * 60 if learnt.found_rps else None)
    return rpm, learnt.tpm, "as last learnt"
