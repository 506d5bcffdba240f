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
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.config import NLI_OPTIONS, EncoderConfig
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.inputs import ID, read_table
from claimscore.evaluation.result import (
    EvaluationResult,
    OnCount,
    Row,
    Section,
    interval_columns,
    percent,
    percent_cell,
    percent_mark,
    silent,
    with_interval,
)
from claimscore.functions import verify
from claimscore.metrics.rouge import by_rouge_score
from claimscore.option import argument, check_least, nested, option
from claimscore.records.columns import in_first_half
from claimscore.stats.agreement import (
    best_threshold,
    checked_labels,
    weighted_accuracy,
    weighted_auc,
)
from claimscore.stats.bootstrap import Array, WeightedMeasure, ratio, resamples
from claimscore.text import content_words

#: What the score of a verifier is called.
_SCORE = "verifier {}"

#: Rows that a verifier judges between two words to `OnCount`.
ROWS_AT_ONCE = 128

#: Measure -> what people call it.
MEASURES = {
    "auc": "ROC-AUC",
    "balanced_accuracy": "balanced accuracy",
    "ordered": "twins in the right order",
}

SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("kind", "score"), pl.String()),
    **dict.fromkeys(("n", "n_documents", "n_twins"), pl.Int64()),
    "positives": pl.Float64(),
    **interval_columns(*MEASURES),
}


@dataclasses.dataclass(frozen=True, slots=True)
class SupportConfig:
    """The labelled table, and what is measured.

    Its columns are `source` or `sources`, `summary`, and `label` (1: supported); also `case` (the
    document, which is resampled), `kind` (of error) and `twin` (the id of the supported row that a
    row was made from), if any.
    """

    table: str = argument(help="Labelled records: a run directory, or a table that has the scores.")
    scores: tuple[str, ...] = option(
        (), panel="Essential", help="Metrics of the run, or columns with scores."
    )
    verifiers: tuple[str, ...] = option(
        (),
        name="verifier",
        metavar="MODEL,...",
        panel="Essential",
        help="Verifiers that judge each summary as one claim.",
    )
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


def evaluate_support(config: SupportConfig, on_rows: OnCount | None = None) -> EvaluationResult:
    """Read the table and evaluate every score and both baselines.

    The table `support` of the result has a row (`SCHEMA`) a score, as a whole (kind is null) and by
    kind. `on_rows` hears how many of how many rows a verifier has judged. `InputError` where a
    column is missing, a label is neither 0 nor 1, a half of the documents lacks a label, or a score
    is missing (unless `drop_missing`). `ConfigError` where a verifier cannot be used.
    """
    frame, pairs = _read(config)
    if config.verifiers:  # what cannot be measured is refused before they work
        zeros = (pl.lit(0.0).alias(score) for score in config.all_scores)
        once = dataclasses.replace(config, samples=1)
        list(_rows(frame.drop_nulls(config.scores).with_columns(zeros), once))
    for verifier in config.verifiers:
        frame = frame.with_columns(_judged(verifier, pairs, config, on_rows or silent))
    missing = max(config.all_scores, key=lambda score: frame[score].null_count())
    if frame[missing].null_count() and not config.drop_missing:
        raise InputError(
            f"{config.table}: {frame[missing].null_count()} rows have no {missing}; --drop-missing "
            "leaves such rows out"
        )
    complete = frame.drop_nulls(config.all_scores)
    support = pl.DataFrame(list(_rows(complete, config)), schema=SCHEMA)
    left_out = frame.height - complete.height
    return EvaluationResult(
        name="support",
        title="Is a claim supported?",
        config=config,
        tables={"support": support},
        facts={"left_out": left_out},
        sections=list(_sections(support, left_out, config.samples)),
    )


def _judged(
    verifier: str, pairs: Sequence[tuple[str, str]], config: SupportConfig, on_rows: OnCount
) -> pl.Series:
    """The probability of support of each summary by its source; null where there is none."""
    if not pairs:
        raise InputError(f"{config.table}: --verifier needs the columns source and summary")
    named = dataclasses.replace(config.encoders, verifier=verifier).role_of("verifier") != "nli"
    names = (*NLI_OPTIONS, *(("verifier_labels",) if named else ()))
    options = {name: getattr(config.encoders, name) for name in names}
    values = list[float | None]()
    for start in range(0, len(pairs), ROWS_AT_ONCE):
        judged = verify(pairs[start : start + ROWS_AT_ONCE], verifier, **options)
        values += judged["probability"].to_list()
        on_rows(len(values), len(pairs))
    return pl.Series(_SCORE.format(verifier), values, dtype=pl.Float64)


