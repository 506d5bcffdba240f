"""How long it takes: the requests, by slots or limits; the model passes, by remembered throughput;
and the whole run on this machine, by the formulas of `run_time`."""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Iterator
from typing import NamedTuple

from claimscore.config import EncoderConfig, LLMConfig, RunConfig, api_key, user_state_dir
from claimscore.pipeline.encoders import throughput
from claimscore.pipeline.encoders.devices import device_names
from claimscore.pipeline.encoders.served import is_served
from claimscore.pipeline.estimate.figures import Estimate, PassEstimate
from claimscore.pipeline.estimate.run_time import (
    LLM,
    OwnStages,
    PassWork,
    Stage,
    Work,
    disk,
    models_stage,
    predict,
)
from claimscore.pipeline.llm.providers.base import Provider, servers_of
from claimscore.pipeline.llm.ratelimit.shared import LIMITS_FILE, SharedLimits, shared_scope
from claimscore.pipeline.plan import Plan

#: What a server may take for an answer, to begin and for each token.
_LATENCY_S, _TOKEN_S = 1.0, 0.02
#: What an answer of `builtin` takes, by the parser and by rules.
_PARSER_S, _RULE_S = 0.005, 0.0003


def _builtin_s(llm: LLMConfig) -> float:
    return _RULE_S if "rules" in llm.model else _PARSER_S


# -- the language model's requests


def llm_hours(llm: LLMConfig, provider: Provider, estimate: Estimate) -> tuple[float | None, str]:
    """How long the requests take, and what decides it; None where that is not known."""
    n = estimate.requests
    if llm.family == "builtin":
        return n * _builtin_s(llm) / 3600, "builtin answers on this machine, in milliseconds"
    if llm.family == "openai-batch":
        return None, "a batch is promised within 24 hours; how soon it comes is not known"
    answer_tokens = estimate.total.completion_tokens.expected / n
    tokens = estimate.total.prompt_tokens.expected / n + answer_tokens
    latency_s = _LATENCY_S + _TOKEN_S * answer_tokens
    bounds = [_bound(llm, server, latency_s, tokens) for server in servers_of(provider)]
    hours = n / sum(bound.per_hour for bound in bounds)
    if len(bounds) == 1:
        return hours, f"time: {bounds[0].what}"
    alike = collections.Counter(bound.what for bound in bounds)
    each = "; ".join(f"{count} x {what}" for what, count in alike.items())
    return hours, f"time: {len(bounds)} servers together: {each}"


class _HourlyLimit(NamedTuple):
    """Requests an hour that a server answers at most, and why."""

    per_hour: float
    what: str


def _bound(llm: LLMConfig, server: Provider, latency_s: float, tokens: float) -> _HourlyLimit:
    """The lowest bound of one server on requests of so many tokens."""
    rpm, tpm, source = _limits(llm, server)
    in_flight = f"{llm.max_concurrency} requests in flight, {latency_s:.1f} s an answer (a guess)"
    bounds = [_HourlyLimit(3600 * llm.max_concurrency / latency_s, in_flight)]
    if rpm is not None:
        bounds.append(_HourlyLimit(60 * rpm, f"{rpm:,.0f} requests a minute ({source})"))
    if tpm is not None:
        bounds.append(_HourlyLimit(60 * tpm / tokens, f"{tpm:,.0f} tokens a minute ({source})"))
    return min(bounds)


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


# -- the models, and the whole run


