"""From tables to `scores.parquet` and `summary.json`: some chunks at a time, no model, no LLM."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from numbers import Real
from typing import Any, NamedTuple

import polars as pl

from claimscore.claim_checks import CHECKS, EVIDENCE_CHECKS, summarized
from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.metrics.base import ChunkTables, Metric, Score, signature
from claimscore.metrics.support import VERDICTS
from claimscore.pipeline.passes import PASSES
from claimscore.pipeline.passes.pair_nli import CLAIM_ENTAILMENT_PASS, ENTAILED_CLAIMS_PASS
from claimscore.pipeline.passes.support import SUPPORT_PASS
from claimscore.runs import RunDirectory
from claimscore.stats.bootstrap import MIN_VALUES, SAMPLES, Array, interval_text, mean_interval
from claimscore.stats.gates import Gate, Limit, judged
from claimscore.stats.paired import EQUAL_WITHIN
from claimscore.tables import SCORES, TABLES, counted
from claimscore.types import JSON

#: At most so many records and so many rows of tables are scored at a time, but at least a chunk.
SCORED_RECORDS, SCORED_ROWS = 4096, 200_000

#: So many records of each metric are named in the summary, those to look at first.
WORST = 5

#: An interval that takes up more of the metric's range is a rough one.
ROUGH = 0.25

#: The tables with places of claims: the columns of the side, and of the place.
_CLAIM_PLACES = {
    "nli": {"premise_side": "premise_index", "hypothesis_side": "hypothesis_index"},
    "support": {"side": "claim_position"},
}

_encode = json.JSONEncoder(ensure_ascii=False, default=float).encode  # numbers of numpy


def chunk_tables(run: RunDirectory, *chunks: int, dedupe: bool = False) -> ChunkTables:
    """The tables of these chunks, as the metrics read them: with `dedupe` without the claims that
    others entail, and without their rows in the tables of `_CLAIM_PLACES`."""

    @cache
    def claims() -> pl.DataFrame:
        """With the place of a claim among those of its side that count: in the tables, and now."""
        places = pl.col("left_out").is_null().cum_sum().over("id", "side").cast(pl.Int32) - 1
        stored = run.read("claims", *chunks).with_columns(claim_position=places)
        entailed = run.read("claim_checks", *chunks).filter(check="entailed")
        keys = ["id", "side", "claim_position"]
        marked = stored.join(entailed.select(*keys, "check"), keys, "left", maintain_order="left")
        of_claim = pl.coalesce("left_out", "check")
        return marked.with_columns(left_out=of_claim).drop("check").with_columns(now=places)

    def read(table: str) -> pl.DataFrame:
        if not dedupe or table not in ("claims", *_CLAIM_PLACES):
            return run.read(table, *chunks)
        if table == "claims":
            return claims().drop("claim_position", "now")
        rows = run.read(table, *chunks)
        for side, place in _CLAIM_PLACES[table].items():
            stay = counted(claims()).select("id", "now", **{side: "side", place: "claim_position"})
            kept = rows.join(stay, ["id", side, place], maintain_order="left")
            rows = kept.with_columns(pl.col("now").alias(place)).drop("now")
        return rows

    return ChunkTables(read)


def chunk_groups(run: RunDirectory) -> Iterator[list[int]]:
    """Chunks that are scored together: what a query costs does not count for 64 records each.

    A score depends on its record alone, so the groups leave no trace.
    """
    group: list[int] = []
    records = rows = 0
    for chunk in range(run.n_chunks):
        counts = run.manifest.counts(chunk)
        more_records, more_rows = counts["records"], counts.total()
        if group and (records + more_records > SCORED_RECORDS or rows + more_rows > SCORED_ROWS):
            yield group
            group, records, rows = [], 0, 0
        group.append(chunk)
        records, rows = records + more_records, rows + more_rows
    if group:
        yield group


def score_chunk(
    tables: ChunkTables, metrics: Sequence[Metric], signatures: Mapping[str, str]
) -> pl.DataFrame:
    """The scores of some records: record by record, the metrics of each in the order given."""
    scores = list(zip(*(_scores(metric, tables) for metric in metrics), strict=True))
    in_order = [score for of_record in scores for score in of_record]
    return pl.DataFrame(
        {
            "id": [score.id for score in in_order],
            "metric": [metric.name for metric in metrics] * len(scores),
            "value": [score.value for score in in_order],
            "reason": [score.reason for score in in_order],
            "components": [_encode(score.components) for score in in_order],
            "signature": [signatures[metric.name] for metric in metrics] * len(scores),
        },
        schema=SCORES.schema,
    )


def _scores(metric: Metric, tables: ChunkTables) -> list[Score]:
    """A metric's scores; `ConfigError` where they are not one a record, each with a reason or a
    value."""
    scores = list(metric.score(tables))
    ids, (least, most) = tables.records["id"].to_list(), metric.range
    if [getattr(score, "id", None) for score in scores] != ids:
        raise ConfigError(
            f"metric {metric.name}: scores of {len(scores)} for {len(ids)} records; give one "
            "a record by scored() or unscored(), in the order of the records"
        )
    for score in scores:
        value: Any = least if score.value is None else score.value
        number = score.value is None or (isinstance(value, Real) and math.isfinite(value))
        if (score.value is None) == (score.reason is None) or not number:
            raise ConfigError(
                f"metric {metric.name}: record {score.id} has the value {score.value!r} and the "
                f"reason {score.reason!r}; give a finite number, or None and a reason"
            )
        if not least - EQUAL_WITHIN <= value <= most + EQUAL_WITHIN:
            raise ConfigError(
                f"metric {metric.name}: record {score.id} has the value {value:g}, beyond the "
                f"metric's range, {least:g} to {most:g}; correct its score or its range"
            )
    return scores


def score_run(
    run: RunDirectory,
    metrics: Sequence[Metric],
    facts: Mapping[str, str],
    seed: int,
) -> dict[str, JSON]:
    """Write `scores.parquet`; return each metric's mean, interval, counts and signature."""
    metrics = [_as_judged(metric, facts) for metric in metrics]
    signatures = {metric.name: signature(metric, facts) for metric in metrics}
    groups = (chunk_tables(run, *chunks, dedupe="dedupe" in facts) for chunks in chunk_groups(run))
    run.write_scores(score_chunk(tables, metrics, signatures) for tables in groups)
    scores = run.scores()
    assert scores is not None, "they were written"
    return {
        metric.name: _of_metric(scores.filter(metric=metric.name), metric, seed)
        | {"signature": signatures[metric.name]}
        | described(metric)
        for metric in metrics
    }


