"""`claimscore evaluate caspr`: the CASPR paper's comparisons by every metric (Tables 2 and 5).

A record has `id`, `entity_a_summary` (two texts or more, one an annotator) and
`entity_b_summary` (one text or more): what sets A apart, and what sets B apart. The texts of
`MADE_FROM` may be there or not; runs of the engine make those that a record lacks from the first
annotator's summaries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from claimscore.config import Granularity, LLMConfig, RunConfig, check_least
from claimscore.errors import ConfigError, InputError, StoppedEarly
from claimscore.evaluation.published import CASPR_MEANS, CASPR_RHO, CASPR_SOURCE
from claimscore.evaluation.result import EvaluationResult, Row, Section, fixed, write_rows
from claimscore.option import nested, option
from claimscore.pipeline.llm.budget.cap import SPEND_FILE, spent_so_far
from claimscore.pipeline.plan import load_metrics, required_columns
from claimscore.pipeline.run import OnProgress, RunResult, run
from claimscore.records.files import find_files
from claimscore.records.readers import place, read
from claimscore.runs import RunDirectory
from claimscore.stats.bootstrap import mean_interval, percentile_bounds
from claimscore.stats.correlation import correlation_draws, spearman

_A, _A_OTHER, _B = "entity_a_summary[0]", "entity_a_summary[1]", "entity_b_summary[0]"

#: The two texts of each comparison (CASPR paper, Table 3), least contrast first, paraphrases last.
COMPARISONS: dict[str, tuple[str, str]] = {
    "syn_low": (_A, "syn_low_contrast"),
    "ref_similar": (_A, _A_OTHER),
    "ref_contrastive": (_A, _B),
    "syn_high": (_A, "syn_high_contrast"),
    "syn_contrast": ("paraphrase_a", "paraphrase_b"),
}

#: The texts that a data set may bring, and the text that each is made from where it does not.
MADE_FROM = {
    "syn_low_contrast": _A,
    "syn_high_contrast": _A,
    "paraphrase_a": _A,
    "paraphrase_b": _B,
}

#: The runs of an evaluation, folders inside its own.
PARAPHRASES, NEGATIONS, SCORED = "paraphrases", "negations", "run"

#: A text by record and name.
Key = tuple[str, str]

#: The comparisons of Spearman's rho: the same pairs, in their own words and paraphrased.
PARAPHRASED = ("ref_contrastive", "syn_contrast")

#: Comparisons in the order of the contrast that they should have.
ORDER = ("syn_low", "ref_similar", "ref_contrastive", "syn_high")

#: Comparisons as the paper names them.
TITLES = {
    "syn_low": "synthetic low",
    "ref_similar": "reference similar",
    "ref_contrastive": "reference contrastive",
    "syn_high": "synthetic high",
    "syn_contrast": "synthetic contrast (paraphrased)",
}

MEANS_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("metric", "comparison"), pl.String),
    **dict.fromkeys(("n", "null"), pl.Int64),
    **dict.fromkeys(("mean", "half_width", "low", "high"), pl.Float64),
    **dict.fromkeys(("published_mean", "published_half_width"), pl.Float64),
}
RHO_SCHEMA: dict[str, type[pl.DataType]] = {
    "metric": pl.String,
    "n": pl.Int64,
    **dict.fromkeys(("spearman", "low", "high", "p_value", "published"), pl.Float64),
    "reason": pl.String,
}


@dataclasses.dataclass(frozen=True, slots=True)
class CasprConfig:
    """`run` has the input, the folder, the metrics and all that the engine is asked with."""

    run: RunConfig = nested(RunConfig, without=("tasks", "columns", "limit"))
    paraphrase: Granularity = option(
        "sentence",
        panel="Language model",
        help="Text of one paraphrase, where a record has none.",
    )
    drop_missing: bool = option(
        False, panel="Metrics", help="Leave out pairs whose texts cannot be made."
    )
    samples: int = option(10_000, panel="Metrics", help="Number of bootstrap samples.")

    def __post_init__(self) -> None:
        check_least(self, samples=2)
        if not self.run.metrics:
            raise ConfigError("nothing to do: name --metrics")
        if self.run.input == "-":
            raise InputError("the records of evaluate caspr are read from a file, not from -")


class AnnotatedRecord(NamedTuple):
    """A pair of entities: the texts it has, by name."""

    id: str
    texts: Mapping[str, str]

    @property
    def lacking(self) -> tuple[str, ...]:
        """The texts of `MADE_FROM` that it does not have."""
        return tuple(name for name in MADE_FROM if name not in self.texts)


class TextPair(NamedTuple):
    """Two texts to compare."""

    comparison: str
    id: str
    summary_a: str
    summary_b: str


class MissingPair(NamedTuple):
    """A pair that cannot be compared, and why."""

    comparison: str
    id: str
    reason: str


class MadeTexts(NamedTuple):
    """The texts that were made, and why others were not."""

    texts: dict[Key, str]
    reasons: dict[Key, str]


@dataclasses.dataclass(frozen=True)
class CasprResult(EvaluationResult):
    """`scores` has a row a pair and metric, `means` one a metric and comparison, `rho` a metric."""

    name = "caspr"
    title = "The CASPR paper's comparisons"

    config: CasprConfig
    run: RunResult
    n_records: int
    n_made: int
    missing: Sequence[MissingPair]
    scores: pl.DataFrame
    means: pl.DataFrame
    rho: pl.DataFrame

    def tables(self) -> dict[str, pl.DataFrame]:
        return {"means": self.means, "rho": self.rho}

    def files(self) -> dict[str, pl.DataFrame]:
        return {**self.tables(), "pairs": self.scores}

    def facts(self) -> dict[str, Any]:
        missing = [pair._asdict() for pair in self.missing]
        return {"records": self.n_records, "made": self.n_made, "missing": missing}

    def sections(self) -> Sequence[Section]:
        """Means, then the correlation with paraphrased summaries, then the order of the means."""
        rows = self.means.iter_rows(named=True)
        means: dict[tuple[str, str], Row] = {
            (row["metric"], row["comparison"]): row for row in rows
        }
        paraphrased = Section(
            "Paraphrasing both summaries: Spearman's ρ of the pairs' scores before and after",
            ("metric", *(TITLES[name] for name in PARAPHRASED), "ρ", "published ρ"),
            [
                (
                    row["metric"],
                    *(_mean(means[row["metric"], comparison], 2) for comparison in PARAPHRASED),
                    row["reason"] or f"{row['spearman']:.4f} [{row['low']:.2f}, {row['high']:.2f}]",
                    fixed(row["published"], 2),
                )
                for row in self.rho.iter_rows(named=True)
            ],
            (f"95 % bootstrap interval over pairs ({self.config.samples:,} samples)",),
        )
        return [self._means_section(means), paraphrased, self._order_section()]

    def _means_section(self, means: Mapping[tuple[str, str], Row]) -> Section:
        metrics = self.rho["metric"].to_list()
        published = [m for m in metrics if means[m, PARAPHRASED[0]]["published_mean"] is not None]
        header = ["comparison"]
        rows = [[TITLES[comparison]] for comparison in COMPARISONS]
        for metric in metrics:
            header += [metric, "published"] if metric in published else [metric]
            for shown, comparison in zip(rows, COMPARISONS, strict=True):
                row = means[metric, comparison]
                nulls = f" (n {row['n']}, null {row['null']})" if row["null"] else ""
                shown.append(_mean(row, 2) + nulls)
                if metric in published:
                    shown.append(_mean(row, 1, "published_"))
        n_samples = f"{self.config.samples:,}"
        notes = [f"95 % interval: 1.96 standard deviations of {n_samples} bootstrap means"]
        if self.n_made:
            notes.append(f"{self.n_made:,} texts made by {self.config.run.llm.model}")
        if self.missing:
            n = f"{len(self.missing):,}"
            notes.append(f"{n} pairs left out: a text of theirs could not be made")
        if published:
            notes.append(f"published: {CASPR_SOURCE}; where it is empty, in its Figure 2 alone")
        title = f"Means of {self.n_records:,} pairs a comparison"
        return Section(title, tuple(header), [tuple(row) for row in rows], tuple(notes))

    def _order_section(self) -> Section:
        rows: list[tuple[str, ...]] = []
        for (metric,), means in self.means.group_by("metric", maintain_order=True):
            found = dict(means.select("comparison", "mean").drop_nulls().iter_rows())
            ranked = sorted((name for name in ORDER if name in found), key=found.__getitem__)
            kept = "yes" if tuple(ranked) == ORDER else "no"
            rows.append((str(metric), kept, " < ".join(TITLES[name] for name in ranked)))
        wanted = f"wanted: {' < '.join(TITLES[name] for name in ORDER)}"
        return Section("Order of the means", ("metric", "as wanted", "order"), rows, (wanted,))

    def markdown(self) -> str:
        """The sections and the metrics' signatures."""
        signatures = self.scores.select("metric", "signature").unique(maintain_order=True)
        lines = (f"\n- {metric}: `{signature}`" for metric, signature in signatures.iter_rows())
        return f"{super().markdown()}\n## Signatures\n{''.join(lines)}\n"