def _overlap(text: str, claim: str) -> float:
    """The share of the claim's content words that the text has; 0 for a claim without any."""
    words, known = content_words(claim), content_words(text)
    return sum(n for word, n in words.items() if word in known) / max(1, words.total())


def _rouge_1(text: str, claim: str) -> float:
    return by_rouge_score("rouge-1", claim, text).precision or 0.0


#: Baselines from the texts alone: name -> the value of a text and a claim or summary.
BASELINES = {"word overlap": _overlap, "ROUGE-1 precision": _rouge_1}


def _read(config: SupportConfig) -> tuple[pl.DataFrame, list[tuple[str, str]]]:
    """Id, label, case, kinds, twin and every score of each row, also where some lack; source and
    summary of each row, none where the table has no such columns."""
    columns = (ID, "label", "case", "kind", "twin", "source", "sources", "summary")
    table = read_table(config.table, [*columns, *config.scores])
    labels = table.labels("label")
    rows = pl.Series([str(n) for n in range(table.frame.height)], dtype=pl.String)
    ids = table.texts(ID) if table.has(ID) else rows
    twins = table.frame["twin"] if table.has("twin") else rows.clear(rows.len())
    kinds = table.frame["kind"] if table.has("kind") else [None] * rows.len()
    source = next((name for name in ("source", "sources") if table.has(name)), "")
    has_texts = source and table.has("summary")
    pairs = list(zip(table.texts(source), table.texts("summary"), strict=True)) if has_texts else []
    frame = pl.DataFrame(
        [
            ids.alias("id"),
            (labels == 1).alias("label"),
            (table.texts("case") if table.has("case") else ids).alias("case"),
            pl.Series("kind", list(map(_kinds_in, kinds)), dtype=pl.List(pl.String)),
            twins.cast(pl.String).alias("twin"),
            *(
                pl.Series(name, [value(*pair) for pair in pairs], dtype=pl.Float64)
                for name, value in BASELINES.items()
                if pairs
            ),
            *(table.numbers(name).alias(name) for name in config.scores),
        ]
    )
    return frame, pairs


def _kinds_in(value: object) -> list[str]:
    """One kind, or a list of them, which records keep as JSON."""
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    kinds = value if isinstance(value, list) else [value]
    return [str(kind) for kind in kinds if kind not in (None, "")]


def _rows(frame: pl.DataFrame, config: SupportConfig) -> Iterator[dict[str, object]]:
    scores = [name for name in BASELINES if name in frame.columns] + list(config.all_scores)
    halves = np.array([in_first_half(case, 0) for case in frame["case"]])
    kinds = frame["kind"].explode().drop_nulls().unique().sort().to_list()
    for kind in (None, *kinds):
        mask = np.ones_like(halves) if kind is None else _of_kind(frame, kind)
        for score in scores:
            try:
                measured = _measured(frame, score, mask, None if kind else halves, config)
            except ValueError as exc:
                of_kind = f" of kind {kind}" if kind else ""
                raise InputError(f"{config.table}: {score}{of_kind}: {exc}") from exc
            yield {"kind": kind, "score": score, **measured}


def _of_kind(frame: pl.DataFrame, kind: str) -> NDArray[np.bool_]:
    """The rows of a kind; with all supported rows where its own have one label only."""
    rows = frame["kind"].list.contains(kind).fill_null(False)
    if frame.filter(rows)["label"].n_unique() == 1:
        rows = rows | frame["label"]
    return rows.to_numpy()


