"""Means corrected by labels of people: prediction-powered inference, with strata.

An automatic judge predicts the value of every item, people give the value of some. The mean of
the predictions is biased by the judge; the mean of the labels is not, but has a wide interval.
Angelopoulos et al. (2023, Prediction-Powered Inference, Science 382:669) add to the mean of the
predictions what the labelled items show of their error. Angelopoulos, Duchi and Zrnic (2023, PPI++,
equations 2 and 8) weight the predictions by what they explain, so the interval is hardly wider than
that of the labels where the judge is of no use; Fisch et al. (2024, Stratified Prediction-Powered
Inference) do so by strata.

Items belong to records, which are resampled as wholes: claims of one summary are not independent.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from claimscore.stats.bootstrap import MIN_VALUES, Array, Bounds, ratio, resamples
from claimscore.stats.paired import expanded_quantile

#: Fewer labels of a stratum share their error with the stratum that has most.
LEAST_LABELS = 5

_QUANTILE = float(stats.norm.ppf(0.975))


class Estimate(NamedTuple):
    """A mean and its 95 % interval, None where there are too few labels for one."""

    value: float
    low: float | None
    high: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclasses.dataclass(frozen=True, eq=False)
class LabelledSample:
    """The items of all records, some of them with labels; arrays ``[items]``.

    The mean of a record is the sum of its items' values by their `share`, which sum to 1.
    `metric` is the value that a metric gives the item, `predicted` what predicts its label, in any
    unit; `label` is NaN without one, and `weight` how many items a labelled one was drawn for.
    `record` and `stratum` are numbers from 0 on.
    """

    record: NDArray[np.intp]
    share: Array
    metric: Array
    predicted: Array
    stratum: NDArray[np.intp]
    label: Array
    weight: Array

    @property
    def labelled(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.label)


@dataclasses.dataclass(frozen=True)
class CorrectedMean:
    """Three estimates of the mean that people would give all records.

    `uncorrected` is the metric's own mean, `classical` the weighted mean of the labels alone,
    `corrected` that with the predictions. `half_width` is half the corrected interval; labels can
    shrink it to `least_half_width` at most, because the records are a sample too.
    """

    n_records: int
    n_labels: int
    uncorrected: Estimate
    classical: Estimate
    corrected: Estimate
    half_width: float | None = None
    least_half_width: float | None = None

    def labels_needed(self, half_width: float) -> int | None:
        """Labels for an interval of ± `half_width`; None where these records cannot give it."""
        if self.half_width is None or self.least_half_width is None:
            return None
        of_labels = self.half_width**2 - self.least_half_width**2
        room = half_width**2 - self.least_half_width**2
        return math.ceil(self.n_labels * of_labels / room) if room > 0 else None


def corrected_mean(sample: LabelledSample, *, samples: int, seed: int) -> CorrectedMean:
    """The estimates with expanded percentile intervals from `samples` draws of the records.

    `ValueError` where no item has a label.
    """
    return _corrected(_Estimator(sample), None, samples, seed)


def corrected_difference(
    a: LabelledSample, b: LabelledSample, *, samples: int, seed: int
) -> CorrectedMean:
    """`b` minus `a`, whose records have the same numbers: both are drawn together."""
    return _corrected(_Estimator(b), _Estimator(a), samples, seed)


class Draw(NamedTuple):
    """Items drawn, in random order, and how many items each stands for."""

    places: NDArray[np.intp]
    weights: Array


def stratified_draw(stratum: NDArray[np.intp], along: Array, n: int, seed: int) -> Draw:
    """Draw `n` items without replacement, at most all; ``[items]`` arrays.

    Each of k strata gets n / 2k items, or all it has; the rest is shared out by size. Within a
    stratum items are drawn at equal steps in the order of `along`.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    names, sizes = np.unique(stratum, return_counts=True)
    wanted = _allocated(sizes, min(n, stratum.size))
    places, weights = [], []
    for name, size, m in zip(names, sizes, wanted, strict=True):
        own = generator.permutation(np.flatnonzero(stratum == name))
        own = own[np.argsort(along[own], kind="stable")]
        steps = (np.arange(m) + generator.random()) * size / m if m else np.empty(0)
        places.append(own[steps.astype(np.intp)])
        weights.append(np.full(m, size / max(m, 1)))
    order = generator.permutation(int(wanted.sum()))
    return Draw(np.concatenate(places)[order], np.concatenate(weights)[order])