def _mean(row: Row, digits: int, prefix: str = "") -> str:
    mean, half_width = row[f"{prefix}mean"], row[f"{prefix}half_width"]
    return "" if mean is None else f"{mean:.{digits}f} ± {half_width:.{digits}f}"


def caspr_experiment(config: CasprConfig, on_progress: OnProgress | None = None) -> CasprResult:
    """Make the texts that the records lack, score the comparisons by one run, and compare.

    All lies in the folder `config.run.out`; the same call goes on where it was stopped. Raises
    as `claimscore.run` does, `InputError` for records that cannot be used, and `StoppedEarly`
    where a text could not be made and `drop_missing` is false.
    """
    metrics = _metric_names(config.run)
    records = read_annotated(config.run.input)
    made = make_texts(records, config.run, config.paraphrase, on_progress)
    pairs, missing = build_pairs(records, made)
    if missing and not config.drop_missing:
        first = missing[0]
        raise StoppedEarly(
            f"{len(missing)} pairs lack a text, e.g. record {first.id!r}: {first.reason}; the same "
            "command with --retry-failed asks again, with --drop-missing leaves those pairs out"
        )
    columns = ("comparison", "summary_a", "summary_b")
    rows = ({"id": _id(p), **{name: getattr(p, name) for name in columns}} for p in pairs)
    scoring = dataclasses.replace(
        config.run,
        input=str(write_rows(config.run.folder / "comparisons.jsonl", rows)),
        out=config.run.folder / SCORED,
        tasks=(),
        llm=remaining_budget(config.run, SCORED),
    )
    result = run(scoring, on_progress=on_progress)
    scores = _read_scores(scoring.folder, pairs, metrics)
    drawn = config.samples, config.run.seed
    means = [_means(scores, metric, name, *drawn) for metric in metrics for name in COMPARISONS]
    rho = [_rho(scores, metric, *drawn) for metric in metrics]
    return CasprResult(
        config,
        result,
        len(records),
        len(made.texts),
        missing,
        scores,
        pl.DataFrame(means, schema=MEANS_SCHEMA),
        pl.DataFrame(rho, schema=RHO_SCHEMA),
    )


