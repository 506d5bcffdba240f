"""`claimscore evaluate support`: scores as judges of whether a text supports another.

A row is a text with a claim or a summary, and whether people find it supported. ROC-AUC needs no
threshold; for balanced accuracy the documents are halved, and each half is judged by the threshold
that is best on the other one. Where a row names its twin, a supported text from which it was made
by one error, the share of twins in the right order counts, ties one half. Intervals resample
documents, because rows of one document are not independent.

Word overlap and ROUGE-1 precision of the same texts stand beside the scores. A verifier that is
named judges every row itself, its summary as one claim.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.config import NLI_OPTIONS, EncoderConfig, check_least
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.published import support_figures
from claimscore.evaluation.ratings_table import ID, RatedTable, complete, read_table
from claimscore.evaluation.result import (
    EvaluationResult,
    OnPairs,
    Row,
    Section,
    interval_columns,
    percent,
    percent_cell,
    percent_mark,
    with_interval,
)
from claimscore.metrics.base import PassRequirement
from claimscore.metrics.rouge import by_rouge_score
from claimscore.metrics.support import MODEL
from claimscore.option import argument, nested, option
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.results import open_store
from claimscore.pipeline.passes import PassInput
from claimscore.pipeline.passes.support import SUPPORT_PASS
from claimscore.records.columns import in_first_half
from claimscore.stats.bootstrap import ratio, resamples
from claimscore.stats.classification import (
    balanced_accuracy,
    best_threshold,
    checked_labels,
    roc_auc,
    weighted_accuracy,
    weighted_auc,
)
from claimscore.tables import CLAIMS
from claimscore.text import content_words

logger = logging.getLogger("claimscore")

#: What the score of a verifier is called.
_SCORE = "verifier {}"

#: Rows that a verifier judges between two words to `OnPairs`.
ROWS_AT_ONCE = 128

#: Measure -> what people call it.
MEASURES = {
    "auc": "ROC-AUC",
    "balanced_accuracy": "balanced accuracy",
    "ordered": "twins in the right order",
}

SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("dataset", "kind", "score"), pl.String()),
    **dict.fromkeys(("n", "n_documents", "n_twins"), pl.Int64()),
    "positives": pl.Float64(),
    **interval_columns(*MEASURES),
}

Values = NDArray[np.float64]
Measure = Callable[[Values], Values]


@dataclasses.dataclass(frozen=True, slots=True)
class SupportConfig:
    """The labelled tables, each a data set, and the names of their columns."""

    tables: tuple[str, ...] = argument(
        help="Labelled records: run directories, or tables that have the scores."
    )
    scores: tuple[str, ...] = option(
        (), panel="Essential", help="Metrics of the runs, or columns with scores."
    )
    verifiers: tuple[str, ...] = option(
        (),
        name="verifier",
        metavar="MODEL,...",
        panel="Essential",
        help="Verifiers that judge each summary as one claim.",
    )
    label: str = option(
        "label", metavar="COLUMN", panel="Data", help="Column of the labels; 1 is supported."
    )
    case: str = option(
        "case",
        metavar="COLUMN",
        panel="Data",
        help="Column of the documents, which are resampled; else each record is one.",
    )
    kind: str = option(
        "kind", metavar="COLUMN", panel="Data", help="Column of the kinds of errors, if any."
    )
    twin: str = option(
        "twin",
        metavar="COLUMN",
        panel="Data",
        help="Column with the id of the supported row that a row was made from.",
    )
    split_seed: int = option(0, panel="Data", help="Seed of the halves of the documents.")
    drop_missing: bool = option(
        False, panel="Data", help="Leave out rows with a missing score, and count them."
    )
    samples: int = option(1000, help="Number of bootstrap samples.")
    seed: int = option(0, help="Seed of the bootstrap.")
    encoders: EncoderConfig = nested(EncoderConfig, only=(*NLI_OPTIONS, "verifier_labels"))

    def __post_init__(self) -> None:
        if not self.all_scores:
            raise ConfigError("name at least one column of --scores, or a --verifier")
        if "llm" in self.verifiers:
            raise ConfigError("--verifier llm asks in a run; evaluate the run's scores by --scores")
        check_least(self, samples=1, seed=0)

    @property
    def all_scores(self) -> tuple[str, ...]:
        """The scores, and those of the verifiers."""
        return (*self.scores, *map(_SCORE.format, self.verifiers))


@dataclasses.dataclass(frozen=True)
class SupportResult(EvaluationResult):
    """Rows of `SCHEMA`: every data set and score, as a whole (kind is null) and by kind."""

    name = "support"
    title = "Is a claim supported?"

    config: SupportConfig
    rows: pl.DataFrame
    left_out: int

    def tables(self) -> dict[str, pl.DataFrame]:
        return {"rows": self.rows}

    def files(self) -> dict[str, pl.DataFrame]:
        return {"support": self.rows}

    def facts(self) -> dict[str, Any]:
        return {"left_out": self.left_out}

    @property
    def datasets(self) -> list[str]:
        names: list[str] = self.rows["dataset"].unique(maintain_order=True).to_list()
        return names

    def sections(self) -> Sequence[Section]:
        """For each data set its scores, published rows beneath; then its kinds of errors."""
        found = []
        for dataset in self.datasets:
            rows = self.rows.filter(dataset=dataset)
            whole = rows.filter(pl.col("kind").is_null()).rows(named=True)
            found.append(self._whole(dataset, whole))
            by_kind = rows.filter(pl.col("kind").is_not_null())
            if by_kind.height:
                found.append(_kinds(dataset, by_kind.rows(named=True)))
        return found

    def _whole(self, dataset: str, rows: Sequence[Row]) -> Section:
        first = rows[0]
        shown = [name for name in MEASURES if first[name] is not None]
        cells = [(row["score"], *(percent_cell(row, name) for name in shown)) for row in rows]
        source, published = support_figures(dataset)
        cells += [
            (f"{name}, published", *(percent(figures.get(measure)) for measure in shown))
            for name, figures in published.items()
        ]
        notes = [
            f"{first['n']:,} rows, {percent(first['positives'])} % supported; 95 % bootstrap "
            f"intervals over {first['n_documents']:,} documents ({self.config.samples:,} samples)",
            "balanced accuracy: each half of the documents by the best threshold of the other",
        ]
        if first["n_twins"]:
            notes.append(f"{first['n_twins']:,} rows have a twin; ties count one half")
        if self.left_out:
            notes.append(f"{self.left_out:,} rows of all tables left out for missing scores")
        if published:
            notes.append(f"published: {source}; other rows and models, so not strictly comparable")
        header = ("score", *(f"{MEASURES[name]}, %" for name in shown))
        charts = {"ROC-AUC, %": [percent_mark(row["score"], row, "auc") for row in rows]}
        return Section(dataset, header, cells, tuple(notes), charts, line=50.0)


def _kinds(dataset: str, rows: Sequence[Row]) -> Section:
    """By kind of error: the order of twins where there are any, else the AUC."""
    measure = "ordered" if any(row["n_twins"] for row in rows) else "auc"
    scores = list(dict.fromkeys(row["score"] for row in rows))
    cells: dict[str, list[str]] = {}
    for row in rows:
        cells.setdefault(row["kind"], [f"{row['n']:,}"]).append(percent_cell(row, measure))
    return Section(
        f"{dataset}: {MEASURES[measure]} by kind",
        ("kind", "n", *(f"{score}, %" for score in scores)),
        [(kind, *values) for kind, values in cells.items()],
        ("a kind whose rows have one label is compared with all supported rows",),
    )


class _Dataset(NamedTuple):
    """The rows of one table: id, label, case, kinds, twin and every score; their `pairs` of source
    and summary, none where the table has no texts."""

    name: str
    frame: pl.DataFrame
    pairs: list[tuple[str, str]]


def evaluate_support(config: SupportConfig, on_rows: OnPairs | None = None) -> SupportResult:
    """Read the tables and evaluate every score and both baselines on each.

    `InputError` where a column is missing, a label is neither 0 nor 1, a half of the documents
    lacks a label, or a score is missing (unless `drop_missing`). `ConfigError` where a verifier
    cannot be used.
    """
    datasets = dict[str, _Dataset]()
    for path in config.tables:
        dataset = _read(path, config)
        name = path if dataset.name in datasets else dataset.name
        datasets[name] = dataset._replace(name=name)
    for verifier in config.verifiers:
        score = _SCORE.format(verifier)
        model = _load(dataclasses.replace(config.encoders, verifier=verifier))
        for name, dataset in datasets.items():
            values = pl.Series(score, _judged(model, dataset.pairs, on_rows), dtype=pl.Float64)
            datasets[name] = dataset._replace(frame=dataset.frame.with_columns(values))
    rows, left_out = list[dict[str, object]](), 0
    for dataset in datasets.values():
        of = f"{dataset.name}: "
        kept = complete(dataset.frame, config.all_scores, drop=config.drop_missing, of=of)
        left_out += dataset.frame.height - kept.height
        rows += _rows(dataset.name, kept, config)
    return SupportResult(config, pl.DataFrame(rows, schema=SCHEMA), left_out)


def _load(config: EncoderConfig) -> Any:
    """The model of a verifier, with its stored results."""
    store = open_store(None, on_notice=logger.warning)
    return store.around(load_model(config.role_of("verifier"), config))


def _judged(
    model: Any, pairs: Sequence[tuple[str, str]], on_rows: OnPairs | None
) -> list[float | None]:
    """The probability of support of each summary by its source, read as `faithfulness` does; none
    where the model refused a text."""
    need = PassRequirement("support", (f"source.{MODEL}", "summary"))
    found = list[float | None]()
    for start in range(0, len(pairs), ROWS_AT_ONCE):
        block = pairs[start : start + ROWS_AT_ONCE]
        records = pl.DataFrame(
            {"id": list(map(str, range(len(block)))), "source": [source for source, _ in block]}
        )
        summaries = enumerate(summary for _, summary in block)
        claims = CLAIMS.frame(
            [{"id": str(n), "side": "summary", "text": text} for n, text in summaries]
        )
        tables = {CLAIMS.name: claims}
        given = PassInput(model, need, records, tables.__getitem__, frozenset(), _unheard)
        rows = SUPPORT_PASS.compute(given).rows["support"]
        by_id = dict(rows.select("id", "probability").iter_rows())
        found += [by_id.get(str(n)) for n in range(len(block))]
        if on_rows is not None:
            on_rows(len(found), len(pairs))
    return found


def _unheard(_items: int) -> Callable[[int], None]:
    return lambda done: None


def _overlap(text: str, claim: str) -> float:
    """The share of the claim's content words that the text has; 0 for a claim without any."""
    words, known = content_words(claim), content_words(text)
    return sum(n for word, n in words.items() if word in known) / max(1, words.total())


