"""Means corrected by labels of people: prediction-powered inference, with strata.

An automatic judge predicts the value of every item, people give the value of some. The mean of
the predictions is biased by the judge; the mean of the labels is not, but has a wide interval.
Angelopoulos et al. (2023, Prediction-Powered Inference, Science 382:669) add to the mean of the
predictions what the labelled items show of their error. Angelopoulos, Duchi and Zrnic (2023, PPI++,
equations 2 and 8) weight the predictions by what they explain, so the interval is hardly wider than
that of the labels where the judge is of no use; Fisch et al. (2024, Stratified Prediction-Powered
Inference) do so by strata.

Items belong to records, which are resampled as wholes: claims of one summary are not independent.

**Few labels.** What n labels do not show may still be there. So a lower bound counts one record
more that has the least label there can be, and an upper bound one that has the largest, with the
mean prediction. Its weight is the mean of the others' (of unequal ones Σw²/Σw, Kish 1965), and all
weights are exponential (Rubin 1981, The Bayesian Bootstrap). Of n labels of equal weight that are 0
or 1 the quantiles are those of Beta(x, n − x + 1) and Beta(x + 1, n − x): the exact interval of
Clopper and Pearson (1934). For any bounded values they are the bound of Learned-Miller and Thomas
(2019, A New Confidence Interval for the Mean of a Bounded Random Variable). More labels bring it to
the bootstrap interval without a step.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimscore.stats.bootstrap import MIN_VALUES, Array, Bounds, exponential_weights
from claimscore.stats.paired import paired_differences, paired_interval

#: Fewer labels of a stratum share their error with the stratum that has most.
LEAST_LABELS = 5

#: Fewer labels do not say how much the predictions explain.
FEW_LABELS = 8

#: The share of an active draw that does not look at the uncertainty, so that no weight explodes.
UNIFORM_SHARE = 0.5

#: The least and the largest label that there can be.
_LEAST, _LARGEST = 0.0, 1.0

_TAIL = 0.025


class Estimate(NamedTuple):
    """A mean and its 95 % interval, None where there is none."""

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
    `metric` is the value that a metric gives the item, `predicted` the probability of its label;
    `label`, from 0 to 1, is NaN without one, and `weight` how many items a labelled one was drawn
    for. `record` and `stratum` are numbers from 0 on.
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
    `corrected` that with the predictions.
    """

    n_records: int
    n_labels: int
    uncorrected: Estimate
    classical: Estimate
    corrected: Estimate


def corrected_mean(sample: LabelledSample, *, samples: int, seed: int) -> CorrectedMean:
    """The estimates with their intervals from `samples` draws of the records.

    `ValueError` where no item has a label.
    """
    return _estimates([sample], samples, seed)


def corrected_difference(
    a: LabelledSample, b: LabelledSample, *, samples: int, seed: int
) -> CorrectedMean:
    """`b` minus `a`, whose records have the same numbers: both are drawn together."""
    return _estimates([b, a], samples, seed)


def share_bounds(hits: Array, weight: Array, *, samples: int, seed: int) -> Bounds:
    """The 95 % interval of the share Σ `hits` / Σ `weight`, sums of records ``[records]``; exact
    where each record has one label of the same weight. None without weight."""
    labelled = weight > 0
    n = int(labelled.sum())
    if not n:
        return Bounds(None, None)
    label = hits[labelled] / weight[labelled]
    zeros, ones = np.zeros(n), np.ones(n)
    sample = LabelledSample(
        np.arange(n), ones, zeros, zeros, zeros.astype(np.intp), label, weight[labelled]
    )
    return Bounds(*_interval([_Mean(sample, sample.stratum, 0.0)], samples, seed)[1:])


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
        items = generator.permutation(np.flatnonzero(stratum == name))
        items = items[np.argsort(along[items], kind="stable")]
        steps = (np.arange(m) + generator.random()) * size / m if m else np.empty(0)
        places.append(items[steps.astype(np.intp)])
        weights.append(np.full(m, size / max(m, 1)))
    order = generator.permutation(int(wanted.sum()))
    return Draw(np.concatenate(places)[order], np.concatenate(weights)[order])


