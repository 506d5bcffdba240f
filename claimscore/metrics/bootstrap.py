"""Confidence intervals of means, as the papers give them: from 10,000 bootstrap samples.

Of many values the samples are not drawn. What the standard deviation of the bootstrap means tends
to with more samples is known: the standard deviation of the values, over n, by the root of n (Efron
and Tibshirani 1993, An Introduction to the Bootstrap, equation 5.12). 10,000 samples miss it by
0.7 %, whatever n is, and cost 100 CPU seconds for a million values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Of fewer values no interval is given: resampling them cannot show how they spread. For normal
#: values it holds the true mean in P(|t| < 1.96·√((n − 1)/n)) of the cases, t with n − 1 degrees
#: of freedom: 0 of 1, 60 % of 2, 75 % of 3, 81 % of 4, 85 % of 5, 91 % of 12 values.
MIN_VALUES = 5

#: Draws held in memory at a time, unless one sample alone needs more.
_DRAWS = 1 << 20


#: Of more values the limit is taken.
MOST_RESAMPLED = 10_000


class Interval(NamedTuple):
    """A mean and its 95% interval, `mean` ± `half_width`, over `n` values."""

    mean: float
    half_width: float
    low: float
    high: float
    n: int


def mean_interval(
    values: Sequence[float] | NDArray[np.float64], *, samples: int = 10_000, seed: int = 0
) -> Interval:
    """Mean and 95% normal interval: 1.96 times the standard deviation of the bootstrap means.

    Of more than `MOST_RESAMPLED` values, of what it tends to with many samples. The same values in
    the same order and the same seed give the same interval. `ValueError` where there are no values,
    or one that is not a finite number: the caller decides what a null means.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not data.size:
        raise ValueError("an interval needs a list of at least one value")
    if not np.isfinite(data).all():
        raise ValueError("an interval needs finite values; leave nulls and NaN out first")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    mean = float(data.mean())
    if (data == data[0]).all():
        return _around(mean, 0.0, data.size)
    if data.size > MOST_RESAMPLED:
        return _around(mean, float(data.std()) / math.sqrt(data.size), data.size)
    return _around(mean, float(bootstrap_means(data, samples, seed).std()), data.size)


def _around(mean: float, deviation: float, n: int) -> Interval:
    half_width = 1.96 * deviation
    return Interval(mean, half_width, mean - half_width, mean + half_width, n)


class RunningMean:
    """Values that come bit by bit, and their mean with its interval at the end.

    As long as they are few they are kept, and the interval is that of `mean_interval`; of more
    there is only their number, mean and sum of squared distances from it, so that memory does not
    grow (Chan, Golub and LeVeque 1983, Algorithms for Computing the Sample Variance).
    """

    def __init__(self) -> None:
        self.n = 0
        self._kept: list[NDArray[np.float64]] = []
        self._mean = self._squares = 0.0
        self._low, self._high = math.inf, -math.inf

    def add(self, values: Sequence[float] | NDArray[np.float64]) -> None:
        """Take note of some more; `ValueError` where one is not a finite number."""
        data = np.asarray(values, dtype=np.float64)
        if not np.isfinite(data).all():
            raise ValueError("an interval needs finite values; leave nulls and NaN out first")
        if not data.size:
            return
        if self.n + data.size <= MOST_RESAMPLED:
            self._kept.append(data)
            self.n += data.size
            return
        if self._kept:
            data = np.concatenate([*self._kept, data])
            self._kept, self.n = [], 0
        self._join(data)

    def _join(self, data: NDArray[np.float64]) -> None:
        mean = float(data.mean())
        squares = float(np.square(data - mean).sum())
        away, n = mean - self._mean, self.n + data.size
        self._squares += squares + away * away * self.n * data.size / n
        self._low = min(self._low, float(data.min()))
        self._high = max(self._high, float(data.max()))
        self._mean += away * data.size / n
        self.n = n

    def interval(self, *, seed: int = 0) -> Interval:
        """As `mean_interval` of all values in the order in which they came."""
        if self._kept or not self.n:
            return mean_interval(np.concatenate([np.empty(0), *self._kept]), seed=seed)
        constant = self._low == self._high  # and no rounding error a spread
        deviation = 0.0 if constant else math.sqrt(self._squares) / self.n
        return _around(self._low if constant else self._mean, deviation, self.n)


def bootstrap_means(data: NDArray[np.float64], samples: int, seed: int) -> NDArray[np.float64]:
    """Means of `samples` resamples of `data`, ``[samples]``, drawn with replacement.

    Drawn in blocks, so that memory stays bounded. The draws depend on the number of values, the
    number of samples and the seed alone: values of the same records are resampled together.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    means = np.empty(samples)
    block = max(1, _DRAWS // data.size)
    for start in range(0, samples, block):
        size = min(block, samples - start)
        drawn = generator.integers(data.size, size=(size, data.size), dtype=np.uint32)
        means[start : start + size] = data[drawn].mean(axis=1)
    return means
