"""The NLI pair matrix of one document and summary, and how it is shrunk. Pure numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Places of the categories in the last axis of an image.
ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2

#: Rounding of a softmax in single precision may reach so far beyond 0 and 1.
ROUNDING = 1e-5

_OPERATORS: dict[str, Callable[..., Any]] = {"max": np.max, "mean": np.mean, "min": np.min}
OPERATORS = tuple(_OPERATORS)

Values = NDArray[np.float64]


def as_image(probabilities: ArrayLike) -> Values | None:
    """`[document blocks, summary sentences, 3]`; None where there is no block on a side.

    `ValueError` for another shape and for what is no probability.
    """
    try:
        image = np.asarray(probabilities, dtype=np.float64)
    except (ValueError, TypeError) as exc:
        raise ValueError(
            "probabilities must be [document block][summary sentence][3] numbers, every document "
            "block with as many summary sentences"
        ) from exc
    if image.size == 0:
        return None
    if image.ndim != 3 or image.shape[2] != 3:
        shape = ", ".join(map(str, image.shape))
        raise ValueError(f"probabilities must be [document, summary, 3], not [{shape}]")
    if not (np.isfinite(image).all() and -ROUNDING <= image.min() <= image.max() <= 1 + ROUNDING):
        raise ValueError("probabilities must be numbers from 0 to 1")
    return np.clip(image, 0.0, 1.0)


def reduce(values: Values, operator: str, axis: int = 0) -> Any:  # a scalar or an array
    """The minimum, mean or maximum along an axis."""
    return _OPERATORS[operator](values, axis=axis)


def check(name: str, value: str, known: Sequence[str]) -> None:
    """`ValueError` that names the known values of an option."""
    if value not in known:
        raise ValueError(f"{name} is one of {', '.join(known)}, not {value!r}")
