"""How long the requests take: by requests in flight, or by the limits of the server."""

from __future__ import annotations

from claimscore.config import LLMConfig, api_key, user_state_dir
from claimscore.pipeline.estimating.figures import Estimate
from claimscore.pipeline.llm.limits.shared import LIMITS_FILE, SharedBudget, shared_scope
from claimscore.pipeline.llm.providers.base import Provider

#: What a server may take for an answer, to begin and for each token; what a rule takes.
_LATENCY_S, _TOKEN_S, _RULE_S = 1.0, 0.02, 0.0003


def family(llm: LLMConfig) -> str:
    """What stands before the colon of `--llm`: builtin, openai, openai-batch."""
    return llm.model.partition(":")[0]


def hours_needed(
    llm: LLMConfig, provider: Provider, estimate: Estimate
) -> tuple[float | None, str]:
    """How long the requests take, and what decides it; None where nobody can say."""
    n = estimate.requests
    if family(llm) == "builtin":
        return n * _RULE_S / 3600, "the built-in rules answer on this machine, in milliseconds"
    if family(llm) == "openai-batch":
        return None, "a batch is promised within 24 hours; how soon it comes is not known"
    tokens = estimate.prompt_tokens.expected + estimate.completion_tokens.expected
    latency_s = _LATENCY_S + _TOKEN_S * estimate.completion_tokens.expected / n
    rpm, tpm, said = _limits(llm, provider)
    in_flight = f"{llm.max_concurrency} requests in flight, {latency_s:.1f} s an answer (a guess)"
    paces = [(n * latency_s / llm.max_concurrency / 3600, in_flight)]
    if rpm is not None:
        paces.append((n / rpm / 60, f"{rpm:,.0f} requests a minute ({said})"))
    if tpm is not None:
        paces.append((tokens / tpm / 60, f"{tpm:,.0f} tokens a minute ({said})"))
    hours, pace = max(paces)
    return hours, f"time: {pace}"


def _limits(llm: LLMConfig, provider: Provider) -> tuple[float | None, float | None, str]:
    """Requests and tokens a minute: as given, else as any process last learnt them."""
    if llm.rpm is not None or llm.tpm is not None:
        return llm.rpm, llm.tpm, "as given"
    path, url = user_state_dir() / LIMITS_FILE, getattr(provider, "base_url", None)
    if url is None or not path.is_file():
        return None, None, ""
    shared = SharedBudget(path, shared_scope(url, api_key()))
    try:
        learnt = shared.recall()
    finally:
        shared.close()
    if learnt is None:
        return None, None, ""
    rpm = learnt.rpm or (learnt.good_rps * 60 if learnt.good_rps else None)
    return rpm, learnt.tpm, "as last learnt"
