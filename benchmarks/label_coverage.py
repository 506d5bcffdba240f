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

TRUTH = float(stats.norm.cdf(1.2 / np.sqrt(2)))


class Case(NamedTuple):
    """How much of the hidden number the judge sees (0 to 1), and its bias."""

    n_records: int
    n_labels: int
    informed: float
    bias: float


CASES = (
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
    hidden = generator.normal(size=case.n_records)[record] + generator.normal(size=n) + 1.2
    noise = 1.5 * generator.normal(size=n)
    predicted = 1 / (1 + np.exp(-2 * (case.informed * hidden + (1 - case.informed) * noise + bias)))
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
            ((found.corrected, TRUTH), (found.classical, TRUTH), (difference.corrected, 0.0))
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
    print("records  labels  judge sees  bias | corrected  classical  difference | width")
    for case in CASES:
        (corrected, classical, difference), width = simulated(
            case, given.simulations, given.samples
        )
        print(
            f"{case.n_records:7}  {case.n_labels:6}  {case.informed:10.1f}  {case.bias:4.1f} | "
            f"{corrected:9.1%}  {classical:9.1%}  {difference:10.1%} | {width:5.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