def _rouge_1(text: str, claim: str) -> float:
    return by_rouge_score("rouge-1", claim, text).precision or 0.0


#: Baselines from the texts alone: name -> the value of a text and a claim or summary.
BASELINES = {"word overlap": _overlap, "ROUGE-1 precision": _rouge_1}


def _read(path: str, config: SupportConfig) -> _Dataset:
    """The rows of a table with its own scores, also those that lack some."""
    optional = (config.kind, config.twin)
    texts = ("source", "sources", "summary")
    table = read_table(path, [ID, *config.scores, config.label, config.case, *optional, *texts])
    labels = table.labels(config.label)
    rows = pl.Series([str(n) for n in range(table.frame.height)], dtype=pl.String)
    ids = table.texts(ID) if table.has(ID) else rows
    pairs = _pairs(table)
    if config.verifiers and not pairs:
        raise InputError(f"{table.name}: --verifier needs the columns source and summary")
    frame = pl.DataFrame(
        [
            ids.alias("id"),
            (labels == 1).alias("label"),
            (table.texts(config.case) if table.has(config.case) else ids).alias("case"),
            _kinds_of(table, config.kind),
            (table.frame[config.twin] if table.has(config.twin) else rows.clear(rows.len()))
            .cast(pl.String)
            .alias("twin"),
            *_baselines(pairs),
            *(table.numbers(name).alias(name) for name in config.scores),
        ]
    )
    return _Dataset(Path(path.rstrip("/")).stem, frame, pairs)


