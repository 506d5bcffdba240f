"""The differences of two runs: their settings and data, and their scores metric by metric."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.evaluation.inputs import ComparedRun, finite_number
from claimscore.metrics.base import SIDES
from claimscore.runs import damage_as_error
from claimscore.stats.paired import (
    Difference,
    Verdict,
    holm,
    paired_difference,
    paired_differences,
    verdict,
)

#: One row a shared record: both values, and why a value is null or missing.
PAIRED_SCHEMA: dict[str, pl.DataType] = {
    "id": pl.String(),
    **dict.fromkeys(("a", "b", "difference"), pl.Float64()),
    **dict.fromkeys(("a_reason", "b_reason"), pl.String()),
}

#: The reason of a record that has no row of the metric at all.
NO_ROW = "no row of this metric"
NO_REASON = "no reason given"

#: So many different reasons are counted by name, the most frequent first.
MAX_REASONS = 5

#: The size of a piece of work says nothing about the numbers, `DataDifference` says more than two
#: digests of records, and the metrics of one run alone are named as such.
_LEFT_OUT = frozenset(("chunk_records", "records.digest", "metrics", "tasks"))

#: The parts of a signature that run.toml does not have, as they are called of a metric.
_OF_METRIC = {"claimscore": "claimscore", "version": "{}: version", "file": "code of {}"}

_DIGEST = re.compile("[0-9a-f]{40,}")


class SettingDifference(NamedTuple):
    """A setting by its name in run.toml (without `additive.`) or in a signature; None: not set."""

    name: str
    a: str | None
    b: str | None


class DataDifference(NamedTuple):
    """A column of the records, and in how many of the shared records its value differs.

    `n_differ` is None where only one run has the column, or its types cannot be compared; `why`
    says which.
    """

    column: str
    n_differ: int | None
    why: str | None = None


class Nulls(NamedTuple):
    """Shared records without a value: in the first run, in the second, in either."""

    a: int
    b: int
    either: int
    reasons_a: Mapping[str, int]
    reasons_b: Mapping[str, int]


class MetricDifference(NamedTuple):
    """A metric over all shared records, or over a group of them.

    `holm` is the p-value corrected for the whole table that the row stands in.
    """

    metric: str
    group: str | None
    difference: Difference
    nulls: Nulls
    holm: float | None = None
    verdict: Verdict = "too few"


class Move(NamedTuple):
    """A record whose score of a metric moved."""

    metric: str
    id: str
    a: float
    b: float

    @property
    def difference(self) -> float:
        return self.b - self.a


def setting_differences(a: ComparedRun, b: ComparedRun) -> list[SettingDifference]:
    """By run.toml where both have one, and by what the signatures say beyond it."""
    differences: list[SettingDifference] = []
    both = bool(a.settings and b.settings)
    if both:
        differences += _merged(_differing(_flat(a.settings), _flat(b.settings)))
    for metric in a.metrics:
        if metric not in b.metrics:
            continue
        for one in _differing(_parts(a.metrics[metric]), _parts(b.metrics[metric])):
            if both and one.name not in _OF_METRIC:
                continue
            renamed = one._replace(name=_OF_METRIC.get(one.name, one.name).format(metric))
            if renamed not in differences:
                differences.append(renamed)
    names = {one.name for one in differences}
    return [
        one  # not the digest of a prompt whose version differs: the version says it all
        for one in differences
        if not (one.name.endswith(".digest") and f"{one.name[:-7]}.version" in names)
    ]


def _differing(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[SettingDifference]:
    for name in dict.fromkeys((*a, *b)):
        if a.get(name) != b.get(name):
            yield SettingDifference(name, a.get(name), b.get(name))


def _merged(differences: Iterable[SettingDifference]) -> Iterator[SettingDifference]:
    """What differs alike in the models of several tasks as one: `llm.model (decompose, verify)`."""
    alike: dict[SettingDifference, list[str]] = {}
    for one in differences:
        table, _, rest = one.name.partition(".")
        task, _, name = rest.partition(".")
        if table == "llm" and name:
            alike.setdefault(one._replace(name=f"llm.{name}"), []).append(task)
        else:
            alike[one] = []
    for one, tasks in alike.items():
        yield one._replace(name=f"{one.name} ({', '.join(tasks)})") if tasks else one


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if prefix + name in _LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            flat |= _flat(value, "" if name == "additive" else f"{prefix}{name}.")
        else:
            flat[prefix + name] = _shown(value)
    return flat


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _DIGEST.sub(lambda digest: digest[0][:12], str(value))


def _parts(signatures: Iterable[str]) -> dict[str, str]:
    """The parts `key:value` of signatures; `version` is the one of the metric itself."""
    parts: dict[str, dict[str, None]] = {}
    for signature in signatures:
        for place, part in enumerate(signature.split("|")[1:]):
            key, colon, value = part.partition(":")
            if colon:
                parts.setdefault(key, {})[value] = None
            elif place == 0:
                parts.setdefault("version", {})[part] = None
    return {key: " or ".join(values) for key, values in parts.items()}


def equal_texts(
    a: ComparedRun, b: ComparedRun, ids: pl.Series, data: Sequence[DataDifference]
) -> pl.Series:
    """The ids of the records whose texts are the same in both; `data` are the columns that differ.

    Claims are compared of these alone: those of another text are other claims.
    """
    names = [one.column for one in data if one.n_differ and one.column in SIDES]
    of_a, of_b = a.table("records"), b.table("records")
    if not names or of_a is None or of_b is None:
        return ids
    other_names = {f"\0{place}": name for place, name in enumerate(names)}
    both = of_a.select("id", *names).join(
        of_b.select("id", **{new: pl.col(name) for new, name in other_names.items()}), on="id"
    )
    same = (pl.col(name).eq_missing(pl.col(new)) for new, name in other_names.items())
    with damage_as_error(b.path):
        return ids.filter(ids.is_in(both.filter(*same).collect()["id"].implode()))


def data_differences(a: ComparedRun, b: ComparedRun, ids: pl.Series) -> list[DataDifference]:
    """Columns of the records whose values differ in some of the shared ids, and those that only one
    run has and its metrics read."""
    of_a, of_b = a.table("records"), b.table("records")
    if of_a is None or of_b is None:
        return []
    with damage_as_error(b.path):
        types_a, types_b = dict(of_a.collect_schema()), dict(of_b.collect_schema())
        both = [name for name in types_a if name != "id" and name in types_b]
        typed = [name for name in both if types_a[name] == types_b[name]]
        other_names = {f"\0{place}": name for place, name in enumerate(typed)}
        wanted = pl.col("id").is_in(ids.implode())
        renamed = {new: pl.col(name) for new, name in other_names.items()}
        counts = (
            of_a.filter(wanted)
            .select("id", *typed)
            .join(of_b.filter(wanted).select("id", **renamed), on="id")
            .select(pl.col(name).ne_missing(pl.col(new)).sum() for new, name in other_names.items())
            .collect()
        )
    differences = [
        DataDifference(name, counts[name].item()) for name in typed if counts[name].item()
    ]
    differences += [
        DataDifference(name, None, "another type") for name in both if name not in typed
    ]
    for run, types, others in ((a, types_a, types_b), (b, types_b, types_a)):
        read = run.directory.summary().get("columns", ()) if run.directory else ()
        alone = [name for name in types if name not in others and name in read]
        differences += [DataDifference(name, None, f"only in {run.label}") for name in alone]
    return differences


def paired_scores(a: ComparedRun, b: ComparedRun, metric: str, ids: pl.Series) -> pl.DataFrame:
    """The values of a metric over the shared ids, which are sorted: rows of `PAIRED_SCHEMA`."""
    rows = pl.DataFrame({"id": ids})
    for run, name in ((a, "a"), (b, "b")):
        values = run.values(metric).with_columns(
            pl.when(pl.col("value").is_null()).then(pl.col("reason").fill_null(NO_REASON)),
            there=True,
        )
        renamed = values.rename({"value": name, "reason": f"{name}_reason", "there": f"{name}_"})
        if ids.equals(renamed["id"]):  # a join of a million ids takes a hundred megabytes
            rows = rows.hstack(renamed.drop("id"))
        else:
            rows = rows.join(renamed, on="id", how="left", maintain_order="left")
        rows = rows.with_columns(
            pl.when(f"{name}_").then(f"{name}_reason").otherwise(pl.lit(NO_ROW))
        )
    d = paired_differences(rows["a"].to_numpy(), rows["b"].to_numpy())
    rows = rows.with_columns(pl.Series("difference", d, nan_to_null=True))
    return rows.select(PAIRED_SCHEMA.keys())


def metric_difference(
    metric: str, rows: pl.DataFrame, samples: int, seed: int, group: str | None = None
) -> MetricDifference:
    """Statistics of the records that have a value in both runs, and why others have none."""
    both = rows.drop_nulls("difference")
    difference = paired_difference(
        both["a"].to_numpy(), both["b"].to_numpy(), samples=samples, seed=seed
    )
    a, b, either = rows.select(pl.col("a", "b", "difference").null_count()).row(0)
    nulls = Nulls(a, b, either, _reasons(rows["a_reason"]), _reasons(rows["b_reason"]))
    return MetricDifference(metric, group, difference, nulls)


def _reasons(reasons: pl.Series) -> dict[str, int]:
    """How often each reason is given, without what is particular to one record."""
    counts = reasons.drop_nulls().str.split(":").list.first().value_counts()
    ranked = sorted(counts.iter_rows(), key=lambda item: (-item[1], item[0]))
    others = sum(n for _, n in ranked[MAX_REASONS:])
    return dict(ranked[:MAX_REASONS]) | ({"other reasons": others} if others else {})


def by_group(
    metric: str, paired: pl.DataFrame, groups: pl.DataFrame, samples: int, seed: int
) -> Iterator[MetricDifference]:
    """A metric in each group: numbers by size, then names, records without one last."""
    rows = paired.join(groups, on="id", how="left", maintain_order="left")
    for name in sorted(rows["group"].unique().to_list(), key=_group_order):
        of_group = rows.filter(pl.col("group").eq_missing(pl.lit(name, pl.String)))
        yield metric_difference(metric, of_group, samples, seed, "(none)" if name is None else name)


def _group_order(name: str | None) -> tuple[bool, bool, float, str]:
    number = None if name is None else finite_number(name)
    return (name is None, number is None, number or 0.0, name or "")


def corrected(rows: Sequence[MetricDifference]) -> list[MetricDifference]:
    """The rows with their p-values corrected by Holm's method, and the verdicts."""
    p_values = holm([row.difference.p_value for row in rows])
    return [
        row._replace(holm=p, verdict=verdict(row.difference, p))
        for row, p in zip(rows, p_values, strict=True)
    ]


def most_moved(metric: str, paired: pl.DataFrame, top: int) -> list[Move]:
    """The records whose score moved most, the largest difference first; of equals by id."""
    size = pl.col("difference").abs()
    moved = paired.filter(size > 0).sort(size.round(9), "id", descending=[True, False])
    rows = moved.head(min(top, moved.height))
    return [Move(metric, *values) for values in rows.select("id", "a", "b").iter_rows()]
