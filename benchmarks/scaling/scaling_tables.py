"""The tables of docs/explanation/scaling.md, from the model, its assumptions and the simulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from setups import (
    ASSUMED,
    CLUSTERS,
    COSTS,
    SMALL_CUSTOMER,
    Assumed,
    Cluster,
    hotel_pairs,
    products,
    with_hosted,
    with_servers,
)

from claimscore.console.amounts import size
from claimscore.pipeline.estimate.run_time import Prediction, Work, disk

#: Of a prompt of 351 tokens 22 are the sentence that it is about.
KEPT = 0.94

SIZES = (10_000, 1_000_000, 100_000_000)
HOURS = 3600.0


def span(seconds: float) -> str:
    """Two digits are all that is known: `40 s`, `12 min`, `3.4 h`, `23 days`."""
    for unit, length in (("days", 24 * HOURS), ("h", HOURS), ("min", 60.0)):
        amount = seconds / length
        if amount >= (2 if unit == "days" else 1):
            return f"{amount:,.0f} {unit}" if amount >= 9.95 else f"{amount:.1f} {unit}"
    return f"{seconds:.0f} s"


def count(n: float) -> str:
    """`10⁴` and the like."""
    return {10_000: "10⁴", 1_000_000: "10⁶", 100_000_000: "10⁸"}.get(int(n), f"{n:,.0f}")


def rows(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    parts = [f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines)]
    return "\n".join(parts) + "\n"


def cell(prediction: Prediction) -> str:
    """The time, and what it is made of."""
    assert prediction.bottleneck is not None
    return f"{span(prediction.known_s)}: {prediction.bottleneck.name}"


def work_table() -> str:
    """What a record is, and what so many of them are."""
    lines = []
    for name, kind in (("hotel pairs", hotel_pairs), ("products", products)):
        for n in (1, 1_000_000):
            work = kind(n)
            left = disk(work, COSTS)
            dollars = (
                work.prompt_tokens * ASSUMED.input_usd + work.completion_tokens * ASSUMED.output_usd
            ) / 1e6
            lines.append(
                [
                    name,
                    count(n),
                    f"{work.requests:,.3g}" if n == 1 else short(work.requests),
                    short(work.tokens),
                    short(work.items),
                    short(sum(one.tokens for one in work.passes)),
                    f"${dollars:.4f}" if dollars < 1 else f"${dollars:,.0f}",
                    size(left.cache_bytes),
                    size(left.table_bytes),
                ]
            )
    header = ("kind", "records", "requests", "LLM tokens", "pairs or texts", "encoder tokens")
    return rows((*header, "API", "cache", "tables"), lines)


def short(n: float) -> str:
    """`8.4 k`, `1.5 G`."""
    for unit, amount in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= amount:
            return f"{n / amount:.3g} {unit}"
    return f"{n:.3g}"


def hosted_table() -> str:
    """Times with a hosted language model."""
    return _clusters(
        (SMALL_CUSTOMER, *CLUSTERS),
        lambda cluster, work: cell(with_hosted(cluster, work, ASSUMED)),
    )


def servers_table() -> str:
    """Times with a language model on GPUs of one's own."""

    def said(cluster: Cluster, work: Work) -> str:
        split = with_servers(cluster, work, ASSUMED)
        share = "shared" if cluster.gpus == 1 else f"{split.serving:.0f} serve"
        return f"{cell(split.prediction)} ({share})"

    return _clusters([cluster for cluster in CLUSTERS if cluster.gpus], said)


def _clusters(clusters: Sequence[Cluster], said: Callable[[Cluster, Work], str]) -> str:
    lines = [
        [cluster.name, *(said(cluster, hotel_pairs(n)) for n in SIZES)] for cluster in clusters
    ]
    return rows(("machines", *(f"{count(n)} records" for n in SIZES)), lines)


class Change(NamedTuple):
    """What would have to change where a part is the bottleneck."""

    part: str
    what: str
    make: Callable[[Cluster, Assumed], tuple[Cluster, Assumed]]


def _on_host(**changes: float) -> Callable[[Cluster, Assumed], tuple[Cluster, Assumed]]:
    def make(cluster: Cluster, given: Assumed) -> tuple[Cluster, Assumed]:
        host = dataclasses.replace(cluster.host, **changes)  # type: ignore[arg-type]
        return cluster._replace(host=host), given

    return make


#: In the order in which they are tried.
CHANGES = (
    Change("scoring", "scoring in 64 processes", _on_host(scoring_workers=64)),
    Change(
        "servers",
        "servers keep the prompts' common beginning (94 %)",
        lambda cluster, given: (cluster, dataclasses.replace(given, shared_prompt=KEPT)),
    ),
    Change(
        "engine",
        "16 runs, each of a sixteenth of the records",
        _on_host(engines=16, cache_writers=16, part_writers=16, readers=16, scoring_workers=16),
    ),
)


class Step(NamedTuple):
    """A change, and the run after it."""

    what: str
    serving: float
    prediction: Prediction


def changes(cluster: Cluster, work: Work, given: Assumed = ASSUMED) -> Iterator[Step]:
    """What is changed one after the other, always where the bottleneck is; until GPUs are it."""
    left = list(CHANGES)
    what = "as it is"
    while True:
        split = with_servers(cluster, work, given)
        yield Step(what, split.serving, split.prediction)
        assert split.prediction.bottleneck is not None
        part = split.prediction.bottleneck.name
        change = next((one for one in left if one.part == part), None)
        if change is None:
            return
        left.remove(change)
        cluster, given = change.make(cluster, given)
        what = change.what


def changes_table() -> str:
    """Where the bottleneck moves at 10⁸ records on 64 GPUs."""
    lines = []
    for step in changes(CLUSTERS[-1], hotel_pairs(SIZES[-1])):
        prediction = step.prediction
        assert prediction.bottleneck is not None
        busy = sorted(
            (stage for stage in prediction.stages if stage.name != "cores"),
            key=lambda stage: -(stage.seconds or 0.0),
        )
        after = ", ".join(f"{stage.name} {span(stage.seconds or 0.0)}" for stage in busy[1:4])
        lines.append(
            [
                step.what,
                span(prediction.known_s),
                f"{step.serving:.0f}",
                f"{prediction.bottleneck.name} {span(prediction.bottleneck.seconds or 0.0)}",
                after,
            ]
        )
    return rows(("changed", "in all", "GPUs that serve", "bottleneck", "next"), lines)


TABLES: dict[str, Callable[[], str]] = {
    "work": work_table,
    "hosted": hosted_table,
    "servers": servers_table,
    "changes": changes_table,
}