def _kinds_of(table: RatedTable, name: str) -> pl.Series:
    """The kinds of each row: one text, or a list, which records keep as JSON."""
    given = table.frame[name].to_list() if table.has(name) else [None] * table.frame.height
    return pl.Series("kind", list(map(_kinds_in, given)), dtype=pl.List(pl.String))


def _kinds_in(value: object) -> list[str]:
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    found = value if isinstance(value, list) else [value]
    return [str(kind) for kind in found if kind not in (None, "")]


def _pairs(table: RatedTable) -> list[tuple[str, str]]:
    """Source and summary of each row; nothing where the table has no such columns."""
    source = next((name for name in ("source", "sources") if table.has(name)), None)
    if source is None or not table.has("summary"):
        return []
    return list(zip(table.texts(source), table.texts("summary"), strict=True))


def _baselines(pairs: Sequence[tuple[str, str]]) -> Iterator[pl.Series]:
    """Both baselines, where there are texts."""
    for name, value in BASELINES.items() if pairs else ():
        yield pl.Series(name, [value(text, claim) for text, claim in pairs], dtype=pl.Float64)


def _rows(name: str, frame: pl.DataFrame, config: SupportConfig) -> Iterator[dict[str, object]]:
    scores = [one for one in BASELINES if one in frame.columns] + list(config.all_scores)
    halves = np.array([in_first_half(case, config.split_seed) for case in frame["case"]])
    kinds = frame["kind"].explode().drop_nulls().unique(maintain_order=True).sort().to_list()
    masks: dict[str | None, NDArray[np.bool_]] = {None: np.ones(frame.height, dtype=bool)}
    for kind in kinds:
        masks[kind] = _of_kind(frame, kind)
    for kind, mask in masks.items():
        for score in scores:
            values = frame[score].to_numpy()
            try:
                yield {
                    "dataset": name,
                    "kind": kind,
                    "score": score,
                    **_measured(frame, values, mask, halves if kind is None else None, config),
                }
            except ValueError as exc:
                raise InputError(f"{name}: {score}: {exc}") from exc


