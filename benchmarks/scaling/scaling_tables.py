"""The tables of docs/explanation/scaling.md, from the model, its assumptions and the simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from setups import (
    ASSUMED,
    CLUSTERS,
    COSTS,
    SMALL_CUSTOMER,
    Cluster,
    hotel_pairs,
    products,
    with_hosted,
    with_servers,
)

from claimscore.console.amounts import size
from claimscore.pipeline.estimate.run_time import Prediction, Work, disk

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
    """What a record is."""
    lines = []
    for name, kind in (("hotel pairs", hotel_pairs), ("products", products)):
        work = kind(1)
        left = disk(work, COSTS)
        dollars = (
            work.prompt_tokens * ASSUMED.input_usd + work.completion_tokens * ASSUMED.output_usd
        ) / 1e6
        lines.append(
            [
                name,
                f"{work.requests:,.3g}",
                short(work.tokens),
                short(work.items),
                short(sum(one.tokens for one in work.passes)),
                f"${dollars:.4f}",
                size(left.cache_bytes),
                size(left.table_bytes),
            ]
        )
    header = ("kind", "requests", "LLM tokens", "pairs or texts", "encoder tokens")
    return rows((*header, "API", "cache", "tables"), lines)


def short(n: float) -> str:
    """`8.4 k`, `1.5 G`."""
    for unit, amount in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= amount:
            return f"{n / amount:.3g} {unit}"
    return f"{n:.3g}"


def hosted_table() -> str:
    """Times with a hosted language model; more GPUs than one change nothing."""
    return _clusters(
        (SMALL_CUSTOMER, *CLUSTERS[:2]),
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


TABLES: dict[str, Callable[[], str]] = {
    "work": work_table,
    "hosted": hosted_table,
    "servers": servers_table,
}
