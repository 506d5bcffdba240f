"""Confidence intervals of means, as the papers give them: from 10,000 bootstrap samples."""

from __future__ import annotations

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

    The same values in the same order and the same seed give the same interval. `ValueError`
    where there are no values, or one that is not a finite number: whoever calls decides what
    a null means.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not data.size:
        raise ValueError("an interval needs a list of at least one value")
    if not np.isfinite(data).all():
        raise ValueError("an interval needs finite values; leave nulls and NaN out first")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    mean = float(data.mean())
    constant = bool((data == data[0]).all())
    half_width = 0.0 if constant else float(1.96 * bootstrap_means(data, samples, seed).std())
    return Interval(mean, half_width, mean - half_width, mean + half_width, data.size)


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
