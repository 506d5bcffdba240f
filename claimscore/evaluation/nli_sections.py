"""The tables of `claimscore evaluate nli` as they are printed."""

from __future__ import annotations

from collections.abc import Iterator

from claimscore.evaluation.nli import NLIConfig, NLIResult
from claimscore.evaluation.sections import Row, Section
from claimscore.pipeline.encoders.protocols import NLI_LABELS
from claimscore.stats.calibration import ECE_BINS


def nli_sections(result: NLIResult, config: NLIConfig) -> Iterator[Section]:
    """Accuracy and calibration, what is taken for what, and the temperature if it was fitted."""
    model = result.model
    yield Section(
        f"NLI: {model.model} {model.revision} ({model.dtype})",
        ("set", "pairs", "accuracy, %", "two-way", "macro-F1", "ECE, %", "NLL", "Brier"),
        [
            (
                _name(row),
                f"{row['n']:,}",
                f"{_percent(row['accuracy'])} [{_percent(row['low'])}–{_percent(row['high'])}]",
                _percent(row["two_way_accuracy"]),
                _percent(row["macro_f1"]),
                _percent(row["ece"]),
                f"{row['nll']:.3f}",
                f"{row['brier']:.3f}",
            )
            for row in result.sets.iter_rows(named=True)
        ],
        tuple(_notes(result)),
    )
    yield Section(
        "Confusion: a row a true label, its pairs by what they were called",
        ("set: label", *NLI_LABELS, "right, %"),
        [_confused(row) for row in result.confusion.iter_rows(named=True)],
    )
    if result.temperature.height:
        yield _temperature_section(result, config)


def _notes(result: NLIResult) -> Iterator[str]:
    yield (
        "accuracy: largest of three probabilities, 95 % Wilson interval; two-way: entailment or "
        "not, where a set has two labels"
    )
    yield (
        f"ECE: expected calibration error in {ECE_BINS} bins; NLL: negative log-likelihood in "
        "nats; Brier: 0 to 2"
    )
    if result.left_out:
        yield f"{result.left_out:,} rows left out for a missing text or label"
    if result.truncated:
        yield f"{result.truncated:,} pairs are longer than the model reads; it read their beginning"


def _confused(row: Row) -> tuple[str, ...]:
    right = row[row["label"]] / sum(row[name] for name in NLI_LABELS)
    counts = (f"{row[name]:,}" for name in NLI_LABELS)
    return f"{_name(row)}: {row['label']}", *counts, _percent(right)


def _temperature_section(result: NLIResult, config: NLIConfig) -> Section:
    rows = result.temperature.rows(named=True)
    notes = [f"{row['set']}: {row['reason']}" for row in rows if row["reason"]]
    notes.append("before and after dividing the model's logits; no prediction changes")
    if config.halves is not None:
        notes.append(
            f"halves by {config.halves} (seed {config.half_seed}): fitted on one, told of the other"
        )
    elif config.fit_temperature in config.tables:
        notes.append("fitted on rows that are measured here too: no measure of other data")
    return Section(
        f"Temperature fitted on {rows[0]['fitted_on'] if rows else ''}",
        ("set", "pairs to fit", "temperature", "pairs", "ECE, %", "NLL", "Brier"),
        [
            (
                row["set"],
                f"{row['n_fit']:,}",
                "none" if row["temperature"] is None else f"{row['temperature']:.3f}",
                f"{row['n']:,}",
                _change(row, "ece", 100, 1),
                _change(row, "nll", 1, 3),
                _change(row, "brier", 1, 3),
            )
            for row in rows
        ],
        tuple(notes),
    )


def _change(row: Row, measure: str, scale: float, digits: int) -> str:
    before, after = row[f"{measure}_before"], row[f"{measure}_after"]
    if before is None:
        return ""
    return f"{scale * before:.{digits}f} → {scale * after:.{digits}f}"


def _name(row: Row) -> str:
    return row["set"] if row["group"] is None else f"{row['set']} / {row['group']}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"