def _of_kind(frame: pl.DataFrame, kind: str) -> NDArray[np.bool_]:
    """The rows of a kind; with all supported rows where its own have one label only."""
    own = frame["kind"].list.contains(kind).fill_null(False)
    if frame.filter(own)["label"].n_unique() == 1:
        own = own | frame["label"]
    return own.to_numpy()


def _measured(
    frame: pl.DataFrame,
    values: Values,
    mask: NDArray[np.bool_],
    halves: NDArray[np.bool_] | None,
    config: SupportConfig,
) -> dict[str, object]:
    """Counts and measures of some rows; balanced accuracy where there are halves."""
    rows = frame.filter(mask)
    own, positive = checked_labels(values[mask], rows["label"].cast(pl.Int8))
    measures: dict[str, tuple[float, Measure]] = {
        "auc": (roc_auc(own, positive), weighted_auc(own, positive))
    }
    if halves is not None:
        predicted = _predicted(own, positive, halves)
        measures["balanced_accuracy"] = (
            balanced_accuracy(predicted.astype(float), positive, 0.5),
            weighted_accuracy(predicted, positive),
        )
    ordered = _ordered(frame, values, mask)
    n_twins = int((~np.isnan(ordered)).sum())
    if n_twins:
        known = ~np.isnan(ordered)
        measures["ordered"] = (
            float(ordered[known].mean()),
            lambda weights: ratio(weights[:, known] @ ordered[known], weights[:, known].sum(1)),
        )
    cases, codes = np.unique(rows["case"].to_numpy(), return_inverse=True)
    draws: dict[str, list[Values]] = {name: [] for name in measures}
    for weights in resamples(len(cases), config.samples, config.seed):
        for name, (_, measure) in measures.items():
            draws[name].append(measure(weights[:, codes]))
    found: dict[str, object] = {
        "n": rows.height,
        "n_documents": len(cases),
        "n_twins": n_twins,
        "positives": float(positive.mean()),
    }
    for name, (value, _) in measures.items():
        found |= with_interval(name, value, np.concatenate(draws[name]))
    return found


def _predicted(
    values: Values, positive: NDArray[np.bool_], halves: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Whether a row is judged supported, by the threshold that is best on the other half."""
    predicted = np.zeros(len(values), dtype=bool)
    for half in (halves, ~halves):
        if not (positive[half].any() and (~positive[half]).any()):
            raise ValueError(
                "a half of the documents has rows of one label only; try another --split-seed, or "
                "more documents"
            )
        threshold = best_threshold(values[half], positive[half])
        predicted[~half] = values[~half] > threshold
    return predicted


def _ordered(frame: pl.DataFrame, values: Values, mask: NDArray[np.bool_]) -> Values:
    """Of each row of the mask 1 where its twin scores higher, .5 for a tie, NaN without a twin."""
    place = {name: at for at, name in enumerate(frame["id"])}
    found = np.full(frame.height, np.nan)
    for at, (twin, label) in enumerate(zip(frame["twin"], frame["label"], strict=True)):
        other = place.get(twin) if twin is not None and not label else None
        if other is not None:
            found[at] = (np.sign(values[other] - values[at]) + 1) / 2
    return found[mask]