def _as_judged(metric: Metric, facts: Mapping[str, str]) -> Metric:
    """The metric, with its cautious verdict where the embedded NLI model judged the claims."""
    is_weak = metric.weak_verdict and facts.get("verifier", "").startswith("embedded@")
    return dataclasses.replace(metric, verdict=metric.weak_verdict) if is_weak else metric


def _of_metric(scores: pl.LazyFrame, metric: Metric, seed: int) -> JSON:
    """The summary of the scores of a metric, of which all values are in memory."""
    known = scores.select(pl.col("value").drop_nulls()).collect(engine="streaming")["value"]
    reason = pl.col("reason").str.split(":").list.first()  # what is after it is one record's
    unscored = scores.filter(pl.col("value").is_null()).group_by(reason).len().sort("reason")
    reasons = dict(unscored.collect(engine="streaming").iter_rows())
    summary = _summary(metric, known.to_numpy(), reasons, seed)
    return summary | _verdicts(scores, metric) | {"worst": _worst(scores, metric)}


def _verdicts(scores: pl.LazyFrame, metric: Metric) -> JSON:
    """How many claims have each verdict, and how many of these are unsure; nothing for a metric
    that does not count them."""
    if not {SUPPORT_PASS.kind, "verify"}.intersection(metric.requires.stages):
        return {}
    parts, names = pl.col("components").str, (*VERDICTS, "unsure")
    counts = {name: parts.json_path_match(f"$.{name}").cast(pl.Int64).sum() for name in names}
    (totals,) = scores.select(**counts).collect(engine="streaming").to_dicts()
    n_unsure = totals.pop("unsure")
    return {"verdicts": totals, "unsure": n_unsure} if any(totals.values()) else {}


