"""`claimscore evaluate nli`: how often an NLI model is right, and how honest its probabilities are.

Accuracy counts the largest of the three probabilities, also on sets that use two labels only, so
that sets and models compare. Where a set has `entailment` and one other label, two-way accuracy
counts both others as that one, as McCoy et al. 2019 score HANS (*Right for the Wrong Reasons*,
section 5, https://aclanthology.org/P19-1334/). Calibration is `claimscore.stats.calibration`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from claimscore.config import NLI_OPTIONS, EncoderConfig
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.result import EvaluationResult, OnPairs, Row, Section, fixed, percent
from claimscore.option import argument, nested, option
from claimscore.pipeline.encoders import load_pair_classifier
from claimscore.pipeline.encoders.protocols import (
    LABEL_NAMES,
    NLI_LABELS,
    ModelInfo,
    PairClassifier,
    RejectedItemsError,
)
from claimscore.records.columns import in_first_half, kind
from claimscore.records.files import InputFile, find_files
from claimscore.records.readers import Record, place, read
from claimscore.stats.calibration import (
    ECE_BINS,
    best_temperature,
    brier_score,
    expected_calibration_error,
    negative_log_likelihood,
    with_temperature,
)
from claimscore.stats.classification import confusion_matrix, macro_f1

#: The row over all sets, where there are several.
ALL = "all"

#: How SNLI writes that its annotators did not agree.
NO_LABEL = ("", "-")

NO_OPTIMUM = "the likelihood has no optimum between 0.02 and 50"

_TEXT, _NUMBER, _COUNT = pl.String(), pl.Float64(), pl.Int64()
PAIRS_SCHEMA: dict[str, pl.DataType] = {
    "set": _TEXT,
    "line": _COUNT,
    **dict.fromkeys(("premise", "hypothesis", "label", "group", "half"), _TEXT),
}
SETS_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("set", "group"), _TEXT),
    "n": _COUNT,
    **dict.fromkeys(("accuracy", "low", "high", "macro_f1", "two_way_accuracy"), _NUMBER),
    "two_way_reason": _TEXT,
    **dict.fromkeys(("ece", "nll", "brier"), _NUMBER),
}
CONFUSION_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("set", "group", "label"), _TEXT),
    **dict.fromkeys(NLI_LABELS, _COUNT),
}
_MEASURES = {
    "ece": expected_calibration_error,
    "nll": negative_log_likelihood,
    "brier": brier_score,
}
TEMPERATURE_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("set", "fitted_on"), _TEXT),
    "n_fit": _COUNT,
    "temperature": _NUMBER,
    "reason": _TEXT,
    "n": _COUNT,
    **{f"{measure}_{when}": _NUMBER for measure in _MEASURES for when in ("before", "after")},
}


@dataclasses.dataclass(frozen=True, slots=True)
class NLIConfig:
    """Settings of the evaluation; `premise`, `hypothesis`, `label` and `group` name columns.

    A temperature is fitted on the file `fit_temperature`, or on one half of each set and measured
    on the other; `split_by` is the column whose values are drawn into halves with `split_seed`.
    """

    tables: tuple[str, ...] = argument(
        help="Labelled pairs, each table a set: JSONL, CSV or Parquet."
    )
    encoders: EncoderConfig = nested(EncoderConfig, only=NLI_OPTIONS)
    premise: str = option("premise", metavar="COLUMN", panel="Data", help="Column of the premises.")
    hypothesis: str = option(
        "hypothesis", metavar="COLUMN", panel="Data", help="Column of the hypotheses."
    )
    label: str = option(
        "label",
        metavar="COLUMN",
        panel="Data",
        help="Column of the labels: entailment, neutral or contradiction.",
    )
    group: str | None = option(
        None,
        name="by",
        metavar="COLUMN",
        panel="Data",
        help="Measure also by the values of a column.",
    )
    fit_temperature: str | None = option(
        None, metavar="FILE", help="Fit one temperature on the pairs of this table."
    )
    split_by: str | None = option(
        None,
        metavar="COLUMN",
        panel="Data",
        help="Fit it on half of each set, drawn by a column's values; measure the other.",
    )
    split_seed: int = option(0, panel="Data", help="Seed of the halves of --split-by.")
    drop_missing: bool = option(
        False, panel="Data", help="Leave out rows without a text or a label, and count them."
    )

    def __post_init__(self) -> None:
        if not self.tables:
            raise ConfigError("name at least one file of labelled pairs")
        if self.fit_temperature is not None and self.split_by is not None:
            raise ConfigError("--fit-temperature and --split-by both fit; choose one")


@dataclasses.dataclass(frozen=True)
class NLIResult(EvaluationResult):
    """Tables of the schemas above; fractions, `nll` in nats, confusion in rows.

    `predictions` has a row a pair: its set and line, texts, label, and the model's probabilities.
    `temperature` is empty unless one was asked for.
    """

    name = "nli"
    title = "NLI model"

    config: NLIConfig
    model: ModelInfo
    sets: pl.DataFrame
    confusion: pl.DataFrame
    temperature: pl.DataFrame
    predictions: pl.DataFrame
    left_out: int
    truncated: int | None

    def tables(self) -> dict[str, pl.DataFrame]:
        found = {"nli": self.sets, "confusion": self.confusion}
        return found | ({"temperature": self.temperature} if self.temperature.height else {})

    def files(self) -> dict[str, pl.DataFrame]:
        return {**self.tables(), "predictions": self.predictions}

    def facts(self) -> dict[str, Any]:
        left_out = {"left_out": self.left_out, "truncated": self.truncated}
        return {**self.model._asdict(), **left_out}

    def sections(self) -> Sequence[Section]:
        """Accuracy and calibration, the confusion, and the temperature if it was fitted."""
        model = self.model
        header = ("set", "pairs", "accuracy, %", "two-way", "macro-F1", "ECE, %", "NLL", "Brier")
        found = [
            Section(
                f"NLI: {model.model} {model.revision} ({model.dtype})",
                header,
                [_accuracy_row(row) for row in self.sets.iter_rows(named=True)],
                tuple(self._notes()),
            ),
            Section(
                "Confusion: a row a true label, its pairs by what they were called",
                ("set: label", *NLI_LABELS, "right, %"),
                [_confusion_row(row) for row in self.confusion.iter_rows(named=True)],
            ),
        ]
        return [*found, self._temperature_section()] if self.temperature.height else found

    def _notes(self) -> Iterator[str]:
        yield (
            "accuracy: largest of three probabilities, 95 % Wilson interval; two-way: entailment "
            "or not, where a set has two labels"
        )
        yield (
            f"ECE: expected calibration error in {ECE_BINS} bins; NLL: negative log-likelihood in "
            "nats; Brier: 0 to 2"
        )
        if self.left_out:
            yield f"{self.left_out:,} rows left out for a missing text or label"
        if self.truncated:
            n = f"{self.truncated:,}"
            yield f"{n} pairs are longer than the model reads; it read their beginning"

    def _temperature_section(self) -> Section:
        config, rows = self.config, self.temperature.rows(named=True)
        notes = [f"{row['set']}: {row['reason']}" for row in rows if row["reason"]]
        notes.append("before and after dividing the model's logits; no prediction changes")
        if config.split_by is not None:
            halves = f"halves by {config.split_by} (seed {config.split_seed})"
            notes.append(f"{halves}: fitted on one, told of the other")
        elif config.fit_temperature in config.tables:
            notes.append("fitted on rows that are measured here too: no measure of other data")
        return Section(
            f"Temperature fitted on {rows[0]['fitted_on']}",
            ("set", "pairs to fit", "temperature", "pairs", "ECE, %", "NLL", "Brier"),
            [
                (
                    row["set"],
                    f"{row['n_fit']:,}",
                    fixed(row["temperature"], 3, "none"),
                    f"{row['n']:,}",
                    _change(row, "ece", 100, 1),
                    _change(row, "nll", 1, 3),
                    _change(row, "brier", 1, 3),
                )
                for row in rows
            ],
            tuple(notes),
        )


def _accuracy_row(row: Row) -> tuple[str, ...]:
    interval = f"[{percent(row['low'])}–{percent(row['high'])}]"
    shares = (percent(row[name]) for name in ("two_way_accuracy", "macro_f1", "ece"))
    likelihoods = (fixed(row[name], 3) for name in ("nll", "brier"))
    accuracy = f"{percent(row['accuracy'])} {interval}"
    return _set_name(row), f"{row['n']:,}", accuracy, *shares, *likelihoods


def _confusion_row(row: Row) -> tuple[str, ...]:
    right = row[row["label"]] / sum(row[name] for name in NLI_LABELS)
    counts = (f"{row[name]:,}" for name in NLI_LABELS)
    return f"{_set_name(row)}: {row['label']}", *counts, percent(right)


def _change(row: Row, measure: str, scale: float, digits: int) -> str:
    before, after = row[f"{measure}_before"], row[f"{measure}_after"]
    if before is None:
        return ""
    return f"{scale * before:.{digits}f} → {scale * after:.{digits}f}"


def _set_name(row: Row) -> str:
    return row["set"] if row["group"] is None else f"{row['set']} / {row['group']}"


def evaluate_nli(config: NLIConfig, on_pairs: OnPairs | None = None) -> NLIResult:
    """Judge every pair of the files and measure.

    `InputError` for bad files before a model is loaded, `ConfigError` for a model that cannot be
    used, and `InputError` where a pair does not fit into memory.
    """
    pairs, left_out = _read_pairs(config.tables, config)
    n = pairs.height
    if config.fit_temperature is not None:
        tuning, _ = _read_pairs([config.fit_temperature], dataclasses.replace(config, group=None))
        pairs = pl.concat([pairs, tuning])
    classifier = load_pair_classifier(config.encoders)
    judged = _judge(classifier, pairs, on_pairs)
    rows, tuned = judged.head(n), judged.tail(-n)
    sets, confusion = [], []
    for name, group, frame in _groups(rows):
        probabilities, labels = _arrays(frame)
        counts = confusion_matrix(labels, probabilities.argmax(axis=1), len(NLI_LABELS))
        sets.append((name, group, frame.height, *_measured(probabilities, labels, counts)))
        by_label = zip(NLI_LABELS, counts.tolist(), strict=True)
        confusion += [(name, group, label, *of) for label, of in by_label if any(of)]
    temperatures = list(_temperatures(rows, tuned, config))
    return NLIResult(
        config,
        classifier.info,
        pl.DataFrame(sets, schema=SETS_SCHEMA, orient="row"),
        pl.DataFrame(confusion, schema=CONFUSION_SCHEMA, orient="row"),
        pl.DataFrame(temperatures, schema=TEMPERATURE_SCHEMA, orient="row"),
        rows.drop("half"),
        left_out,
        _n_truncated(classifier, judged),
    )


def two_way_accuracy(confusion: NDArray[np.int64]) -> tuple[float | None, str | None]:
    """Entailment against the one other label of a set, or None and why.

    `confusion` is ``[3, 3]`` in the order of `NLI_LABELS`; a pair that was called by the third
    name counts as the other label.
    """
    used = [name for name, n in zip(NLI_LABELS, confusion.sum(axis=1), strict=True) if n]
    if len(used) != 2 or NLI_LABELS[0] not in used:
        return None, f"its labels are {', '.join(used)}"
    others = confusion[1:, 1:].sum()
    return float((confusion[0, 0] + others) / confusion.sum()), None


def _judge(classifier: PairClassifier, rows: pl.DataFrame, tell: OnPairs | None) -> pl.DataFrame:
    """The rows with the prediction and three probabilities, float64 rows that sum to 1."""
    pairs = rows.select("premise", "hypothesis").rows()

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
    predicted = [NLI_LABELS[label] for label in found.argmax(axis=1)]
    return rows.with_columns(
        pl.Series("predicted", predicted, dtype=pl.String),
        *(pl.Series(name, found[:, label]) for label, name in enumerate(NLI_LABELS)),
    )


def _n_truncated(classifier: PairClassifier, rows: pl.DataFrame) -> int | None:
    """How many pairs the model read in part only; None where it does not tell."""
    tell = getattr(classifier, "truncates", None)
    return None if tell is None else int(tell(rows.select("premise", "hypothesis").rows()).sum())


def _sets(rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    for (name,), frame in rows.group_by("set", maintain_order=True):
        yield str(name), frame
    if rows["set"].n_unique() > 1:
        yield ALL, rows


def _groups(rows: pl.DataFrame) -> Iterator[tuple[str, str | None, pl.DataFrame]]:
    """Each set whole, then its groups; at last all sets together."""
    for name, frame in _sets(rows):
        yield name, None, frame
        if name != ALL:
            for group in frame["group"].drop_nulls().unique().sort():
                yield name, group, frame.filter(pl.col("group") == group)


def _arrays(rows: pl.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The probabilities ``[n, 3]`` of some rows, and the numbers of their labels."""
    labels = [NLI_LABELS.index(name) for name in rows["label"]]
    return rows.select(NLI_LABELS).to_numpy(), np.array(labels, dtype=np.int64)


