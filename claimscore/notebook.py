"""Tables in, tables out: `evaluate` for a frame, a data set or a list, `score_pair` for two texts.

A result without an `out` of its own is a run in a temporary folder, which goes with the result. Its
answers and the results of models are in the cache: the same call again asks nothing twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.atomic import fleeting
from claimscore.config import OF_THE_RUN, EncoderConfig, LLMConfig, RunConfig
from claimscore.console import many, verdict_totals
from claimscore.console.progress import progress_display
from claimscore.errors import ConfigError
from claimscore.metrics.support import CONTRADICTED, SUPPORTED, uncertainty
from claimscore.pipeline.plan import load_metrics
from claimscore.pipeline.reading import PAIR_METRICS
from claimscore.pipeline.run import run
from claimscore.pipeline.run import score as add_metrics
from claimscore.records.readers import rows_in_memory
from claimscore.runs import RunDirectory
from claimscore.stats.bootstrap import interval_text
from claimscore.tables import SCORES, TABLES, wide_scores
from claimscore.types import JSON

#: The settings that `evaluate` makes itself.
_OWN = ("input", "out", "llm", "encoders")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The scores of records, and the run directory `out` with everything they were made of.

    `summary` is the content of `summary.json`, `metrics` are the names that were asked for. A
    folder that is not kept is there as long as this object.
    """

    out: Path | str
    metrics: tuple[str, ...]
    summary: JSON
    is_kept: bool = True

    @functools.cached_property
    def scores(self) -> pl.DataFrame:
        """A row a record, in the order of the input: `id`, a column a metric, and `reason`, which
        says why a value is null."""
        scores = self.table("scores").filter(pl.col("metric").is_in(self.metrics))
        return wide_scores(scores).select("id", *self.metrics, "reason")

    @functools.cached_property
    def claims(self) -> pl.DataFrame:
        """The claims of all texts, in the order of the input (`docs/reference/tables.md`)."""
        return self.table("claims")

    @functools.cached_property
    def verdicts(self) -> pl.DataFrame:
        """A row a claim that was judged: `id`, `side`, `claim`, `verdict`, `probability` of
        support, `uncertainty`, `evidence`. Of several texts the one that decides counts."""
        contradicted = pl.col("verdict") == CONTRADICTED
        weight = pl.when(contradicted).then("contradiction").otherwise("probability")
        first = pl.col("verdict", "evidence").sort_by(
            pl.col("verdict") == SUPPORTED, contradicted, weight, descending=True, nulls_last=True
        )
        claims = self.table("support").group_by("id", "side", "claim_position", maintain_order=True)
        decided = claims.agg(pl.col("claim").first(), first.first(), pl.col("probability").max())
        judged = decided.with_columns(uncertainty=uncertainty(pl.col("probability")))
        names = ("verdict", "probability", "uncertainty", "evidence")
        return judged.select("id", "side", "claim", *names)

    @functools.cached_property
    def records(self) -> pl.DataFrame:
        """The records as they were read, with `id`."""
        return self.table("records")

    def table(self, name: str) -> pl.DataFrame:
        """A table of the run directory: `nli`, `facts`, `failures` and others; `ConfigError` for an
        unknown name."""
        refuse_unknown([name], [*TABLES, "records"], "table")
        directory = RunDirectory.reader(self.out)
        rows = directory.scores() if name == SCORES.name else directory.scan(name)
        if rows is None:
            raise ConfigError(f"{self.out}: the run has no scores yet; run it to the end first")
        return rows.collect()

    def report(self) -> Path | str:
        """Write report.html into the run directory; return its path."""
        from claimscore.report.run_report import write_run_report

        return write_run_report(self.out)

    def __repr__(self) -> str:
        width = max(map(len, self.metrics), default=0)
        lines = [
            f"{name:{width}}  {_value(self.summary['metrics'][name])}" for name in self.metrics
        ]
        n = self.summary["records"]["total"]
        return "\n".join(
            [f"Evaluation of {many(n, 'record')}", *lines, *self._warnings(), *self._where()]
        )

    def _warnings(self) -> list[str]:
        """What is to be known of the scores: failures, a small judge, odd texts and claims."""
        failed = self.summary["records"]["failed"]
        checks = self.summary["claim_checks"] or {"warnings": []}
        lines = [f"{failed:,} of the records failed: see table('failures')"] if failed else []
        lines += [f"texts {check['text']}" for check in self.summary.get("text_checks", ())]
        return [
            f"warning: {line}" for line in (*lines, *self.summary["notices"], *checks["warnings"])
        ]

    def _where(self) -> list[str]:
        """The folder, where it is kept."""
        return [f"run: {self.out}"] if self.is_kept else []