def _metric_names(config: RunConfig) -> list[str]:
    """The run's metrics; `ConfigError`, before anything is asked, for one of other texts."""
    required = required_columns(load_metrics(config.metrics, config.metric_files))
    for metric, columns in required.items():
        for column in columns:
            if column not in ("summary_a", "summary_b"):
                raise ConfigError(
                    f"{metric} needs the column {column}; evaluate caspr compares summary_a with "
                    "summary_b"
                )
    return list(required)


def _id(pair: TextPair) -> str:
    return f"{pair.comparison}/{pair.id}"


def _read_scores(out: Path, pairs: Sequence[TextPair], metrics: Sequence[str]) -> pl.DataFrame:
    """The run's scores with comparison and pair in place of the id, in the order of the pairs."""
    places = pl.DataFrame(
        [(_id(pair), pair.comparison, pair.id) for pair in pairs],
        schema=["id", "comparison", "pair"],
        orient="row",
    )
    scores = pl.read_parquet(out / "scores.parquet", glob=False)
    wanted = scores.filter(pl.col("metric").is_in(list(metrics)))
    joined = places.join(wanted, on="id", maintain_order="left_right")
    return joined.select("comparison", "pair", "metric", "value", "reason", "signature")


def _means(
    scores: pl.DataFrame, metric: str, comparison: str, samples: int, seed: int
) -> dict[str, object]:
    column = scores.filter(metric=metric, comparison=comparison)["value"]
    values = column.drop_nulls().to_list()
    found = mean_interval(values, samples=samples, seed=seed)._asdict() if values else {}
    mean, half_width = CASPR_MEANS.get(metric, {}).get(comparison, (None, None))
    return {
        **found,
        "metric": metric,
        "comparison": comparison,
        "n": len(values),
        "null": column.null_count(),
        "published_mean": mean,
        "published_half_width": half_width,
    }