def _measured(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[object, ...]:
    right, n = int(np.diag(counts).sum()), labels.size
    return (
        right / n,
        *stats.binomtest(right, n).proportion_ci(method="wilson"),
        macro_f1(counts),
        *two_way_accuracy(counts),
        *(measure(probabilities, labels) for measure in _MEASURES.values()),
    )


def _temperatures(
    rows: pl.DataFrame, tuned: pl.DataFrame, config: NLIConfig
) -> Iterator[tuple[object, ...]]:
    """A row a set: fitted on the file or on the set's first half, measured on the rest."""
    if config.fit_temperature is None and config.split_by is None:
        return
    for name, frame in _sets(rows):
        fitted_on, fit, test = Path(config.fit_temperature or "").stem, tuned, frame
        if config.split_by is not None:
            drawn = [in_first_half(half, config.split_seed) for half in frame["half"]]
            first = pl.Series(drawn, dtype=pl.Boolean)
            fitted_on, fit, test = "first half", frame.filter(first), frame.filter(~first)
        yield name, fitted_on, fit.height, *_temperature(fit, test)


def _temperature(fit: pl.DataFrame, test: pl.DataFrame) -> tuple[object, ...]:
    none = (None,) * (2 * len(_MEASURES))
    if not fit.height or not test.height:
        return None, "one half has no rows", test.height, *none
    temperature = best_temperature(*_arrays(fit))
    if temperature is None:
        return None, NO_OPTIMUM, test.height, *none
    probabilities, labels = _arrays(test)
    both = (probabilities, with_temperature(probabilities, temperature))
    values = [measure(given, labels) for measure in _MEASURES.values() for given in both]
    return temperature, None, test.height, *values


class _MissingError(ValueError):
    """A value is not there, which `drop_missing` forgives."""


def _read_pairs(sources: Sequence[str], config: NLIConfig) -> tuple[pl.DataFrame, int]:
    """Rows of `PAIRS_SCHEMA`, each file a set named by its stem, and how many were left out.

    Labels may be spelled as models spell them (`LABEL_NAMES`); the frame has our names.
    `InputError` names file and line where a column is missing, a text is empty or no text, or a
    label is missing or unknown; `drop_missing` leaves out rows whose text or label is missing.
    """
    files = list(dict.fromkeys(file for source in sources for file in find_files(source)))
    rows: list[tuple[object, ...]] = []
    left_out = 0
    for file, name in zip(files, _names(files), strict=True):
        before = len(rows)
        for line, record in read(file):
            try:
                rows.append((name, line, *_pair(record, config)))
            except _MissingError as exc:
                if not config.drop_missing:
                    hint = "; --drop-missing leaves such rows out"
                    raise InputError(f"{place(file, line)}: {exc}{hint}") from None
                left_out += 1
            except ValueError as exc:
                raise InputError(f"{place(file, line)}: {exc}") from None
        if len(rows) == before:
            raise InputError(f"{file.name}: there are no labelled pairs in it")
    return pl.DataFrame(rows, schema=PAIRS_SCHEMA, orient="row"), left_out


def _names(files: Sequence[InputFile]) -> list[str]:
    """Stems, or whole names where two files share one."""
    stems = [Path(file.file_name.removesuffix(".gz")).stem for file in files]
    both = zip(files, stems, strict=True)
    return [stem if stems.count(stem) == 1 else file.name for file, stem in both]


def _pair(record: Record, config: NLIConfig) -> Iterator[str | None]:
    """Premise, hypothesis, label, group and half of a row."""
    for role, reader in (("premise", _text), ("hypothesis", _text), ("label", _label)):
        column = getattr(config, role)
        if column not in record:
            known = ", ".join(record) or "none"
            raise ValueError(f"no column {column}; there are: {known} (--{role} names another)")
        try:
            yield reader(record[column])
        except ValueError as exc:
            raise type(exc)(f"column {column} {exc}") from None
    for named in (config.group, config.split_by):
        yield None if named is None else _named(record, named)


def _text(value: object) -> str:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise _MissingError("is empty")
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {kind(value)}")
    return value


def _label(value: object) -> str:
    if value is None or (isinstance(value, str) and value.strip() in NO_LABEL):
        raise _MissingError("has no label")
    if not isinstance(value, str):
        raise ValueError(
            f"holds {kind(value)}, not a name: which number means which label differs between "
            f"data sets; write {', '.join(NLI_LABELS)}"
        )
    label = LABEL_NAMES.get(value.strip().lower())
    if label is None:
        raise ValueError(f"holds the unknown label {value!r}; known: {', '.join(NLI_LABELS)}")
    return label


def _named(record: Record, column: str) -> str:
    """The value of a column that groups rows, as text."""
    if column not in record:
        raise ValueError(f"no column {column}; there are: {', '.join(record)}")
    value = record[column]
    if isinstance(value, list | dict):
        raise ValueError(f"column {column} must hold a text or a number, not {kind(value)}")
    return "none" if value is None else str(value)
