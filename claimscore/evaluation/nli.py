"""`claimscore evaluate nli`: how often an NLI model is right, and how honest its probabilities are.

Accuracy counts the largest of the three probabilities, also on sets that use two labels only, so
that sets and models compare. Where a set has `entailment` and one other label, two-way accuracy
counts both others as that one, as McCoy et al. 2019 score HANS (*Right for the Wrong Reasons*,
section 5, https://aclanthology.org/P19-1334/). Calibration is `claimscore.stats.calibration`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.nli_pairs import Columns, read_nli_pairs
from claimscore.pipeline.encoders import load_pair_classifier
from claimscore.pipeline.encoders.protocols import (
    NLI_LABELS,
    ModelInfo,
    PairClassifier,
    RejectedItemsError,
)
from claimscore.records.halves import in_first_half
from claimscore.stats.calibration import (
    best_temperature,
    brier_score,
    expected_calibration_error,
    negative_log_likelihood,
    with_temperature,
)
from claimscore.stats.classification import confusion_matrix, macro_f1

#: The row over all sets, where there are several.
ALL = "all"

_TEXT, _NUMBER, _COUNT = pl.String(), pl.Float64(), pl.Int64()
SETS_SCHEMA: dict[str, pl.DataType] = {
    "set": _TEXT,
    "group": _TEXT,
    "n": _COUNT,
    "accuracy": _NUMBER,
    "low": _NUMBER,
    "high": _NUMBER,
    "macro_f1": _NUMBER,
    "two_way_accuracy": _NUMBER,
    "two_way_reason": _TEXT,
    "ece": _NUMBER,
    "nll": _NUMBER,
    "brier": _NUMBER,
}
CONFUSION_SCHEMA: dict[str, pl.DataType] = {
    "set": _TEXT,
    "group": _TEXT,
    "label": _TEXT,
    **dict.fromkeys(NLI_LABELS, _COUNT),
}
TEMPERATURE_SCHEMA: dict[str, pl.DataType] = {
    "set": _TEXT,
    "fitted_on": _TEXT,
    "n_fit": _COUNT,
    "temperature": _NUMBER,
    "reason": _TEXT,
    "n": _COUNT,
    **{
        f"{measure}_{when}": _NUMBER
        for measure in ("ece", "nll", "brier")
        for when in ("before", "after")
    },
}
NO_OPTIMUM = "the likelihood has no optimum between 0.02 and 50"

_Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class NLIConfig:
    """Settings of the evaluation.

    A temperature is fitted on the file `fit_temperature`, or with `halves` (a column, and
    `half_seed`) on one half of each set, and told of the other half.
    """

    tables: tuple[str, ...]
    encoders: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    premise: str = "premise"
    hypothesis: str = "hypothesis"
    label: str = "label"
    group: str | None = None
    fit_temperature: str | None = None
    halves: str | None = None
    half_seed: int = 0
    drop_missing: bool = False

    def __post_init__(self) -> None:
        if not self.tables:
            raise ConfigError("name at least one file of labelled pairs")
        if self.fit_temperature is not None and self.halves is not None:
            raise ConfigError("--fit-temperature and --halves both fit; choose one")

    @property
    def columns(self) -> Columns:
        return Columns(self.premise, self.hypothesis, self.label, self.group, self.halves)


#: Hears how many pairs of how many the model has judged.
OnPairs = Callable[[int, int], None]


class NLIResult(NamedTuple):
    """Tables of the schemas above; fractions, `nll` in nats, confusion in rows.

    `predictions` has a row a pair: where it is from, its texts and label, what the model said.
    `temperature` is empty unless one was asked for.
    """

    model: ModelInfo
    sets: pl.DataFrame
    confusion: pl.DataFrame
    temperature: pl.DataFrame
    predictions: pl.DataFrame
    left_out: int
    truncated: int | None


def evaluate_nli(config: NLIConfig, on_pairs: OnPairs | None = None) -> NLIResult:
    """Judge every pair of the files and measure.

    `InputError` for bad files before a model is loaded, `ConfigError` for a model that cannot be
    used, and `InputError` where a pair does not fit into memory.
    """
    read = read_nli_pairs(config.tables, config.columns, drop_missing=config.drop_missing)
    tuning = None
    if config.fit_temperature is not None:
        columns = dataclasses.replace(config.columns, group=None)
        tuning = read_nli_pairs([config.fit_temperature], columns, drop_missing=config.drop_missing)
    classifier = load_pair_classifier(config.encoders)
    frames = [read.rows] if tuning is None else [read.rows, tuning.rows]
    judged = _judge(classifier, pl.concat(frames), on_pairs)
    rows, tuned = judged.head(read.rows.height), judged.tail(-read.rows.height)
    parts = list(_parts(rows))
    return NLIResult(
        classifier.info,
        pl.DataFrame([_measured(*part) for part in parts], schema=SETS_SCHEMA, orient="row"),
        pl.DataFrame(
            [row for part in parts for row in _confusion_rows(*part)],
            schema=CONFUSION_SCHEMA,
            orient="row",
        ),
        pl.DataFrame(
            list(_temperatures(rows, tuned, config)), schema=TEMPERATURE_SCHEMA, orient="row"
        ),
        rows.drop("half"),
        read.left_out,
        _n_truncated(classifier, judged),
    )


def _judge(classifier: PairClassifier, rows: pl.DataFrame, tell: OnPairs | None) -> pl.DataFrame:
    """The rows with the prediction and three probabilities, float64 rows that sum to 1."""
    pairs = list(zip(rows["premise"], rows["hypothesis"], strict=True))

    def on_batch(done: int) -> None:
        if tell is not None:
            tell(done, len(pairs))

    try:
        found = classifier.classify(pairs, on_batch=on_batch).astype(np.float64)
    except RejectedItemsError as exc:
        first = rows.row(exc.indices[0], named=True)
        where = f"{first['set']}, row or line {first['line']}"
        raise InputError(f"{where}: {exc} ({len(exc.indices)} pairs in all)") from exc
    found /= found.sum(axis=1, keepdims=True)
    predicted = [NLI_LABELS[place] for place in found.argmax(axis=1)]
    return rows.with_columns(
        pl.Series("predicted", predicted, dtype=pl.String),
        *(pl.Series(name, found[:, place]) for place, name in enumerate(NLI_LABELS)),
    )


def _n_truncated(classifier: PairClassifier, rows: pl.DataFrame) -> int | None:
    """How many pairs the model read in part only; None where it does not tell."""
    tell = getattr(classifier, "truncates", None)
    pairs = list(zip(rows["premise"], rows["hypothesis"], strict=True))
    return None if tell is None else int(tell(pairs).sum())


def _sets(rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    names = rows["set"].unique(maintain_order=True).to_list()
    for name in names:
        yield name, rows.filter(pl.col("set") == name)
    if len(names) > 1:
        yield ALL, rows


def _parts(rows: pl.DataFrame) -> Iterator[tuple[str, str | None, pl.DataFrame]]:
    """Each set whole, then its groups; at last all sets together."""
    for name, frame in _sets(rows):
        yield name, None, frame
        if name != ALL:
            for group in frame["group"].drop_nulls().unique().sort():
                yield name, group, frame.filter(pl.col("group") == group)


def _arrays(rows: pl.DataFrame) -> tuple[_Floats, NDArray[np.int64]]:
    codes = {name: place for place, name in enumerate(NLI_LABELS)}
    labels = np.array([codes[name] for name in rows["label"]], dtype=np.int64)
    return rows.select(NLI_LABELS).to_numpy(), labels


def _counts(rows: pl.DataFrame) -> NDArray[np.int64]:
    probabilities, labels = _arrays(rows)
    return confusion_matrix(labels, probabilities.argmax(axis=1), len(NLI_LABELS))


def _measured(name: str, group: str | None, rows: pl.DataFrame) -> tuple[object, ...]:
    probabilities, labels = _arrays(rows)
    counts = _counts(rows)
    right = int(np.diag(counts).sum())
    return (
        name,
        group,
        rows.height,
        right / rows.height,
        *stats.binomtest(right, rows.height).proportion_ci(method="wilson"),
        macro_f1(counts),
        *two_way_accuracy(counts),
        expected_calibration_error(probabilities, labels),
        negative_log_likelihood(probabilities, labels),
        brier_score(probabilities, labels),
    )


def two_way_accuracy(confusion: NDArray[np.int64]) -> tuple[float | None, str | None]:
    """Entailment against the one other label of a set, or None and why.

    `confusion` is ``[3, 3]`` in the order of `NLI_LABELS`; what was called by the third name
    counts as the other label.
    """
    used = [name for name, n in zip(NLI_LABELS, confusion.sum(axis=1), strict=True) if n]
    if len(used) != 2 or NLI_LABELS[0] not in used:
        return None, f"its labels are {', '.join(used)}"
    others = confusion[1:, 1:].sum()
    return float((confusion[0, 0] + others) / confusion.sum()), None


def _confusion_rows(
    name: str, group: str | None, rows: pl.DataFrame
) -> Iterator[tuple[object, ...]]:
    for label, counts in zip(NLI_LABELS, _counts(rows).tolist(), strict=True):
        if any(counts):
            yield name, group, label, *counts


def _temperatures(
    rows: pl.DataFrame, tuned: pl.DataFrame, config: NLIConfig
) -> Iterator[tuple[object, ...]]:
    """A row a set: fitted on the file or on the set's first half, measured on the rest."""
    if config.fit_temperature is None and config.halves is None:
        return
    for name, frame in _sets(rows):
        fitted_on, fit, test = Path(config.fit_temperature or "").stem, tuned, frame
        if config.halves is not None:
            first = pl.Series(
                [in_first_half(cast(str, half), config.half_seed) for half in frame["half"]],
                dtype=pl.Boolean,
            )
            fitted_on, fit, test = "first half", frame.filter(first), frame.filter(~first)
        yield name, fitted_on, fit.height, *_temperature(fit, test)


def _temperature(fit: pl.DataFrame, test: pl.DataFrame) -> tuple[object, ...]:
    none = (None,) * 6
    if not fit.height or not test.height:
        return None, "one half has no rows", test.height, *none
    temperature = best_temperature(*_arrays(fit))
    if temperature is None:
        return None, NO_OPTIMUM, test.height, *none
    probabilities, labels = _arrays(test)
    scaled = with_temperature(probabilities, temperature)
    measures = (expected_calibration_error, negative_log_likelihood, brier_score)
    values = [m(given, labels) for m in measures for given in (probabilities, scaled)]
    return temperature, None, test.height, *values