def _measured(
    frame: pl.DataFrame,
    score: str,
    mask: NDArray[np.bool_],
    halves: NDArray[np.bool_] | None,
    config: SupportConfig,
) -> dict[str, object]:
    """Counts and measures of some rows; balanced accuracy where there are halves."""
    rows, values = frame.filter(mask), frame[score].to_numpy()
    chosen, positive = checked_labels(values[mask], rows["label"].cast(pl.Int8))
    measures: dict[str, WeightedMeasure] = {"auc": weighted_auc(chosen, positive)}
    if halves is not None:
        predicted = _predicted(chosen, positive, halves)
        measures["balanced_accuracy"] = weighted_accuracy(predicted, positive)
    ordered = _ordered(frame, values, mask)
    known = ~np.isnan(ordered)
    if known.any():
        measures["ordered"] = lambda weights: ratio(
            weights[:, known] @ ordered[known], weights[:, known].sum(1)
        )
    cases, codes = np.unique(rows["case"].to_numpy(), return_inverse=True)
    row: dict[str, object] = {
        "n": rows.height,
        "n_documents": len(cases),
        "n_twins": int(known.sum()),
        "positives": float(positive.mean()),
    }
    blocks = [
        [measure(weights[:, codes]) for measure in measures.values()]
        for weights in resamples(len(cases), config.samples, config.seed)
    ]
    for (name, measure), draws in zip(measures.items(), np.concatenate(blocks, 1), strict=True):
        row |= with_interval(name, float(measure(np.ones((1, rows.height)))[0]), draws)
    return row


def _predicted(
    values: Array, positive: NDArray[np.bool_], halves: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Whether a row is judged supported, by the threshold that is best on the other half."""
    predicted = np.zeros(len(values), dtype=bool)
    for half in (halves, ~halves):
        if not (positive[half].any() and (~positive[half]).any()):
            raise ValueError(
                "a half of the documents has rows of one label only; it takes more documents"
            )
        threshold = best_threshold(values[half], positive[half])
        predicted[~half] = values[~half] > threshold
    return predicted


def _ordered(frame: pl.DataFrame, values: Array, mask: NDArray[np.bool_]) -> Array:
    """Of each row of the mask 1 where its twin scores higher, .5 for a tie, NaN without a twin."""
    place = {name: at for at, name in enumerate(frame["id"])}
    ordered = np.full(frame.height, np.nan)
    for at, (twin, label) in enumerate(zip(frame["twin"], frame["label"], strict=True)):
        other = place.get(twin) if twin is not None and not label else None
        if other is not None:
            ordered[at] = (np.sign(values[other] - values[at]) + 1) / 2
    return ordered[mask]


def _sections(rows: pl.DataFrame, left_out: int, samples: int) -> Iterator[Section]:
    """All rows, then the kinds of errors."""
    yield _whole(rows.filter(pl.col("kind").is_null()).rows(named=True), left_out, samples)
    by_kind = rows.filter(pl.col("kind").is_not_null())
    if by_kind.height:
        yield _kinds(by_kind.rows(named=True))


def _whole(rows: Sequence[Row], left_out: int, samples: int) -> Section:
    first = rows[0]
    shown = [name for name in MEASURES if first[name] is not None]
    notes = [
        f"{first['n']:,} rows, {percent(first['positives'])} % supported; 95 % bootstrap "
        f"intervals over {first['n_documents']:,} documents ({samples:,} samples)",
        "balanced accuracy: each half of the documents by the best threshold of the other",
    ]
    if first["n_twins"]:
        notes.append(f"{first['n_twins']:,} rows have a twin; ties count one half")
    if left_out:
        notes.append(f"{left_out:,} rows left out for missing scores")
    return Section(
        "All rows",
        ("score", *(f"{MEASURES[name]}, %" for name in shown)),
        [(row["score"], *(percent_cell(row, name) for name in shown)) for row in rows],
        tuple(notes),
        {"ROC-AUC, %": [percent_mark(row["score"], row, "auc") for row in rows]},
        line=50.0,
    )


def _kinds(rows: Sequence[Row]) -> Section:
    """By kind of error: the order of twins where there are any, else the AUC."""
    measure = "ordered" if any(row["n_twins"] for row in rows) else "auc"
    scores = list(dict.fromkeys(row["score"] for row in rows))
    cells: dict[str, list[str]] = {}
    for row in rows:
        cells.setdefault(row["kind"], [f"{row['n']:,}"]).append(percent_cell(row, measure))
    return Section(
        f"{MEASURES[measure]} by kind of error",
        ("kind", "n", *(f"{score}, %" for score in scores)),
        [(kind, *values) for kind, values in cells.items()],
        ("a kind whose rows have one label is compared with all supported rows",),
    )
