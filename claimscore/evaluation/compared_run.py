"""One side of a comparison: a run directory, or the scores of one as a Parquet file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.ratings_table import LARGEST
from claimscore.runs import RunDirectory, damage_as_error

#: Groups of more values than this are no groups.
MAX_GROUPS = 100

_NEEDED = {"id": pl.String, "metric": pl.String, "value": pl.Float64}
_OPTIONAL = ("reason", "signature")
_VALUES = {"id": pl.String(), "value": pl.Float64(), "reason": pl.String()}


@dataclasses.dataclass(frozen=True)
class ComparedRun:
    """One side of a comparison; `directory` is None for a file of scores.

    `metrics` are those that have scores, with all their signatures; `n_records` counts the
    records, `notices` say what is unfinished.
    """

    label: str
    path: Path | str
    scores: pl.LazyFrame | None
    directory: RunDirectory | None
    settings: Mapping[str, Any]
    metrics: Mapping[str, tuple[str, ...]]
    ids: pl.Series
    notices: tuple[str, ...] = ()

    @property
    def n_records(self) -> int:
        return self.ids.len()

    def values(self, metric: str) -> pl.DataFrame:
        """Id, value and reason of every row of a metric, sorted by id; none where it has none.

        `InputError` where a record has two rows, or a value is no finite number.
        """
        if self.scores is None or metric not in self.metrics:
            return pl.DataFrame(schema=_VALUES)
        with damage_as_error(self.path):
            rows = (
                self.scores.filter(pl.col("metric") == metric).select(*_VALUES).sort("id").collect()
            )
        twice = rows.filter(pl.col("id") == pl.col("id").shift())  # sorted: equals are neighbours
        if twice.height:
            raise InputError(f"{self.path}: record {twice['id'][0]} has two rows of {metric}")
        if not rows["value"].drop_nulls().is_finite().all():
            raise InputError(f"{self.path}: metric {metric} holds NaN or infinity")
        if (rows["value"].abs() > LARGEST).any():
            raise InputError(f"{self.path}: metric {metric} holds a score beyond {LARGEST:g}")
        return rows

    def table(self, name: str) -> pl.LazyFrame | None:
        """A table of the run; None where there is none, or no row of it."""
        if self.directory is None or not self.directory.manifest.counts().get(name):
            return None
        return self.directory.scan(name)

    def record_columns(self) -> list[str]:
        """The columns of the records, without the id."""
        records = self.table("records")
        if records is None:
            return []
        return [name for name in records.collect_schema().names() if name != "id"]


def open_run(label: str, path: Path | str) -> ComparedRun:
    """Read what a path names; `ConfigError` where it is no run directory and no file of scores."""
    if _is_run(path):
        return _read_run(label, path)
    if isinstance(path, Path) and not path.exists():
        raise ConfigError(f"{path}: there is no such run directory or file of scores")
    scores = _scan_scores(path)
    with damage_as_error(path):
        ids = scores.select(pl.col("id").unique().sort()).collect().to_series()
        metrics = _metrics(scores)
    if ids.null_count() or None in metrics:
        raise InputError(f"{path}: a row has no id or no metric")
    return ComparedRun(label, path, scores, None, {}, metrics, ids)


def _is_run(path: Path | str) -> bool:
    """Whether this is a folder, not a file; of an address, whether it is not called as one."""
    return path.is_dir() if isinstance(path, Path) else not path.endswith(".parquet")


def _read_run(label: str, path: Path | str) -> ComparedRun:
    directory = RunDirectory.reader(path)
    with damage_as_error(path):
        settings = directory.settings
        ids = _record_ids(directory)
        scores = None
        if (file := directory.path / "scores.parquet").exists():
            directory.check_scores()
            scores = _scan_scores(file)
        metrics = _metrics(scores) if scores is not None else {}
        notices = tuple(_notices(directory, settings, scores, ids.len()))
    return ComparedRun(label, path, scores, directory, settings, metrics, ids, notices)


def _record_ids(directory: RunDirectory) -> pl.Series:
    if not directory.manifest.counts().get("records"):
        return pl.Series("id", [], dtype=pl.String)
    return directory.scan("records").select(pl.col("id").sort()).collect().to_series()


def _scan_scores(path: Path | str) -> pl.LazyFrame:
    """The scores as id, metric, value, reason, signature; `InputError` where they are none."""
    try:
        rows = pl.scan_parquet(path, glob=False)
        columns = rows.collect_schema()
    except (OSError, pl.exceptions.PolarsError):
        raise InputError(
            f"{path}: not a Parquet file; name a run directory, or the scores.parquet of one"
        ) from None
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise InputError(
            f"{path}: no column {missing[0]}; a file of scores has id, metric and value"
        )
    if not (columns["value"].is_numeric() or columns["value"] == pl.Null):
        raise InputError(f"{path}: column value holds {columns['value']}, not numbers")
    optional = [
        pl.col(name).cast(pl.String) if name in columns else pl.lit(None, pl.String).alias(name)
        for name in _OPTIONAL
    ]
    return rows.select(*(pl.col(name).cast(dtype) for name, dtype in _NEEDED.items()), *optional)


def _metrics(scores: pl.LazyFrame) -> dict[str, tuple[str, ...]]:
    """The metrics in the order of their first rows, each with its signatures."""
    rows = (
        scores.select("metric", "signature")
        .with_row_index("row")
        .group_by("metric", "signature")
        .agg(pl.col("row").min())
        .sort("row")
        .collect(engine="streaming")
    )
    signatures_of: dict[str, list[str]] = {}
    for metric, signature, _ in rows.iter_rows():
        signatures_of.setdefault(metric, []).extend([] if signature is None else [signature])
    return {metric: tuple(sorted(signatures)) for metric, signatures in signatures_of.items()}


def _notices(
    directory: RunDirectory,
    settings: Mapping[str, Any],
    scores: pl.LazyFrame | None,
    n_records: int,
) -> Iterator[str]:
    """The parts of a run that are not there yet."""
    if directory.is_locked:
        yield "a process is at work in it; what was finished before is compared"
    total = settings.get("records", {}).get("count")
    if total is not None and n_records < total:
        yield f"unfinished: {n_records:,} of its {total:,} records are read"
    if scores is None:
        yield "unfinished: it has no scores yet; run it to the end first"
        return
    scored = scores.select(pl.col("id").n_unique()).collect().item()
    if scored < n_records:
        yield f"unfinished: {scored:,} of its {n_records:,} records have scores"


def groups(column: str, sources: Sequence[ComparedRun], ids: pl.Series) -> pl.DataFrame:
    """Id and group of each of the ids: the column's value in the first source that has it.

    A missing value is null. `ConfigError` where no source has the column, and where its values
    are lists or too many.
    """
    source = next((source for source in sources if column in source.record_columns()), None)
    if source is None:
        known = {name: None for source in sources for name in source.record_columns()}
        there = f"; there are: {', '.join(known)}" if known else ": only run directories have them"
        raise ConfigError(f"--by {column}: the records have no such column{there}")
    records = source.table("records")
    assert records is not None
    with damage_as_error(source.path):
        if records.collect_schema()[column].is_nested():
            raise ConfigError(f"--by {column}: holds lists or fields, not one value a record")
        value = pl.col(column).cast(pl.String).alias("group")
        rows = records.select("id", value).filter(pl.col("id").is_in(ids.implode())).collect()
    if rows["group"].n_unique() > MAX_GROUPS:
        raise ConfigError(
            f"--by {column}: it has {rows['group'].n_unique():,} values; groups are at most "
            f"{MAX_GROUPS}"
        )
    return rows
