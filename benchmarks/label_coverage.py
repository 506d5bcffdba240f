"""How often intervals corrected by labels hold the truth, and how wide they are.

    python benchmarks/label_coverage.py --simulations 500

Records of 2 to 9 claims, true or not by a hidden number; a judge sees it with noise and a bias, and
some claims are labelled as `claimscore label` draws them. For each case: coverage of the corrected
and the classical mean and of the corrected difference of two judges, the 95 % range of a binomial
of 95 %, and the mean width of the corrected interval over that of the classical one.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from scipy import stats

from claimscore.stats.prediction_powered import (
    LabelledSample,
    corrected_difference,
    corrected_mean,
    stratified_draw,
)


class Case(NamedTuple):
    """How much of the hidden number the judge sees (0 to 1), its bias, how sure it is, and the mean
    of the hidden number."""

    n_records: int
    n_labels: int
    informed: float
    bias: float
    sharp: float = 2.0
    level: float = 1.2

    @property
    def truth(self) -> float:
        """The share of claims that are true."""
        return float(stats.norm.cdf(self.level / np.sqrt(2)))


CASES = (
    *(Case(60, n, 0.7, 0.5) for n in range(1, 11)),
    *(Case(60, n, 0.7, 0.3, level=2.5) for n in (1, 2, 4, 6, 7, 8, 9, 10, 12, 16)),
    *(Case(60, n, 0.0, 0.0, level=0.0) for n in (2, 4, 7, 8, 10, 16)),
    *(Case(100, n, 0.9, 0.3, 12.0, level) for n in (8, 16, 40) for level in (1.2, 2.5)),
    Case(150, 80, 0.9, 0.8),
    Case(150, 80, 0.5, -0.6),
    Case(150, 80, 0.0, 0.0),
    Case(400, 200, 0.9, -0.8),
    Case(400, 200, 0.7, 0.5),
    Case(400, 60, 0.5, 0.6),
)


def population(case: Case, generator: np.random.Generator, bias: float) -> LabelledSample:
    """A sample with labels, judged with that bias."""
    record = np.repeat(np.arange(case.n_records), generator.integers(2, 10, case.n_records))
    n = record.size
    hidden = generator.normal(size=case.n_records)[record] + generator.normal(size=n) + case.level
    noise = 1.5 * generator.normal(size=n)
    seen = case.informed * hidden + (1 - case.informed) * noise + bias
    predicted = 1 / (1 + np.exp(-case.sharp * seen))
    stratum = np.digitize(predicted, [0.15, 0.5])
    draw = stratified_draw(stratum, predicted, case.n_labels, int(generator.integers(2**31)))
    label, weight = np.full(n, np.nan), np.zeros(n)
    label[draw.places] = hidden[draw.places] > 0
    weight[draw.places] = draw.weights
    metric = (predicted > 0.5).astype(float)
    share = 1 / np.bincount(record)[record]
    return LabelledSample(record, share, metric, predicted, stratum, label, weight)


def simulated(case: Case, simulations: int, samples: int) -> tuple[list[float], float]:
    """Coverage of corrected and classical mean and of the difference; the ratio of the widths."""
    generator = np.random.default_rng(0)
    held, widths = np.zeros(3), np.zeros(2)
    for seed in range(simulations):
        one, other = (population(case, generator, sign * case.bias) for sign in (1, -1))
        found = corrected_mean(one, samples=samples, seed=seed)
        difference = corrected_difference(other, one, samples=samples, seed=seed)
        for place, (estimate, truth) in enumerate(
            (
                (found.corrected, case.truth),
                (found.classical, case.truth),
                (difference.corrected, 0.0),
            )
        ):
            low, high = estimate.interval or (np.nan, np.nan)
            held[place] += low <= truth <= high
            if place < 2:
                widths[place] += high - low
    return (held / simulations).tolist(), float(widths[0] / widths[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--simulations", type=int, default=500)
    parser.add_argument("--samples", type=int, default=500)
    given = parser.parse_args()
    low, high = stats.binom.ppf([0.025, 0.975], given.simulations, 0.95) / given.simulations
    print(f"{given.simulations} simulations; coverage of 95 % is within {low:.1%} to {high:.1%}\n")
    print("records  labels  true  sees  bias  sharp | corrected  classical  difference | width")
    for case in CASES:
        (corrected, classical, difference), width = simulated(
            case, given.simulations, given.samples
        )
        print(
            f"{case.n_records:7}  {case.n_labels:6}  {case.truth:4.2f}  {case.informed:4.1f}  "
            f"{case.bias:4.1f}  {case.sharp:5.1f} | "
            f"{corrected:9.1%}  {classical:9.1%}  {difference:10.1%} | {width:5.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
