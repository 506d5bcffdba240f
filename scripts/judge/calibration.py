"""How well the probabilities of a classifier fit its errors, and the temperature that fits best.

Guo et al. 2017, *On Calibration of Modern Neural Networks* (https://arxiv.org/abs/1706.04599):
expected calibration error (section 2, equation 3) and temperature scaling (section 4.2,
equation 9).

Everywhere `probabilities` is ``[n, k]``, one row or more that sum to 1, and `labels` ``[n]`` holds
the number of the right column; nothing is checked.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

#: Bins of the expected calibration error: Guo et al. 2017, section 5.
ECE_BINS = 15

#: Temperatures that are tried.
LEAST_TEMPERATURE, LARGEST_TEMPERATURE = 0.02, 50.0

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
