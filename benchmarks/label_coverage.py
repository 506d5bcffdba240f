"""How often intervals corrected by labels hold the truth, and how wide they are, by way to draw.

    python benchmarks/label_coverage.py --simulations 1000

Records have 1 to 30 claims, most of them few; long ones are less true. A claim is true by a hidden
number, of which a judge sees a part. Labels are drawn as `claimscore label` draws them: `random`,
by `verdict`, by `uncertainty`; beside them by `share`, which is `uncertainty` with a judge that
says of all claims that it is unsure, so it shows what the uncertainty itself brings. For each judge
and number of labels: coverage of the corrected mean and of the corrected difference of two judges
of the same claims (truth: none), each at 95 %, and the mean width of the interval of the mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from claimscore.stats.bootstrap import Array
from claimscore.stats.prediction_powered import (
    Draw,
    LabelledSample,
    active_draw,
    corrected_difference,
    corrected_mean,
    stratified_draw,
)

#: Claims of a record, and how many records have that many.
SIZES = np.arange(1, 31)
OF_SIZE = (1 / SIZES) / (1 / SIZES).sum()

DRAWS = ("random", "verdict", "uncertainty", "share")


class Judge(NamedTuple):
    """`sees` is the deviation of what it sees of a claim, beside 1 of what nobody sees; its
    probabilities are those of what it sees, shifted by `bias`, and `stretch`ed."""

    sees: float
    bias: float = 0.0
    stretch: float = 1.0
    informed: bool = True


JUDGES = {
    "sure": Judge(4.0),
    "lenient": Judge(4.0, bias=1.5),
    "overconfident": Judge(1.5, stretch=3.0),
    "knows nothing": Judge(1.5, informed=False),
}


class Outcome(NamedTuple):
    """Shares of intervals that held the truth, of means and differences; and the mean width."""

    mean: float
    difference: float
    width: float


class Claims(NamedTuple):
    """The claims of records: their record, what is in sight of the judge, and whether true."""

    record: NDArray[np.intp]
    seen: Array
    true: Array

    @classmethod
    def drawn(
        cls, judge: Judge, n_records: int, level: float, generator: np.random.Generator
    ) -> Claims:
        size = generator.choice(SIZES, n_records, p=OF_SIZE)
        record = np.repeat(np.arange(n_records), size)
        of_record = generator.normal(size=n_records) + _level(level, size)
        seen = of_record[record] + judge.sees * generator.normal(size=record.size)
        return cls(record, seen, (seen + generator.normal(size=record.size) > 0).astype(float))


def _level(level: float, size: NDArray[np.intp]) -> Array:
    """The mean of the hidden number in records of that many claims."""
    return level - 0.3 * (np.log(size) - 1.5)


def truth(judge: Judge, level: float) -> float:
    """The mean over records of the share of claims that are true."""
    shares = stats.norm.cdf(_level(level, SIZES) / np.sqrt(2 + judge.sees**2))
    return float(OF_SIZE @ shares)


def labelled(
    claims: Claims, judge: Judge, draw: str, n: int, generator: np.random.Generator
) -> LabelledSample:
    """The claims as that judge sees them, `n` of them with labels."""
    seen = claims.seen if judge.informed else generator.permutation(claims.seen)
    predicted = stats.norm.cdf(judge.stretch * (seen + judge.bias))
    stratum = np.where(predicted >= 0.5, 0, np.where(predicted < 0.15, 1, 2))
    share = 1 / np.bincount(claims.record)[claims.record]
    chosen = _draw(draw, predicted, stratum, share, n, int(generator.integers(2**31)))
    label, weight = np.full(share.size, np.nan), np.zeros(share.size)
    label[chosen.places], weight[chosen.places] = claims.true[chosen.places], chosen.weights
    metric = (predicted >= 0.5).astype(float)
    return LabelledSample(claims.record, share, metric, predicted, stratum, label, weight)


def _draw(
    draw: str, predicted: Array, stratum: NDArray[np.intp], share: Array, n: int, seed: int
) -> Draw:
    same = np.ones(share.size)
    if draw == "verdict":
        return stratified_draw(stratum, predicted, n, seed)
    if draw == "random":
        return active_draw(same, same, same, n, seed)
    uncertainty = 1 - np.abs(2 * predicted - 1) if draw == "uncertainty" else same
    return active_draw(uncertainty, share, predicted, n, seed)


def simulated(
    judge: Judge,
    draw: str,
    n: int,
    *,
    simulations: int,
    samples: int = 300,
    n_records: int = 200,
    level: float = 1.2,
) -> Outcome:
    """The same for the same arguments."""
    generator = np.random.default_rng([n, 7])
    expected, other = truth(judge, level), judge._replace(bias=-judge.bias - 0.3)
    held, width = np.zeros(2), 0.0
    for seed in range(simulations):
        claims = Claims.drawn(judge, n_records, level, generator)
        one, two = (labelled(claims, of, draw, n, generator) for of in (judge, other))
        mean = corrected_mean(one, samples=samples, seed=seed).corrected
        difference = corrected_difference(one, two, samples=samples, seed=seed).corrected
        for place, (estimate, value) in enumerate(((mean, expected), (difference, 0.0))):
            low, high = estimate.interval or (np.nan, np.nan)
            held[place] += low <= value <= high
        low, high = mean.interval or (np.nan, np.nan)
        width += high - low
    return Outcome(*(held / simulations).tolist(), width / simulations)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--labels", type=int, nargs="+", default=[20, 60, 200])
    parser.add_argument("--judges", nargs="+", default=list(JUDGES), choices=JUDGES)
    parser.add_argument("--draws", nargs="+", default=list(DRAWS[:3]), choices=DRAWS)
    parser.add_argument("--level", type=float, default=1.2, help="3: nearly all claims are true")
    given = parser.parse_args(arguments)
    low, high = stats.binom.ppf([0.025, 0.975], given.simulations, 0.95) / given.simulations
    print(f"{given.simulations} simulations; coverage of 95 % is within {low:.1%} to {high:.1%}\n")
    print("judge          labels  draw         |  mean  difference | width")
    for name in given.judges:
        for n in given.labels:
            for draw in given.draws:
                outcome = simulated(
                    JUDGES[name],
                    draw,
                    n,
                    simulations=given.simulations,
                    n_records=given.records,
                    level=given.level,
                )
                print(
                    f"{name:13}  {n:6}  {draw:11}  | {outcome.mean:5.1%}  "
                    f"{outcome.difference:10.1%} | {outcome.width:5.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
