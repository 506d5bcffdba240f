"""A gate: conditions on the differences of a comparison under which a build fails."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from claimscore.errors import ConfigError
from claimscore.evaluation.compare.comparison import Comparison
from claimscore.evaluation.ratings_table import finite_number
from claimscore.stats.bootstrap import MIN_VALUES
from claimscore.stats.paired import EQUAL_WITHIN, one_sided_bound, records_needed

_CONDITION = re.compile(r"\s*(\S+?)\s*([<>])\s*(\S+)\s*")


class Condition(NamedTuple):
    """A metric's mean difference to the baseline that fails: above `limit`, or below it."""

    text: str
    metric: str
    above: bool
    limit: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """`caspr > +2` or `claim-f1 < -0.01`; `ConfigError` for anything else."""
        condition = _CONDITION.fullmatch(text)
        limit = finite_number(condition[3]) if condition else None
        if condition is None or limit is None:
            raise ConfigError(
                f"--fail-if {text!r}: write a metric, > or <, and a difference, as in 'caspr > +2'"
            )
        return cls(" ".join(text.split()), condition[1], condition[2] == ">", limit)


class Gate(NamedTuple):
    """A condition for one run: the mean difference over `n` records, its one-sided 95 % bound, and
    whether that is beyond the limit.

    `needed` records would show a difference as large as the limit; None where it is zero.
    """

    condition: Condition
    run: str
    n: int
    difference: float
    bound: float
    fails: bool
    needed: int | None

    def __str__(self) -> str:
        """The verdict for people."""
        side = "at least" if self.condition.above else "at most"
        shown = f"{self.run}: difference {self.difference:+.4g}, {side} {self.bound:+.4g}"
        line = f"{self.condition.text}: {'fails' if self.fails else 'passes'}; {shown}"
        line += f" (one-sided 95 % bound, {self.n:,} records"
        if not self.fails and self.needed is not None and self.needed > self.n:
            line += f"; a difference of {abs(self.condition.limit):g} takes about {self.needed:,}"
        return f"{line})"


def gates(comparison: Comparison, conditions: Sequence[Condition]) -> Iterator[Gate]:
    """Each condition for each run.

    `ConfigError` where a run does not share the metric, or too few records have both scores: a gate
    that cannot be judged is no pass.
    """
    config = comparison.config
    for condition in conditions:
        for run in comparison.runs:
            scores = {paired.metric: paired.rows for paired in run.paired}
            if condition.metric not in scores:
                known = ", ".join(scores) or "none"
                raise ConfigError(
                    f"--fail-if {condition.text!r}: {run.b.path} and the baseline share no metric "
                    f"{condition.metric}; they share: {known}"
                )
            d = scores[condition.metric]["difference"].drop_nulls().to_numpy()
            if d.size < MIN_VALUES:
                raise ConfigError(
                    f"--fail-if {condition.text!r}: only {d.size} records of {run.b.path} and the "
                    f"baseline have both scores; a bound needs {MIN_VALUES}"
                )
            bound = one_sided_bound(
                d, upper=not condition.above, samples=config.samples, seed=config.seed
            )
            limit = condition.limit
            yield Gate(
                condition,
                str(run.b.path),
                d.size,
                float(d.mean()),
                bound,
                bound > limit if condition.above else bound < limit,
                records_needed(float(d.std(ddof=1)), abs(limit))
                if abs(limit) > EQUAL_WITHIN
                else None,
            )