def _rho(scores: pl.DataFrame, metric: str, samples: int, seed: int) -> dict[str, object]:
    """Spearman's rho over the pairs that both comparisons have a score of."""
    plain, paraphrased = (
        scores.filter(metric=metric, comparison=name).select("pair", "value").drop_nulls()
        for name in PARAPHRASED
    )
    both = plain.join(paraphrased, on="pair", maintain_order="left")
    row = {"metric": metric, "n": both.height, "published": CASPR_RHO.get(metric)}
    if both.height < 2:
        return {**row, "reason": "fewer than two pairs have both scores"}
    x, y = (both[name].to_numpy()[:, None] for name in ("value", "value_right"))
    found = spearman(x, y, level="pooled")
    if found.value is None:
        return {**row, "reason": "all pairs have the same score"}
    draws = correlation_draws("spearman", x, y, level="pooled", samples=samples, seed=seed)
    bounds = percentile_bounds(draws)._asdict()
    return {**row, **bounds, "spearman": found.value, "p_value": found.p_value}


# Texts


def read_annotated(source: str) -> list[AnnotatedRecord]:
    """The records of a JSONL or Parquet file.

    `InputError` names file, line and column of a record that cannot be used or has the id of
    another one; fewer than two records cannot be compared.
    """
    records: dict[str, AnnotatedRecord] = {}
    for file in find_files(source):
        for line, record in read(file):
            try:
                found = _annotated(record)
                if found.id in records:
                    raise ValueError(f"the id {found.id!r} is there twice")
            except ValueError as exc:
                raise InputError(f"{place(file, line)}: {exc}") from None
            records[found.id] = found
    if len(records) < 2:
        raise InputError(f"{source}: {len(records)} records are too few to compare; give two")
    return list(records.values())


def _annotated(record: Mapping[str, Any]) -> AnnotatedRecord:
    name = record.get("id")
    if not isinstance(name, str | int) or name == "":
        raise ValueError("id must be there, a text or an integer")
    a = _texts(record, "entity_a_summary", 2)
    b = _texts(record, "entity_b_summary", 1)
    made = {key: _text(record[key], key) for key in MADE_FROM if record.get(key) is not None}
    return AnnotatedRecord(str(name), {_A: a[0], _A_OTHER: a[1], _B: b[0], **made})


def _texts(record: Mapping[str, Any], column: str, least: int) -> Sequence[str]:
    found = record.get(column)
    if not isinstance(found, list) or len(found) < least:
        count = "two texts, one an annotator" if least == 2 else "one text"
        raise ValueError(f"{column} must be a list of at least {count}")
    return [_text(text, column) for text in found[:least]]