def active_draw(uncertainty: Array, share: Array, along: Array, n: int, seed: int) -> Draw:
    """Draw `n` items without replacement, at most all, more of those that tell most; ``[items]``.

    The error of a mean is least where the chance of an item is in proportion to its `share` in the
    mean and to how far its label may be from the prediction (Zrnic and Candès 2024, Active
    Statistical Inference). Of a probability p that is √(p(1 − p)), a function of the uncertainty
    u = 1 − |2p − 1|. An overconfident judge would hide its errors so; hence `UNIFORM_SHARE` goes by
    the share alone. A weight is one over the chance. Of neighbours in the order of `along` few are
    drawn together.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    deviation = np.sqrt(uncertainty * (2 - uncertainty))
    typical = np.average(deviation, weights=share) or 1.0
    size = share * (UNIFORM_SHARE + (1 - UNIFORM_SHARE) * deviation / typical)
    chance = _chances(size, min(n, size.size))
    items = generator.permutation(size.size)
    items = items[np.argsort(along[items], kind="stable")]
    places = generator.permutation(_pivotal(items, chance[items], generator.random(size.size)))
    return Draw(places, 1 / chance[places])


def _pivotal(items: NDArray[np.intp], chance: Array, dice: Array) -> NDArray[np.intp]:
    """Ordered pivotal sampling (Deville and Tillé 1998, Unequal Probability Sampling without
    Replacement through a Splitting Method): neighbours compete, the chance of both stays."""
    drawn, rival, left = list[int](), -1, 0.0
    for item, p, die in zip(items.tolist(), chance.tolist(), dice.tolist(), strict=True):
        both = left + p
        if both < 1:  # one of the two is out
            rival, left = item if die * both < p else rival, both
        elif die * (2 - both) < 1 - left:
            drawn.append(item)
            left = both - 1
        else:
            drawn.append(rival)
            rival, left = item, both - 1
    return np.array([*drawn, rival] if left > 0.5 else drawn, np.intp)


def _chances(size: Array, n: int) -> Array:
    """Chances in proportion to the size, at most 1, whose sum is `n`."""
    certain = np.zeros(size.size, bool)
    while True:
        left = size[~certain].sum() or 1.0
        chance = np.where(certain, 1.0, (n - certain.sum()) * size / left)
        above = ~certain & (chance > 1 - 1e-9)
        if not above.any():
            return chance
        certain |= above


def _allocated(sizes: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """How many items of each stratum: a least number each, and the rest by what is left."""
    least = np.minimum(sizes, n // (2 * sizes.size))
    left = sizes - least
    exact = left * (n - least.sum()) / max(1, left.sum())
    numbers: NDArray[np.intp] = least + np.floor(exact).astype(np.intp)
    by_rest = np.argsort(np.floor(exact) - exact, kind="stable")
    numbers[by_rest[: n - int(numbers.sum())]] += 1
    return numbers


class _Mean:
    """The mean of a sample with labels, corrected by predictions of some weight in strata."""

    def __init__(self, sample: LabelledSample, stratum: NDArray[np.intp], power: float) -> None:
        self._sample, self._stratum = sample, stratum
        self.n_records, self._n_strata = int(sample.record.max()) + 1, int(stratum.max()) + 1
        self._error = sample.label - power * sample.predicted
        weight = np.where(sample.labelled, sample.weight, 0.0) * sample.share
        self._shares = self._sums(sample.share)
        self._predictions = self._sums(sample.share * power * sample.predicted).sum(1)
        self._weights = self._sums(weight)
        self._errors = self._sums(weight * np.where(sample.labelled, self._error, 0.0))
        by_record = self._weights.sum(1)
        self._one_more = by_record @ by_record / by_record.sum()
        typical = power * np.average(sample.predicted, weights=sample.share)
        self._ends = np.array([[_LEAST - typical], [0.0], [_LARGEST - typical]])

    def _sums(self, values: Array) -> Array:
        """Of each record and stratum, ``[records, strata]``."""
        sums = np.zeros((self.n_records, self._n_strata))
        np.add.at(sums, (self._sample.record, self._stratum), values)
        return sums

    def means(self, drawn: Array, more: Array) -> Array:
        """Of records with the weights `drawn` ``[draws, records]``: ``[3, draws]``.

        The second is of these records; the first has one more, of weight `more` ``[draws]``, with
        the least label, and the third one with the largest.
        """
        total, weights = drawn.sum(1), drawn @ self._weights
        errors = ((drawn @ self._shares) * (drawn @ self._errors) / weights).sum(1) / total
        one_more = np.stack([more, 0 * more, more]) * self._one_more
        of_all = weights.sum(1)
        corrected = (errors * of_all + one_more * self._ends) / (of_all + one_more)
        means: Array = corrected + (drawn @ self._predictions) / total
        return means


def _joined_strata(sample: LabelledSample) -> NDArray[np.intp]:
    """The strata, those with few labels joined with the one that has most; numbers from 0 on."""
    n_labels = np.bincount(sample.stratum, weights=sample.labelled)
    few = n_labels < LEAST_LABELS
    joined = np.where(few[sample.stratum], n_labels.argmax(), sample.stratum)
    return np.unique(joined, return_inverse=True)[1].astype(np.intp)


def _weight_of_predictions(sample: LabelledSample, stratum: NDArray[np.intp]) -> float:
    """PPI++'s weight of the predictions: their covariance with the labels within strata."""
    n_labels = int(sample.labelled.sum())
    if n_labels < FEW_LABELS:
        return 0.0
    along = across = 0.0
    for items in (sample.labelled & (stratum == one) for one in np.unique(stratum)):
        n = int(items.sum())
        label = sample.label[items] - sample.label[items].mean()
        predicted = sample.predicted[items] - sample.predicted[items].mean()
        scale = sample.weight[items].sum() ** 2 / n / max(1, n - 1)
        along += scale * float(label @ predicted)
        across += scale * float(predicted @ predicted)
    if across <= 1e-12:
        return 0.0
    power = along / across / (1 + n_labels / len(sample.label))
    return min(1.0, max(0.0, power))