def _worst(scores: pl.LazyFrame, metric: Metric) -> list[JSON]:
    """The records to look at first, those at the metric's worst end; none with the best value."""
    value, lowest = pl.col("value"), metric.worst == "lowest"
    improvable = (
        scores.select("id", "value").with_row_index("place").filter(value != metric.range[lowest])
    )
    order = [value if lowest else -value, pl.col("place")]
    worst = improvable.bottom_k(WORST, by=order).sort(order).drop("place")
    return worst.collect(engine="streaming").to_dicts()


def _summary(metric: Metric, values: Array, reasons: Mapping[str, int], seed: int) -> JSON:
    """Mean, interval, counts and verdict. No bound lies beyond what a mean of the metric can be."""
    summary: dict[str, Any] = {
        "n": len(values),
        "null": sum(reasons.values()),
        "reasons": dict(reasons),
        **dict.fromkeys(("mean", "half_width", "low", "high", "no_interval")),
    }
    if not len(values):
        return summary | {
            "no_interval": "no record has a value",
            "verdict": "no record has a value",
        }
    interval = mean_interval(values, seed=seed)
    summary["mean"] = interval.mean
    if interval.n < MIN_VALUES:
        summary["no_interval"] = f"fewer than {MIN_VALUES} records have a value"
    elif not interval.half_width:
        summary["no_interval"] = "all records have the same value"
    else:
        least, most = metric.range
        bounds = {"low": max(interval.low, least), "high": min(interval.high, most)}
        summary |= {"half_width": interval.half_width, **bounds}
    return summary | {"verdict": verdict(metric, summary["mean"], summary["low"], summary["high"])}


def limits_of(config: RunConfig, metrics: Sequence[Metric], n: float = math.inf) -> list[Limit]:
    """The limits that a run's means are held against; `ConfigError` for a metric that is not among
    the run's, a limit out of its range or that no mean can be beyond, and too few records, `n`."""
    limits, ranges = [], {metric.name: metric.range for metric in metrics}
    for way, given in (("under", config.fail_under), ("over", config.fail_over)):
        for name, value in given.items():
            least, most = ranges.get(name, (-math.inf, math.inf))
            few, is_end = n < MIN_VALUES, value == (least, most)[way == "over"]
            why = f"the run has {n} of the {MIN_VALUES} records that a bound needs" if few else ""
            if is_end or not least <= value <= most:
                why = f"its scores are from {least:g} to {most:g}" + f", never {way} it" * is_end
            if name not in ranges:
                why = f"the run has no metric {name}; it has: {', '.join(ranges) or 'none'}"
            if why:
                raise ConfigError(f"--fail-{way} {name}={value:g}: {why}")
            limits.append(Limit(f"{name} {way} {value:g}", name, way == "over", value))
    return limits


def gates(
    run: RunDirectory, limits: Sequence[Limit], metrics: Sequence[Metric], seed: int
) -> Iterator[Gate]:
    """Each limit judged by the scores of the run."""
    scores = run.scores()
    assert scores is not None, "they were written"
    ranges = {metric.name: metric.range for metric in metrics}
    for limit in limits:
        values = scores.filter(metric=limit.metric).select("value").drop_nulls().collect()
        how: Any = {"range": ranges[limit.metric], "samples": SAMPLES, "seed": seed}
        yield judged(limit, values["value"].to_numpy(), run=None, **how)


def verdict(metric: Metric, mean: float, low: float | None, high: float | None) -> str:
    """What the mean of a metric says, with its interval, in one sentence."""
    least, most = metric.range
    start, unit, digits, sign = 0.0, 1.0, 2, ""
    if "{share}" in metric.verdict:
        start, unit, digits, sign = least, 100 / (most - least), 0, " %"
    shown, rough = f"{(mean - start) * unit:.{digits}f}{sign}", ""
    if low is not None and high is not None:
        bounds = interval_text((low - start) * unit, (high - start) * unit, digits)
        shown += f" ({bounds}{sign})"
        if high - low > ROUGH * (most - least):
            rough = "; so few records say it only roughly"
    if not metric.verdict:
        return (
            f"{shown}; higher is {metric.higher_is}. The level says little by itself: compare it "
            "with another run of these records"
        )
    return metric.verdict.format(share=shown, mean=shown) + rough