def _text(value: object, column: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{column} must hold texts that are not empty")
    return value


def build_pairs(
    records: Sequence[AnnotatedRecord], made: MadeTexts
) -> tuple[list[TextPair], list[MissingPair]]:
    """The pairs, comparison by comparison one a record, and those that lack a text.

    A text that the record lacks is taken from `made`, whose reasons say why one is not there.
    """
    pairs, missing = [], []
    for comparison, names in COMPARISONS.items():
        for record in records:
            a, b = (record.texts.get(n) or made.texts.get((record.id, n)) for n in names)
            if a and b:
                pairs.append(TextPair(comparison, record.id, a, b))
            else:
                reason = made.reasons[record.id, names[1] if a else names[0]]
                missing.append(MissingPair(comparison, record.id, reason))
    return pairs, missing


def make_texts(
    records: Sequence[AnnotatedRecord],
    config: RunConfig,
    paraphrase: Granularity,
    on_progress: OnProgress | None = None,
) -> MadeTexts:
    """Paraphrase and negate the summaries of the records that lack such texts.

    Two runs inside `config.out`, resumed like any other. A paraphrase is asked for each sentence
    (CASPR paper, section 3.2) or for the whole summary (appendix B). A negation is that of each
    claim of a sentence, joined again by conjunctions (section 3.2). Sentences are joined by spaces.
    """
    made = MadeTexts({}, {})
    wanted = [(record, name) for record in records for name in record.lacking]
    for folder, task, granularity in (
        (PARAPHRASES, "paraphrase", paraphrase),
        (NEGATIONS, "negate", config.granularity),
    ):
        negating = folder == NEGATIONS
        asked = [(r, name) for r, name in wanted if (name == "syn_high_contrast") == negating]
        if not asked:
            continue
        originals = {_source_id(r, name): r.texts[MADE_FROM[name]] for r, name in asked}
        rows = ({"id": name, "summary": text} for name, text in originals.items())
        task_config = dataclasses.replace(
            config,
            input=str(write_rows(config.folder / f"{folder}.jsonl", rows)),
            out=config.folder / folder,
            metrics=(),
            tasks=(task,),
            granularity=granularity,
            units="claims",
            llm=remaining_budget(config, folder),
        )
        run(task_config, on_progress=on_progress)
        _collect(task_config.folder, asked, made)
    return made


def _source_id(record: AnnotatedRecord, name: str) -> str:
    """One paraphrase of a summary serves every text that is a paraphrase of it."""
    return f"{record.id}/{'b' if name == 'paraphrase_b' else 'a'}"


def _collect(out: Path, asked: Iterable[tuple[AnnotatedRecord, str]], made: MadeTexts) -> None:
    """Add the texts that the run in `out` made, and the reasons where it did not."""
    directory = RunDirectory.reader(out)
    rows = directory.scan(out.name).filter(pl.col("sample").fill_null(0) == 0)
    if out.name == NEGATIONS:
        rows = rows.filter(level="sentence")
    texts = rows.collect().sort("sentence_index", nulls_last=False, maintain_order=True)
    text_of = dict(texts.group_by("id").agg(pl.col("text").str.join(" ")).iter_rows())
    failed = directory.scan("failures").group_by("id").agg(pl.col("message").first()).collect()
    why = dict(failed.iter_rows())
    for record, name in asked:
        key, source = (record.id, name), _source_id(record, name)
        text = text_of.get(source, "").strip()
        if source in why or not text:
            reason = why.get(source) or "the language model gave no text"
            made.reasons[key] = f"{name} could not be made: {reason.splitlines()[0]}"
        else:
            made.texts[key] = text


def remaining_budget(config: RunConfig, folder: str) -> LLMConfig:
    """The settings with the money and requests that the evaluation's other runs have left."""
    others = (name for name in (PARAPHRASES, NEGATIONS, SCORED) if name != folder)
    spent = [spent_so_far(config.folder / name / ".state" / SPEND_FILE) for name in others]
    llm = config.llm
    usd = sum((total.usd or 0.0) + total.possibly_billed_usd for total in spent)
    requests = sum(total.requests for total in spent)
    return dataclasses.replace(
        llm,
        max_cost=None if llm.max_cost is None else max(0.0, llm.max_cost - usd),
        max_requests=None if llm.max_requests is None else max(0, llm.max_requests - requests),
    )