def evaluate(
    data: Any,
    metrics: str | Sequence[str] | None = None,
    *,
    out: Path | str | None = None,
    progress: bool = True,
    **options: Any,
) -> Evaluation:
    """Score a table of records.

    `data` is a polars or pandas DataFrame, a Dataset of Hugging Face, an Arrow table, a list of
    dicts, or a path. `metrics` are names as of `--metrics`, one or several; without them the
    columns choose. `options` are fields of `RunConfig`, `LLMConfig` and `EncoderConfig`:
    `columns={"source": "article"}`, `limit=100`, `llm="openai:gpt-4o-mini"`, `max_cost=5`,
    `nli="FacebookAI/roberta-large-mnli"`.

    Without `out` the run's folder is temporary and goes with the result. Raises `ConfigError` for
    wrong data or options, before anything is spent, and `StoppedEarly` where it stopped; then the
    same call goes on, with the answers that it paid for.
    """
    if not isinstance(data, str | Path):
        data = rows_in_memory(data)  # once: a generator has its rows only once
    elif str(data) == "-":
        raise ConfigError("standard input cannot be read here; give the data or a path")
    is_kept = out is not None
    with contextlib.ExitStack() as ends:
        if out is None:
            out = tempfile.mkdtemp(prefix="claimscore-")
            ends.callback(shutil.rmtree, out, ignore_errors=True)
            ends.enter_context(fleeting(Path(out)))
        config = run_config(data, out, {"keep_models": True, **options, "metrics": metrics})
        chosen = load_metrics(config.metrics or (), config.metric_files)
        with progress_display(not progress) as show:
            summary = run(config, on_progress=show).summary
        names = tuple(dict.fromkeys(metric.name for metric in chosen))
        names = tuple(summary["metrics"]) if config.metrics is None else names
        evaluation = Evaluation(config.out, names, summary, is_kept)
        weakref.finalize(evaluation, ends.pop_all().close)
    return evaluation


def score(
    out: Path | str,
    metrics: str | Sequence[str],
    *,
    progress: bool = True,
    **options: Any,
) -> Evaluation:
    """Add metrics to the run in the folder `out`; its records and earlier scores are read there.

    Only the steps that are missing are done. `options` as of `evaluate`, for these steps: models,
    servers, prompts and metric files are those named here, never those that the folder names.
    Raises `ConfigError` for an option that a run has once and for all (`units`, `seed`, `limit`
    and the like), and else as `evaluate` does.
    """
    fixed = [name for name in OF_THE_RUN if name in options]
    if fixed:
        raise ConfigError(f"{fixed[0]} is that of the run in {out}; score takes no other")
    config = run_config("", out, {"keep_models": True, **options, "metrics": metrics})
    with progress_display(not progress) as show:
        summary = add_metrics(config, on_progress=show).summary
    return Evaluation(config.out, config.metrics or (), summary)


def score_pair(
    first: str,
    second: str,
    metrics: str | Sequence[str] | None = None,
    *,
    progress: bool = False,
    **options: Any,
) -> Evaluation:
    """Score two texts.

    `first` is `summary_a`, the source or the reference of a record, `second` is `summary_b` or the
    summary, by what the metrics read. `options` as of `evaluate`.
    """
    for text in (first, second):
        if not isinstance(text, str):
            raise ConfigError(f"score_pair takes two texts, not {type(text).__name__}")
    metrics = PAIR_METRICS if metrics is None else metrics
    config = run_config([], Path(), {**options, "metrics": metrics})
    loaded = load_metrics(config.metrics or (), config.metric_files)
    places = {"summary_a": first, "source": first, "sources": [first], "references": [first]}
    places |= {"summary_b": second, "summary": second}
    read = {column for metric in loaded for column in metric.requires.columns}
    record = {column: text for column, text in places.items() if column in read}
    return evaluate([record], metrics, progress=progress, **options)


def run_config(data: Any, out: Path | str, options: dict[str, Any]) -> RunConfig:
    """The settings of a run, each option in the dataclass that has it."""
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(given.get("llm"), str):
        given["model"] = given.pop("llm")
    parts: dict[Any, dict[str, Any]] = {}
    known = {"llm"}
    for cls in (RunConfig, LLMConfig, EncoderConfig):
        names = {field.name for field in dataclasses.fields(cls)} - {*_OWN, "address"}
        known |= names
        parts[cls] = {name: given[name] for name in names & given.keys()}
    refuse_unknown(given.keys() - {"encoders"}, known)
    for field, whole in (("llm", LLMConfig()), ("encoders", EncoderConfig())):
        base: Any = given.get(field, whole)
        if not isinstance(base, type(whole)):
            kind = type(whole).__name__
            raise ConfigError(f"{field} must be of type {kind}, not {type(base).__name__}")
        parts[RunConfig][field] = dataclasses.replace(base, **parts[type(whole)])
    return RunConfig(input=data, out=out, **parts[RunConfig])


def refuse_unknown(names: Iterable[str], known: Collection[str], what: str = "option") -> None:
    """`ConfigError` for an option or another name that is not known, with the likely one."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"; is {near[0]} meant?" if near else f"; known: {', '.join(sorted(known))}"
            raise ConfigError(f"unknown {what} {name}{meant}")


def _value(row: Mapping[str, Any]) -> str:
    """A mean and its interval, and the verdicts on claims where there are any."""
    if row["mean"] is None:
        return "no value: " + "; ".join(row["reasons"])
    interval = "" if row["low"] is None else f" ({interval_text(row['low'], row['high'])})"
    return "; ".join([f"{row['mean']:.2f}{interval}", *verdict_totals(row)])
