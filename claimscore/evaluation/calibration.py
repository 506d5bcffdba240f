"""`claimscore calibrate`: a verifier's probabilities and threshold, fitted to labels of people.

Normal priors hold temperature and shift at those that change nothing, so few labels change little.
What the fit gains is measured by cross-fitting: records are dealt into folds, and each fold is
judged by what the labels of the others give. Intervals resample records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import optimize

from claimscore.calibration import (
    N_QUANTILES,
    WORDS,
    Calibration,
    Platt,
    claims_of,
    judge_of,
    logits,
    threshold_in,
)
from claimscore.config import path_or_address
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.inputs import open_run
from claimscore.evaluation.label_items import (
    metric_of,
    one_policy,
    open_items,
    people,
    read_labels,
)
from claimscore.evaluation.labels import HALF_AS_WIDE, LabelsConfig, interval_cell
from claimscore.evaluation.result import (
    EvaluationResult,
    Section,
    interval_columns,
    with_interval,
)
from claimscore.metrics.support import SUPPORTED
from claimscore.stats.agreement import weighted_accuracy
from claimscore.stats.bootstrap import Array, WeightedMeasure, ratio, resamples

#: Fewer labels, or labels of fewer records, are refused.
LEAST_LABELS, LEAST_RECORDS = 20, 5

#: Records are dealt into at most so many folds.
FOLDS = 10

#: Standard deviations of the priors of the temperature's logarithm and of the shift; bounds.
PRIORS = (1.0, 2.0)
BOUNDS = (-4.0, 4.0), (-20.0, 20.0)

#: Measures of which less is better.
LOSSES = ("log loss", "Brier score")

GAINS: dict[str, pl.DataType] = {
    "measure": pl.String(),
    **dict.fromkeys(("before", "after"), pl.Float64()),
    **interval_columns("gain"),
}


class Labelled(NamedTuple):
    """Labelled claims, arrays ``[labels]``: the probability of support, whether the verifier and
    whether people find it supported, the weight, and the number of the record."""

    probability: Array
    judged: NDArray[np.bool_]
    label: NDArray[np.bool_]
    weight: Array
    record: NDArray[np.intp]


def fit(labelled: Labelled) -> tuple[Platt, float]:
    """The map of the largest posterior probability, and the threshold after it: the share of claims
    that are supported, for there a calibrated probability has its best balanced accuracy.

    Weights count as many labels as unequal ones are worth: (Σw)²/Σw² (Kish 1965).
    """
    given, weights = logits(labelled.probability), labelled.weight
    weights = weights * weights.sum() / np.square(weights).sum()
    signs = np.where(labelled.label, -1.0, 1.0)

    def loss(at: Array) -> float:
        losses = np.logaddexp(0.0, signs * (given * np.exp(-at[0]) + at[1]))
        return float(weights @ losses + np.square(at / PRIORS).sum() / 2)

    best = optimize.minimize(loss, np.zeros(2), bounds=BOUNDS, method="L-BFGS-B").x
    mapped = Platt(float(np.exp(best[0])), float(best[1]))
    return mapped, float(np.average(mapped(labelled.probability), weights=weights))


def refuse_few(where: str, n_labels: int, n_records: int, n_copies: int = 0) -> None:
    """`InputError` for labels that are too few to show a gain, beside those of copies."""
    if n_labels < LEAST_LABELS or n_records < LEAST_RECORDS:
        of_all = f"{n_copies} of {n_labels + n_copies}"
        copies = f"{of_all} are copies of their source, which no model judges; " * (n_copies > 0)
        raise InputError(
            f"{where}: {n_labels} labels of claims that a model judged, in {n_records} records; "
            f"{copies}label at least {LEAST_LABELS} in {LEAST_RECORDS}, better 100"
        )


def folds(record: NDArray[np.intp], seed: int) -> NDArray[np.intp]:
    """The fold of each label, by the number of its record from 0 on."""
    return np.random.Generator(np.random.PCG64(seed)).permutation(record.max() + 1)[record] % FOLDS


def cross_fitted(labelled: Labelled, samples: int, seed: int) -> pl.DataFrame:
    """What fits gain on records that they have not seen; the log loss decides."""
    fold, label = folds(labelled.record, seed), labelled.label
    mapped, judged = np.empty(len(fold)), np.empty(len(fold), np.bool_)
    for held_out in (fold == number for number in np.unique(fold)):
        fitted, threshold = fit(Labelled._make(values[~held_out] for values in labelled))
        mapped[held_out] = fitted(labelled.probability[held_out])
        judged[held_out] = mapped[held_out] >= threshold
    signs, both = np.where(label, -1.0, 1.0), (labelled.probability, mapped)
    measures = {
        "log loss": [mean_of(np.logaddexp(0.0, signs * logits(p))) for p in both],
        "Brier score": [mean_of(np.square(p - label)) for p in both],
        "balanced accuracy": [weighted_accuracy(v, label) for v in (labelled.judged, judged)],
    }
    return gains(measures, labelled.weight, labelled.record, samples, seed)


def mean_of(values: Array) -> WeightedMeasure:
    """The mean of values with weights."""
    return lambda weights: ratio(weights @ values, weights.sum(axis=1))


def gains(
    measures: Mapping[str, Sequence[WeightedMeasure]],
    weight: Array,
    record: NDArray[np.intp],
    samples: int = 1000,
    seed: int = 0,
) -> pl.DataFrame:
    """Each measure before and after, and its gain with its interval over records: `GAINS`."""
    n = int(record.max()) + 1
    drawn = np.concatenate([np.ones((1, n)), *resamples(n, samples, seed)])[:, record] * weight
    rows = []
    for name, measured in measures.items():
        before, after = (measure(drawn) for measure in measured)
        gain = before - after if name in LOSSES else after - before
        row = {"measure": name, "before": before[0], "after": after[0]}
        rows.append(row | with_interval("gain", float(gain[0]), gain[1:]))
    return pl.DataFrame(rows, GAINS)


def calibrate(config: LabelsConfig) -> tuple[EvaluationResult, Calibration | None]:
    """The gain of a calibration by the labels of a run, and the calibration where there is one.

    Raises as `evaluate_labels`, and `InputError` where labels are too few, or all the same.
    """
    items = open_items(open_run("A", path_or_address(config.run)), metric_of(config.labels[0]))
    additive = items.run.settings["additive"]
    if additive["support"].get("calibration", "none") != "none":
        raise ConfigError(f"{config.run}: it is calibrated; name a run without --calibration")
    if "," in (verifier := additive["support"]["verifier"]):
        raise ConfigError(f"{config.run}: a calibration is of one verifier, not of {verifier}")
    judged = items.rows.filter(~pl.col("verbatim"))
    raters = read_labels(config.labels, items)
    labelled = _labelled(", ".join(config.labels), people(raters), judged)
    table = cross_fitted(labelled, config.samples, config.seed)
    mapped, threshold = fit(labelled)
    (temperature, shift), stays = mapped, ""
    if not (table["gain_low"][2] or 0) > 0:  # a threshold changes the score, so it must surely help
        stays = f" ({threshold_in(additive):.2f} before the calibration): the threshold in use "
        stays += f"stays, for {threshold:.2f} may gain no balanced accuracy"
        threshold = float(mapped(threshold_in(additive)))
    notes: tuple[str, ...] = (
        f"{len(labelled.label):,} labels, cross-fitted; 95 % intervals over their records",
        f"temperature {temperature:.2f}, shift {shift:+.2f}, supported from {threshold:.2f} on"
        + stays,
    )
    steps = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
    calibration = Calibration(
        *(temperature, shift, threshold, len(labelled.label), judged["id"].n_unique()),
        judge=judge_of(additive),
        claims=claims_of(additive),
        policy=one_policy(raters),
        probabilities=np.quantile(judged["predicted"], steps).tolist(),
        lengths=np.quantile(judged.select(WORDS), steps).tolist(),
    )
    helps = bool(table["gain"][0] > 0)
    if helps:
        moves = "stay" if stays else "move by the threshold"
        notes += (
            "with --calibration the scores by probability move (faithfulness:score=mean, "
            f"faithfulness:score=probability); verdicts, and the default score, {moves}",
        )
    facts = {"temperature": temperature, "shift": shift, "threshold": threshold, "helps": helps}
    result = gains_result("What the calibration gains", config, table, facts, *notes)
    return result, calibration if helps else None


def _labelled(where: str, labels: pl.DataFrame, judged: pl.DataFrame) -> Labelled:
    """The labels of claims that were judged; one on which people are divided is left out."""
    labels = labels.filter(pl.col("value") != 0.5)
    labels = labels.select("id", "claim_position", "weight", label=pl.col("value") > 0.5)
    rows = labels.join(judged, on=["id", "claim_position"], maintain_order="left")
    refuse_few(where, rows.height, rows["id"].n_unique(), labels.height - rows.height)
    if rows["label"].n_unique() == 1:
        raise InputError(f"{where}: all labels say the same, and a calibration needs both kinds")
    return Labelled(
        rows["predicted"].to_numpy(),
        (rows["verdict"] == SUPPORTED).to_numpy(),
        rows["label"].to_numpy(),
        rows["weight"].to_numpy(),
        np.unique(rows["id"], return_inverse=True)[1],
    )


def gains_result(
    title: str, config: Any, table: pl.DataFrame, facts: Mapping[str, Any], *notes: str
) -> EvaluationResult:
    """Rows of `gains` for people and programs."""
    if not (table["gain_low"][0] or 0) > 0:
        notes += ("this gain may be chance: " * (table["gain"][0] > 0) + HALF_AS_WIDE,)
    rows = [
        (name, f"{before:.3f}", f"{after:.3f}", interval_cell(row, "gain", 3))
        for row in table.iter_rows(named=True)
        for name, before, after in [(row["measure"], row["before"], row["after"])]
    ]
    section = Section(title, ("measure", "before", "after", "gain"), rows, notes)
    return EvaluationResult("gains", title, config, {"gains": table}, facts, [section])