def _allocated(sizes: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """How many items of each stratum: a least number each, and the rest by what is left."""
    least = np.minimum(sizes, n // (2 * sizes.size))
    left = sizes - least
    exact = left * (n - least.sum()) / max(1, left.sum())
    found: NDArray[np.intp] = least + np.floor(exact).astype(np.intp)
    by_rest = np.argsort(np.floor(exact) - exact, kind="stable")
    found[by_rest[: n - int(found.sum())]] += 1
    return found


class _Estimator:
    """Sums of each record and stratum, ``[records, strata]``, of which every estimate is made."""

    def __init__(self, sample: LabelledSample) -> None:
        if not sample.labelled.any():
            raise ValueError("no item has a label")
        self.n_records = int(sample.record.max()) + 1
        self.n_labels = int(sample.labelled.sum())
        self._sample = sample
        stratum = self._stratum = self._strata()
        self._power = self._weight_of_predictions()
        self.n_parameters = np.unique(stratum).size + 1  # a mean a stratum, and the weight
        weight = np.where(sample.labelled, sample.weight, 0.0) * sample.share
        label = np.where(sample.labelled, sample.label, 0.0)
        places = sample.record, stratum
        shape = self.n_records, int(stratum.max()) + 1

        def summed(values: Array) -> Array:
            sums = np.zeros(shape)
            np.add.at(sums, places, values)
            return sums

        self._share = summed(sample.share)
        self._metric = summed(sample.share * sample.metric).sum(1)
        self._predicted = summed(sample.share * self._power * sample.predicted)
        self._weight = summed(weight)
        self._label = summed(weight * label)
        self._error = summed(weight * (label - self._power * sample.predicted))

    def _strata(self) -> NDArray[np.intp]:
        """The strata, those with few labels joined with the one that has most."""
        sample = self._sample
        n_labels = np.bincount(sample.stratum, weights=sample.labelled)
        few = n_labels < LEAST_LABELS
        joined: NDArray[np.intp] = np.where(few[sample.stratum], n_labels.argmax(), sample.stratum)
        return joined

    def _weight_of_predictions(self) -> float:
        """PPI++'s weight of the predictions: their covariance with the labels within strata."""
        sample, stratum = self._sample, self._stratum
        along = across = 0.0
        for own in (sample.labelled & (stratum == one) for one in np.unique(stratum)):
            n = int(own.sum())
            if n < 2:
                continue
            label = sample.label[own] - sample.label[own].mean()
            predicted = sample.predicted[own] - sample.predicted[own].mean()
            scale = sample.weight[own].sum() ** 2 / n / (n - 1)
            along += scale * float(label @ predicted)
            across += scale * float(predicted @ predicted)
        if across <= 1e-12:
            return 0.0
        return along / across / (1 + self.n_labels / len(sample.label))

    def estimates(self, weights: Array) -> Array:
        """Uncorrected, classical and corrected for each draw ``[draws, records]``: ``[3, draws]``.

        A stratum of which a draw has no label takes the error of all of them.
        """
        total = weights.sum(1)
        weight, error = weights @ self._weight, weights @ self._error
        of_all = ratio(error.sum(1), weight.sum(1))[:, None]
        errors = np.where(weight > 0, ratio(error, weight), of_all)
        corrected = (weights @ self._predicted + (weights @ self._share) * errors).sum(1) / total
        classical = ratio((weights @ self._label).sum(1), weight.sum(1))
        return np.stack([weights @ self._metric / total, classical, corrected])

    def labels_variance(self) -> float:
        """The part of the corrected mean's variance that comes from labelling some items only."""
        sample, stratum = self._sample, self._stratum
        found = 0.0
        for one in np.unique(stratum):
            own = sample.labelled & (stratum == one)
            n, n_items = int(own.sum()), int((stratum == one).sum())
            if n > 1:
                error = sample.share[own] * (
                    sample.label[own] - self._power * sample.predicted[own]
                )
                error -= sample.share[own] * error.sum() / sample.share[own].sum()
                found += n_items**2 / n * max(0.0, 1 - n / n_items) * float(error.var(ddof=1))
        return found / self.n_records**2


def _corrected(
    main: _Estimator, other: _Estimator | None, samples: int, seed: int
) -> CorrectedMean:
    both = [main] if other is None else [main, other]
    n_records = max(one.n_records for one in both)

    def estimates(weights: Array) -> Array:
        found = main.estimates(weights)
        return found if other is None else found - other.estimates(weights)

    values = estimates(np.ones((1, n_records)))[:, 0]
    n_labels = sum(one.n_labels for one in both)
    fewest = min(both, key=lambda one: one.n_labels)
    least = fewest.n_labels
    draws = np.concatenate(
        [estimates(weights) for weights in resamples(n_records, samples, seed)], axis=1
    )
    bounds = [
        _bounds(draws[0], n_records),
        _bounds(draws[1], least),
        _bounds(draws[2], least, fewest.n_parameters),
    ]
    uncorrected, classical, corrected = (
        Estimate(float(value), *bound) for value, bound in zip(values, bounds, strict=True)
    )
    half = least_half = None
    if corrected.low is not None and corrected.high is not None:
        half = (corrected.high - corrected.low) / 2
        of_labels = sum(one.labels_variance() for one in both) * _QUANTILE**2
        least_half = math.sqrt(max(0.0, half**2 - of_labels))
    return CorrectedMean(n_records, n_labels, uncorrected, classical, corrected, half, least_half)


def _bounds(draws: Array, n: int, parameters: int = 1) -> Bounds:
    """Percentiles of the draws of an estimate from n values, with `parameters` estimated.

    They are expanded for few values as in `paired.paired_interval`, and moved by Efron's (1987,
    Better Bootstrap Confidence Intervals, JASA 82:171) acceleration a, a sixth of the skewness of
    the draws, from z to z/(1 − a·z). Where few labels differ from the others, estimate and spread
    are correlated: plain percentiles then end too early on the side of the few.
    """
    defined = draws[~np.isnan(draws)]
    if n < MIN_VALUES or not defined.size:
        return Bounds(None, None)
    z = expanded_quantile(n, parameters)
    varies = np.ptp(defined) > 1e-12
    a = float(np.clip(stats.skew(defined) / 6, -0.2, 0.2)) if varies else 0.0
    tails = [float(stats.norm.cdf(one / (1 - a * one))) for one in (z, -z)]
    return Bounds(*np.quantile(defined, tails).tolist())