def with_times(estimate: Estimate, config: RunConfig, plan: Plan) -> Estimate:
    """The estimate with the time of the models and of the whole run, and the bytes it leaves.

    A model's throughput is the one that was remembered for it on this device; where there is none
    its time is not known, and `time_notes` say how to find out.
    """
    passes = tuple(_timed(one, config.encoders) for one in estimate.passes)
    work = Work(
        records=estimate.records,
        requests=estimate.requests,
        prompt_tokens=estimate.total.prompt_tokens.expected,
        completion_tokens=estimate.total.completion_tokens.expected,
        passes=tuple(
            PassWork(one.step, one.expected_items or 0, one.tokens or 0) for one in passes
        ),
        chunk_records=config.chunk_records,
        waves=2 if any(planned.task.after for planned in plan.tasks) else 1,
        steps=len(plan.tasks) + len(plan.passes) + 1,
    )
    rule_s, llm = 0.0, []
    if estimate.requests and config.llm.family == "builtin":
        rule_s = _builtin_s(config.llm)
    elif estimate.requests and estimate.hours is None:
        llm = [Stage(LLM, "during", None, "when answers come is not known")]
    elif estimate.requests and estimate.hours is not None:
        llm = [Stage(LLM, "during", estimate.hours * 3600, "its requests a second")]
    devices, tokens_per_s = _devices(passes, config.encoders)
    time = predict(
        work,
        OwnStages.of(work, rule_s=rule_s),
        llm,
        models_stage(work, tokens_per_s, len(devices)),
        devices=len(devices),
        cores=os.cpu_count() or 1,
        on_cpu=devices == ("cpu",),
    )
    return dataclasses.replace(
        estimate,
        passes=passes,
        time=time,
        time_notes=tuple(_time_notes(passes, config)),
        disk=disk(work),
    )


def _timed(one: PassEstimate, config: EncoderConfig) -> PassEstimate:
    """A pass with its model's remembered throughput, and how long all devices take for it."""
    if not one.tokens:
        return dataclasses.replace(one, seconds=None if one.tokens is None else 0.0)
    if one.model is None or not throughput.throughput_anywhere(one.role, one.model, config.dtype):
        return one  # then it does not matter which device it is, and torch stays unloaded
    served = is_served(one.model)
    devices = [config.device] if served else device_names(config.device)
    own = dataclasses.replace(config, device=devices[0])
    known = throughput.known_throughput(throughput.throughput_key(one.role, own, served=served))
    if known is None:
        return one
    seconds = one.tokens / known.tokens_per_s / len(devices)
    return dataclasses.replace(one, tokens_per_s=known.tokens_per_s, seconds=seconds)


def _devices(
    passes: tuple[PassEstimate, ...], config: EncoderConfig
) -> tuple[tuple[str, ...], dict[str, float | None]]:
    """The devices that passes of known throughput run on, and one device's throughput by step.

    A server works at one pace however many devices there are, so its is shared out among them.
    """
    timed = [(one, is_served(one.model or "")) for one in passes if one.tokens_per_s]
    here = any(not served for _, served in timed)
    names = tuple(device_names(config.device)) if here else ("its server",)
    return names, {
        one.step: (one.tokens_per_s or 0.0) / (len(names) if served else 1) for one, served in timed
    }


def _time_notes(passes: tuple[PassEstimate, ...], config: RunConfig) -> Iterator[str]:
    if any(one.items is None and one.expected_items for one in passes):
        yield (
            "models: pairs of claims and facts that are not made yet are counted on those of the "
            "built-in rules; a language model's may be fewer or more"
        )
    timed = {one.role: one for one in passes if one.tokens_per_s}
    if timed:
        rates = ", ".join(
            f"--{role.replace('_', '-')} {one.model} {one.tokens_per_s:,.0f}"
            for role, one in timed.items()
        )
        yield f"models: tokens a second as remembered of earlier work on this device: {rates}"
        yield "models: nothing taken off for results that are stored of earlier runs"
    untimed = {one.role: one for one in passes if one.tokens and one.tokens_per_s is None}
    for role, one in untimed.items():
        yield _how_to_find_out(role, one, config.encoders)
    yield (
        "claimscore's own work (engine, tables, scoring): as measured on one core of another "
        "machine, see docs/explanation/scaling.md"
    )


def _how_to_find_out(role: str, one: PassEstimate, config: EncoderConfig) -> str:
    option = f"--{role.replace('_', '-')}"
    if one.model is None:
        return f"models: {option} is missing, so its time is not known"
    said = f"models: how fast {option} {one.model} is here is not known"
    device = "" if config.device == "auto" else f" --device {config.device}"
    dtype = "" if config.dtype in ("auto", "float32") else f" --dtype {config.dtype}"
    if role in ("nli", "verifier", "embedder", "token_encoder") and not is_served(one.model):
        known_role = "" if role == "nli" else f" --role {role.replace('_', '-')}"
        return f"{said}; claimscore models check {one.model}{known_role}{device}{dtype} finds out"
    return f"{said}; the first run remembers it, also one of a few records"
