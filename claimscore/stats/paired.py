"""Paired comparison of two lists of scores: the difference of the means, and what shows it.

Distributions are scipy's. scipy has neither the expanded percentile interval nor Holm's correction
(`scipy.stats.false_discovery_control` bounds another error).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import special

from claimscore.stats.bootstrap import MIN_VALUES, MOST_RESAMPLED, Array, bootstrap_means

#: The share of intervals that hold the true difference, and the error that a verdict may have.
LEVEL = 0.95
ALPHA = 0.05

#: The share of cases in which a least detectable difference is shown.
POWER = 0.8

#: Scores that are no further apart count as equal: the same run may differ so much on another
#: machine.
EQUAL_WITHIN = 2e-5

#: Student's t of so many records is the normal distribution, to six digits.
_NORMAL_FROM = 1_000_000

#: Records drawn at a time, of those that differ.
_DRAWS = 1 << 20

#: higher, lower: the corrected p-value is at most `ALPHA`. not shown: it is above. same: no record
#: changed. too few: no interval.
Verdict = Literal["higher", "lower", "not shown", "same", "too few"]


class DifferenceInterval(NamedTuple):
    """Bounds of a mean, and the two-sided p-value of its being zero."""

    low: float
    high: float
    p_value: float


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """`b` minus `a` over `n` records; what cannot be computed is None, `reason` says why.

    `higher`, `same`, `lower` count the records; `least_detectable` is the difference that so many
    records show at least, `deviation` the standard deviation of the differences.
    """

    n: int
    mean_a: float | None = None
    mean_b: float | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    higher: int = 0
    same: int = 0
    lower: int = 0
    reason: str | None = None
    least_detectable: float | None = None
    deviation: float | None = None

    def records_needed(self) -> int | None:
        """How many records show the observed difference in `POWER` of cases; None where no number
        does."""
        size = abs(self.mean or 0.0)
        if self.deviation is None or size <= EQUAL_WITHIN:
            return None
        return records_needed(self.deviation, size)


def paired_differences(a: Array, b: Array) -> Array:
    """`b` minus `a`, ``[n]`` each, and 0 where that is at most `EQUAL_WITHIN`; NaN stays NaN.

    Every interval, test, count and gate starts from these, so noise of machines is no evidence.
    """
    d = b - a
    return np.where(np.abs(d) <= EQUAL_WITHIN, 0.0, d)


def paired_difference(a: Array, b: Array, *, samples: int, seed: int) -> Difference:
    """Compare two lists of finite scores, ``[n]`` each, of the same records in the same order.

    Only the draws of the interval depend on the order of the records, so callers sort them.
    """
    if not a.size:
        return Difference(0, reason="no record has a score in both")
    d = paired_differences(a, b)
    changed = d[d != 0]
    higher, lower = int((changed > 0).sum()), int((changed < 0).sum())
    interval = paired_interval(d, samples=samples, seed=seed) if d.size >= MIN_VALUES else None
    reason = None
    if interval is None:
        reason = f"fewer than {MIN_VALUES} records"
    elif not changed.size:
        reason = "no record changed"
    elif interval.low == interval.high:
        reason = "all records changed by the same"
    shown = interval if interval and interval.low < interval.high else None
    return Difference(
        n=d.size,
        mean_a=float(a.mean()),
        mean_b=float(b.mean()),
        mean=float(d.mean()),
        low=shown.low if shown else None,
        high=shown.high if shown else None,
        p_value=interval.p_value if interval and changed.size else None,
        higher=higher,
        same=d.size - changed.size,
        lower=lower,
        reason=reason,
        least_detectable=least_detectable(float(d.std(ddof=1)), d.size) if interval else None,
        deviation=float(d.std(ddof=1)) if interval else None,
    )


def paired_interval(
    d: Array, *, samples: int, seed: int, level: float = LEVEL
) -> DifferenceInterval:
    """Expanded percentile interval of the mean of paired differences, ``[n]``, n at least 2.

    The records are resampled, so both scores of a record stay together. Plain percentiles are too
    narrow where n is small; Hesterberg (2015, What Teachers Should Know About the Bootstrap, The
    American Statistician 69:371-386) takes those at Φ(±√(n/(n−1))·t) with t the quantile of
    Student's t with n − 1 degrees of freedom. The p-value is 1 minus the level at which the
    interval reaches zero, from the share of draws beyond it with one draw added.

    Where more than `MOST_RESAMPLED` records differ, nothing is drawn: the means of samples are then
    normal, with the standard deviation of the differences over √n, and so the interval is
    Student's. No share is smaller than what `samples` draws could show.
    """
    if d.size < 2:
        raise ValueError("an interval of a difference needs at least two records")
    n = d.size
    quantile = math.sqrt(n / (n - 1)) * float(special.stdtrit(n - 1, (1 - level) / 2))
    tail = float(special.ndtr(quantile))
    if np.count_nonzero(d) > MOST_RESAMPLED:
        low, high, share = _limit(d, tail, samples)
    else:
        low, high, share = _resampled(d, tail, samples, seed)
    at_zero = special.ndtri(share) * math.sqrt((n - 1) / n)
    return DifferenceInterval(low, high, float(2 * special.stdtr(n - 1, at_zero)))


def _resampled(d: Array, tail: float, samples: int, seed: int) -> tuple[float, float, float]:
    """Of the means of samples: what cuts off a tail at each end, and the share beyond zero."""
    means = bootstrap_means if d.size <= MOST_RESAMPLED else _sparse_means
    draws = means(d, samples, seed)
    low, high = np.quantile(draws, [tail, 1 - tail])
    beyond = min(np.count_nonzero(draws <= 0), np.count_nonzero(draws >= 0))
    return float(low), float(high), min(0.5, (beyond + 1) / (samples + 1))


def _sparse_means(d: Array, samples: int, seed: int) -> Array:
    """As `bootstrap_means`, ``[samples]``, where few values are not zero: of the zeros only how
    many are drawn matters, and that is binomial."""
    generator = np.random.Generator(np.random.PCG64(seed))
    others = d[d != 0]
    if not others.size:
        return np.zeros(samples)
    counts = generator.binomial(d.size, others.size / d.size, samples)
    sums = []
    for some in np.array_split(counts, -(-samples * others.size // _DRAWS)):
        drawn = others[generator.integers(others.size, size=some.sum(), dtype=np.uint32)]
        sample = np.repeat(np.arange(some.size), some)
        sums.append(np.bincount(sample, weights=drawn, minlength=some.size))
    return np.concatenate(sums) / d.size


def _limit(d: Array, tail: float, samples: int) -> tuple[float, float, float]:
    """The same of the normal distribution that they come to where records are many."""
    mean = float(d.mean())
    if (d == d[0]).all():
        return mean, mean, 1 / (samples + 1) if mean else 0.5
    deviation = float(d.std()) / math.sqrt(d.size)
    away = -float(special.ndtri(tail)) * deviation
    share = float(special.ndtr(-abs(mean) / deviation))
    ends = max(mean - away, float(d.min())), min(mean + away, float(d.max()))
    return *ends, max(share, 1 / (samples + 1))


def one_sided_bound(d: Array, *, upper: bool, end: float, samples: int, seed: int) -> float | None:
    """The bound that the true mean of values, ``[n]``, is not beyond in 95 % of cases: an end of
    the two-sided 90 % interval.

    Equal values show no spread. Their bound is v + (end − v)·(1 − 0.05^(1/n)), `end` being the last
    value that there can be on that side: that of Learned-Miller and Thomas (2019, A New Confidence
    Interval for the Mean of a Bounded Random Variable), and of Clopper and Pearson (1934) where all
    of n are 0 or 1. None where `end` is infinite.
    """
    if (d == d[0]).all():
        beyond = 1 - (1 - LEVEL) ** (1 / d.size)
        return float(d[0] + (end - d[0]) * beyond) if math.isfinite(end) else None
    interval = paired_interval(d, samples=samples, seed=seed, level=2 * LEVEL - 1)
    return interval.high if upper else interval.low


def least_detectable(deviation: float, n: int) -> float:
    """The least mean difference that n records, at least 2, show in `POWER` of the cases.

    `deviation` is the standard deviation of the differences. Of a two-sided paired t test at level
    `ALPHA`: (t(1 − α/2) + t(power))·σ/√n with n − 1 degrees of freedom (Bloom 1995, Minimum
    Detectable Effects, Evaluation Review 19:547-556).
    """
    quantiles = special.stdtrit(n - 1, 1 - ALPHA / 2) + special.stdtrit(n - 1, POWER)
    return float(quantiles) * deviation / math.sqrt(n)


def records_needed(deviation: float, difference: float) -> int:
    """The fewest records, at least `MIN_VALUES`, of which `least_detectable` is the difference."""
    if not difference > 0:
        raise ValueError("only a difference above zero can be shown")
    normal = special.ndtri(1 - ALPHA / 2) + special.ndtri(POWER)
    n = max(MIN_VALUES, math.floor((float(normal) * deviation / difference) ** 2))
    while n < _NORMAL_FROM and least_detectable(deviation, n) > difference:
        n += 1
    return n


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction (1979) of a family of p-values; those that are None do not count.

    The smallest of m is multiplied by m, the next by m − 1 and so on; none falls below the one
    before it, and none exceeds 1.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    so_far = 0.0
    for rank, (p, place) in enumerate(known):
        so_far = max(so_far, min(1.0, p * (len(known) - rank)))
        corrected[place] = so_far
    return corrected


def verdict(difference: Difference, corrected: float | None) -> Verdict:
    """The verdict on a difference, by its corrected bootstrap p-value."""
    if difference.n and difference.same == difference.n:
        return "same"
    if corrected is None or difference.mean is None:
        return "too few"
    if corrected > ALPHA:
        return "not shown"
    return "higher" if difference.mean > 0 else "lower"