def _interval(means: list[_Mean], samples: int, seed: int) -> Estimate:
    """Of a mean, or of the first less the second."""
    n = max(mean.n_records for mean in means)

    def estimate(drawn: Array) -> Array:
        first, *others = (
            mean.means(drawn[:, :n], drawn[:, n + place]) for place, mean in enumerate(means)
        )
        return first - others[0][::-1] if others else first

    least, largest = (_LEAST, _LARGEST) if len(means) == 1 else (_LEAST - _LARGEST, _LARGEST)
    value = float(estimate(np.ones((1, n + len(means))))[1, 0])
    blocks = exponential_weights(n + len(means), samples, seed)
    low, _, high = np.concatenate([estimate(block) for block in blocks], axis=1)
    ends = value, float(np.quantile(low, _TAIL)), float(np.quantile(high, 1 - _TAIL))
    return Estimate(*(min(largest, max(least, end)) for end in ends))


def _estimates(both: list[LabelledSample], samples: int, seed: int) -> CorrectedMean:
    """Of one sample, or of the first less the second."""
    if not all(sample.labelled.any() for sample in both):
        raise ValueError("no item has a label")
    corrected, of_labels = [], []
    for sample in both:
        stratum = _joined_strata(sample)
        corrected.append(_Mean(sample, stratum, _weight_of_predictions(sample, stratum)))
        of_labels.append(_Mean(sample, np.zeros_like(stratum), 0.0))
    by_record = [np.bincount(one.record, one.share * one.metric).astype(float) for one in both]
    d = by_record[0] if len(both) == 1 else paired_differences(by_record[1], by_record[0])
    estimates = [_interval(means, samples, seed) for means in (of_labels, corrected)]
    n_labels = sum(int(sample.labelled.sum()) for sample in both)
    return CorrectedMean(d.size, n_labels, _uncorrected(d, samples, seed), *estimates)


def _uncorrected(d: Array, samples: int, seed: int) -> Estimate:
    """No interval where values are few or equal: they do not show how they spread."""
    if d.size < MIN_VALUES or (d == d[0]).all():
        return Estimate(float(d.mean()), None, None)
    interval = paired_interval(d, samples=samples, seed=seed)
    return Estimate(float(d.mean()), interval.low, interval.high)