def described(metric: Metric) -> JSON:
    """The metric for its readers; a bound that is infinite is null."""
    bounds = [bound if math.isfinite(bound) else None for bound in metric.range]
    return {
        "description": metric.description,
        "higher_is": metric.higher_is,
        "worst_end": metric.worst,
        "range": bounds,
        "reference": metric.reference,
    }


class Failed(NamedTuple):
    """How many records have a failure, and how many failures there are of which stage and kind,
    each with the message of the first id."""

    records: int
    by_kind: list[JSON]


def failed(directory: RunDirectory) -> Failed:
    """Go through the failures of all finished steps."""
    rows = directory.scan("failures")
    first = pl.col("message").get(pl.col("id").arg_min()).alias("example")
    groups = rows.group_by("stage", "kind").agg(pl.len().alias("count"), first)
    n_records = rows.select(pl.col("id").n_unique()).collect(engine="streaming").item()
    by_kind = groups.sort("stage", "kind").collect(engine="streaming").to_dicts()
    return Failed(n_records, by_kind)


def count_claim_checks(directory: RunDirectory) -> JSON | None:
    """What checks found about the claims so far, with warnings (`claim_checks.summarized`).

    None where no language model was asked for claims or about them. A check that was not made is
    left out.
    """
    steps = {step.partition("-")[0] for step in directory.manifest.all_steps()}
    texts = directory.settings.get("additive", {}).get("texts", {})
    made: set[str] = set() if "verify" not in steps else set(EVIDENCE_CHECKS)
    if "decompose" in steps and texts.get("units") != "sentences":
        made |= CHECKS.keys() - EVIDENCE_CHECKS
        of_passes = {"not_entailed": CLAIM_ENTAILMENT_PASS, "entailed": ENTAILED_CLAIMS_PASS}
        made -= {check for check, one in of_passes.items() if one.kind not in steps}
    if not made:
        return None
    counts = directory.scan("claim_checks").group_by("check").len().collect(engine="streaming")
    checks = dict.fromkeys(made, 0) | dict(counts.iter_rows())
    first = pl.col("claim_index") == 0
    claims = directory.scan("claims").select(pl.len(), first.sum().alias("sentences"))
    n_claims, n_sentences = claims.collect(engine="streaming").row(0)
    return summarized(checks, n_claims, n_sentences + checks.get("no_claims", 0))


class _Cut(NamedTuple):
    rows: int
    records: pl.Series
    unknown: int


def truncations(directory: RunDirectory, metrics: Sequence[Metric]) -> dict[str, JSON]:
    """For each metric that read cut texts: ``rows`` of its tables, ``records`` with such rows, and
    the ``limits`` of its models in tokens; ``unknown`` are the rows of a model that tells of none.
    """
    settings = directory.settings.get("additive", {})
    tables = [name for name, table in TABLES.items() if "truncated" in table.schema]

    @cache
    def of_step(step: str) -> _Cut:
        cut, unknown = [], 0
        for table in tables:
            rows, truncated = directory.scan(table, step), pl.col("truncated")
            totals = rows.select(pl.len(), truncated.count()).collect(engine="streaming")
            unknown += totals.item(0, 0) if not totals.item(0, 1) else 0
            cut.append(rows.filter(truncated).group_by("id").len().collect(engine="streaming"))
        counts = pl.concat(cut)
        return _Cut(int(counts["len"].sum()), counts["id"].unique(), unknown)

    counts = {}
    for metric in metrics:
        needs = dict.fromkeys(metric.requires.passes)
        cuts = [of_step(need.step) for need in needs]
        rows, unknown = sum(cut.rows for cut in cuts), sum(cut.unknown for cut in cuts)
        if rows or unknown:
            limits = (settings.get(PASSES[need.kind].role, {}).get("limit") for need in needs)
            counts[metric.name] = {
                "rows": rows,
                "records": pl.concat([cut.records for cut in cuts]).n_unique(),
                "limits": sorted({limit for limit in limits if limit is not None}),
                "unknown": unknown,
            }
    return counts
