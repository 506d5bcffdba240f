"""How well the probabilities of a classifier fit its errors, and the temperature that fits best.

Guo et al. 2017, *On Calibration of Modern Neural Networks* (https://arxiv.org/abs/1706.04599):
expected calibration error (section 2, equation 3) and temperature scaling (section 4.2,
equation 9).

Everywhere `probabilities` is ``[n, k]``, one row or more that sum to 1, and `labels` ``[n]`` holds
the number of the right column; nothing is checked.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

#: Bins of the expected calibration error: Guo et al. 2017, section 5.
ECE_BINS = 15

#: Temperatures that are tried.
LEAST_TEMPERATURE, LARGEST_TEMPERATURE = 0.02, 50.0

#: Shifts of the logit of entailment that are tried, and the accuracy on NLI that one may cost.
SHIFTS = [round(0.1 * step, 1) for step in range(-20, 21)]
MOST_LOST = 0.005

#: Balanced accuracies this near count as equal.
NEAR = 0.002

Array = NDArray[np.float64]
_Integers = NDArray[np.int64]

#: Softmax in float32 reaches zero where the logits do not; below this it says nothing.
_LEAST = float(np.finfo(np.float32).tiny)


def expected_calibration_error(
    probabilities: ArrayLike, labels: ArrayLike, bins: int = ECE_BINS
) -> float:
    """The mean gap between confidence and accuracy, a fraction: Guo et al. 2017, equation 3.

    Confidence is the largest probability of a row (of equal ones the first is the prediction).
    The bins are of equal width and closed on the right: ((m-1)/M, m/M]. Each bin's gap of mean
    confidence and accuracy is weighted by its share of the rows.
    """
    values, right = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    confidence = values.max(axis=1)
    correct = values.argmax(axis=1) == right
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.bincount(place, weights=confidence - correct, minlength=bins)
    return float(np.abs(gaps).sum() / len(right))


def negative_log_likelihood(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """The mean of -ln(probability of the right answer), in nats.

    A probability below 1.2e-38, where float32 ends, counts as that.
    """
    values, right = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    return _nll(_logs(values), right, 1.0)


def best_temperature(probabilities: ArrayLike, labels: ArrayLike) -> float | None:
    """The temperature of least negative log-likelihood; Guo et al. 2017, section 4.2.

    The likelihood is convex in 1/T, so a bounded search on ln T finds its one minimum. None where
    there is none between 0.02 and 50: rows that are all right want a temperature of 0, rows whose
    probabilities say nothing an infinite one.
    """
    values, right = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    logs = _logs(values)
    low, high = math.log(LEAST_TEMPERATURE), math.log(LARGEST_TEMPERATURE)
    minimum = optimize.minimize_scalar(
        lambda place: _nll(logs, right, math.exp(place)),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-7},
    )
    least = min(_nll(logs, right, LEAST_TEMPERATURE), _nll(logs, right, LARGEST_TEMPERATURE))
    if min(minimum.x - low, high - minimum.x) < 1e-3 or minimum.fun >= least - 1e-12:
        return None
    return math.exp(minimum.x)


def _nll(logs: Array, right: _Integers, temperature: float) -> float:
    scaled = special.log_softmax(logs / temperature, axis=1)
    return -float(scaled[np.arange(len(right)), right].mean())


def _logs(values: Array) -> Array:
    logs: Array = np.log(np.maximum(values, _LEAST))
    return logs


# Support of claims


class Fit(NamedTuple):
    """A temperature, and a shift of the logit of entailment before it is divided."""

    temperature: float = 1.0
    shift: float = 0.0


class Pairs(NamedTuple):
    """Labelled pairs: logits ``[n, 3]``, entailment first, and the right columns."""

    logits: Array
    labels: _Integers

    def accuracy(self, fit: Fit) -> float:
        """The share of right labels; the temperature changes none."""
        return float((_shifted(self.logits, fit.shift).argmax(axis=1) == self.labels).mean())


class Claims(NamedTuple):
    """Labelled claims: the logits of all premises, the claim of each, labels 1 or 0, weights."""

    logits: Array
    owners: _Integers
    labels: _Integers
    weights: Array

    def only(self, chosen: ArrayLike) -> Claims:
        """The claims for which `chosen` is true."""
        mask = np.asarray(chosen, dtype=bool)
        kept, numbers = mask[self.owners], np.cumsum(mask) - 1
        owners = numbers[self.owners[kept]]
        return Claims(self.logits[kept], owners, self.labels[mask], self.weights[mask])


def supported(claims: Claims, fit: Fit) -> Array:
    """The largest probability of entailment of each claim."""
    logits = _shifted(claims.logits, fit.shift) / fit.temperature
    entailed = special.softmax(logits, axis=1)[:, 0]
    best = np.zeros(len(claims.labels))
    np.maximum.at(best, claims.owners, entailed)
    return best


def best_fit(claims: Claims, pairs: Pairs, most_lost: float = MOST_LOST) -> Fit:
    """The fit of least negative log-likelihood of the claims, as far as `pairs` allow it."""
    least = pairs.accuracy(Fit()) - most_lost
    fits = [
        _tempered(claims, shift) for shift in SHIFTS if pairs.accuracy(Fit(1.0, shift)) >= least
    ]
    return min(fits, key=lambda fit: _likelihood(claims, fit))


def _tempered(claims: Claims, shift: float) -> Fit:
    ends = math.log(LEAST_TEMPERATURE), math.log(LARGEST_TEMPERATURE)

    def loss(place: float) -> float:
        return _likelihood(claims, Fit(math.exp(place), shift))

    return Fit(math.exp(optimize.minimize_scalar(loss, bounds=ends, method="bounded").x), shift)


def _likelihood(claims: Claims, fit: Fit) -> float:
    support = np.clip(supported(claims, fit), _LEAST, 1 - 1e-12)
    right = np.where(claims.labels == 1, support, 1 - support)
    return -float(np.average(np.log(right), weights=claims.weights))


def reliability_error(
    probabilities: ArrayLike, labels: ArrayLike, weights: ArrayLike, bins: int = ECE_BINS
) -> float:
    """The mean gap between the probability of support and the share of supported claims.

    As `expected_calibration_error`, with the probability of support in place of the confidence.
    """
    values, right = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    shares = np.asarray(weights, dtype=np.float64)
    place = np.clip(np.ceil(values * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.bincount(place, weights=shares * (values - right), minlength=bins)
    return float(np.abs(gaps).sum() / shares.sum())


def best_threshold(probabilities: Array, labels: _Integers, weights: Array) -> float:
    """The probability of the best balanced accuracy, to two digits.

    The middle one of all that come as near to the best as `NEAR`.
    """
    steps = np.arange(1, 100) / 100
    holds = labels == 1
    yes = probabilities >= steps[:, None]
    recall = np.average(yes[:, holds], axis=1, weights=weights[holds])
    specificity = np.average(~yes[:, ~holds], axis=1, weights=weights[~holds])
    accuracy = (recall + specificity) / 2
    best = steps[accuracy >= accuracy.max() - NEAR]
    return float(best[len(best) // 2])


def _shifted(logits: Array, shift: float) -> Array:
    return logits + np.array([shift, 0.0, 0.0])
