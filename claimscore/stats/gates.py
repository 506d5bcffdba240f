"""Gates: limits of a mean, of scores or of differences, beyond which a build fails."""

from __future__ import annotations

from typing import NamedTuple

from claimscore.stats.bootstrap import MIN_VALUES, Array
from claimscore.stats.paired import EQUAL_WITHIN, one_sided_bound, records_needed


class Limit(NamedTuple):
    """A mean of the metric above `value`, or below it, fails; `text` says so to people."""

    text: str
    metric: str
    above: bool
    value: float


class Gate(NamedTuple):
    """A limit judged by `n` values: their mean, and whether its one-sided 95 % bound is beyond it.

    `run` is the one whose differences to a baseline these are, None for scores. Fewer than
    `MIN_VALUES` are not judged, nor equal values beyond the limit of a metric without an end on
    that side: no `bound`, and `fails` is None. So many values as `needed` would show a difference
    as large as the limit, or that a mean is as far beyond it as this one, where that is so.
    """

    text: str
    metric: str
    above: bool
    limit: float
    run: str | None
    n: int
    mean: float | None = None
    bound: float | None = None
    fails: bool | None = None
    needed: int | None = None

    def __str__(self) -> str:
        """The verdict for people."""
        records = f"{self.n:,} record{'' if self.n == 1 else 's'}"
        if self.mean is None:
            both = f"of {self.run} and the baseline have both scores" if self.run else "with scores"
            return f"{self.text}: only {records} {both}; a bound needs {MIN_VALUES}"
        sign, name = ("+", f"{self.run}: difference") if self.run else ("", "mean")
        judged = {True: "fails", False: "passes", None: "cannot be judged"}[self.fails]
        if self.fails is False and (
            self.mean > self.limit if self.above else self.mean < self.limit
        ):
            judged = f"not shown to be {'above' if self.above else 'below'}"
        line = f"{self.text}: {judged}; {name} {self.mean:{sign}.4g}, "
        if self.bound is None:
            return f"{line}the same in {records}; such values of a metric without end have no bound"
        line += f"at {'least' if self.above else 'most'} {self.bound:{sign}.4g}"
        line += f" (one-sided 95 % bound, {records}"
        if not self.fails and self.needed is not None and self.needed > self.n:
            what = f"a difference of {abs(self.limit):g}" if self.run else "to be sure"
            line += f"; {what} takes about {self.needed:,}"
        return f"{line})"


def judged(
    limit: Limit,
    values: Array,
    *,
    range: tuple[float, float],
    run: str | None,
    samples: int,
    seed: int,
) -> Gate:
    """The gate of a limit and finite values, ``[n]``, of a metric with that range."""
    gate = Gate(*limit, run, values.size)
    if values.size < MIN_VALUES:
        return gate
    mean = float(values.mean())
    least, most = (range[0] - range[1], range[1] - range[0]) if run else range
    end, drawn = least if limit.above else most, {"samples": samples, "seed": seed}
    bound = one_sided_bound(values, upper=not limit.above, end=end, **drawn)
    beyond = mean - limit.value if limit.above else limit.value - mean
    if bound is None:
        fails = None if beyond > 0 else False
    else:
        fails = bound > limit.value if limit.above else bound < limit.value
    distance, deviation = abs(limit.value) if run else beyond, float(values.std(ddof=1))
    needed = records_needed(deviation, distance) if distance > EQUAL_WITHIN and deviation else None
    return gate._replace(mean=mean, bound=bound, fails=fails, needed=needed)
