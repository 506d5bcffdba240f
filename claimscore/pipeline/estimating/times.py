"""How long the run takes on this machine, part by part, by the formulas of `pipeline.scaling`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

from claimscore.config import EncoderConfig, RunConfig
from claimscore.pipeline.encoders import throughput
from claimscore.pipeline.encoders.devices import device_names
from claimscore.pipeline.encoders.served import is_served
from claimscore.pipeline.estimating.figures import Estimate
from claimscore.pipeline.estimating.hours import family
from claimscore.pipeline.estimating.passes import PassEstimate
from claimscore.pipeline.plan import Plan
from claimscore.pipeline.scaling import (
    Encoders,
    Host,
    LanguageModel,
    PassWork,
    Work,
    disk,
    predict,
)


def with_times(estimate: Estimate, config: RunConfig, plan: Plan) -> Estimate:
    """The estimate with the time of the models and of the whole run, and the bytes it leaves.

    A model's pace is the one that was remembered for it on this device; where there is none
    its time is not known, and `time_notes` says how to find out.
    """
    passes = tuple(_timed(one, config.encoders) for one in estimate.passes)
    work = _work(estimate, config, plan)
    encoders = _encoders(passes, config.encoders)
    host = Host(cores=os.cpu_count() or 1)
    return dataclasses.replace(
        estimate,
        passes=passes,
        time=predict(work, _language_model(estimate, config), encoders, host),
        time_notes=tuple(_notes(passes, config)),
        disk=disk(work),
    )


def _work(estimate: Estimate, config: RunConfig, plan: Plan) -> Work:
    return Work(
        records=estimate.records,
        requests=estimate.requests,
        prompt_tokens=estimate.prompt_tokens.expected,
        completion_tokens=estimate.completion_tokens.expected,
        passes=tuple(
            PassWork(one.step, one.expected_items or 0, one.tokens or 0) for one in estimate.passes
        ),
        chunk_records=config.chunk_records,
        waves=2 if any(planned.task.after for planned in plan.tasks) else 1,
        steps=len(plan.tasks) + len(plan.passes) + 1,
    )


def _language_model(estimate: Estimate, config: RunConfig) -> LanguageModel:
    """What `hours` says of it, as a rate."""
    if not estimate.requests:
        return LanguageModel()
    if estimate.hours is None:
        return LanguageModel(known=False)
    seconds = estimate.hours * 3600
    if family(config.llm) == "builtin":
        return LanguageModel(rule_s=seconds / estimate.requests)
    return LanguageModel(
        requests_per_s=estimate.requests / seconds, concurrency=config.llm.max_concurrency
    )


def _timed(one: PassEstimate, config: EncoderConfig) -> PassEstimate:
    """A pass with its model's remembered pace, and how long all devices take for it."""
    if not one.tokens:
        return dataclasses.replace(one, seconds=None if one.tokens is None else 0.0)
    if one.model is None or not throughput.has_throughput(one.role, one.model, config.dtype):
        return one  # then it does not matter which device it is, and torch stays unloaded
    served = is_served(one.model)
    devices = [config.device] if served else device_names(config.device)
    own = dataclasses.replace(config, device=devices[0])
    known = throughput.known_throughput(throughput.throughput_key(one.role, own, served=served))
    if known is None:
        return one
    seconds = one.tokens / known.tokens_per_s / len(devices)
    return dataclasses.replace(one, tokens_per_s=known.tokens_per_s, seconds=seconds)


def _encoders(passes: tuple[PassEstimate, ...], config: EncoderConfig) -> Encoders:
    """The devices that passes of a known pace are on; a server counts as one of each."""
    here = [one for one in passes if one.tokens_per_s and not is_served(one.model or "")]
    names = device_names(config.device) if here else ("its server",)
    paces_by_step = {
        one.step: one.tokens_per_s / (len(names) if is_served(one.model or "") else 1)
        for one in passes
        if one.tokens_per_s
    }
    return Encoders(len(names), paces_by_step, on_cpu=names == ("cpu",))


def _notes(passes: tuple[PassEstimate, ...], config: RunConfig) -> Iterator[str]:
    guessed = [one for one in passes if one.items is None and one.expected_items]
    if guessed:
        yield (
            "models: pairs of claims and facts that are not made yet are counted on those of the "
            "built-in rules; a language model's may be fewer or more"
        )
    timed = [one for one in passes if one.tokens_per_s]
    if timed:
        rates = ", ".join(
            f"--{one.role.replace('_', '-')} {one.model} {one.tokens_per_s:,.0f}"
            for one in {one.role: one for one in timed}.values()
        )
        yield f"models: tokens a second as remembered of earlier work on this device: {rates}"
        yield "models: nothing taken off for results that are stored of earlier runs"
    for role, one in {one.role: one for one in passes if _has_no_pace(one)}.items():
        yield _how_to_find_out(role, one, config.encoders)
    yield (
        "claimscore's own work (engine, tables, scoring): as measured on one core of another "
        "machine, see docs/scaling.md"
    )


def _has_no_pace(one: PassEstimate) -> bool:
    return bool(one.tokens) and one.tokens_per_s is None


def _how_to_find_out(role: str, one: PassEstimate, config: EncoderConfig) -> str:
    option = f"--{role.replace('_', '-')}"
    if one.model is None:
        return f"models: {option} is missing, so its time is not known"
    said = f"models: how fast {option} {one.model} is here is not known"
    device = "" if config.device == "auto" else f" --device {config.device}"
    dtype = "" if config.dtype == "float32" else f" --dtype {config.dtype}"
    if role in ("nli", "embedder", "token_encoder") and not is_served(one.model):
        known_role = "" if role == "nli" else f" --role {role.replace('_', '-')}"
        return f"{said}; claimscore models check {one.model}{known_role}{device}{dtype} finds out"
    return f"{said}; the first run remembers it, also one of a few records"
