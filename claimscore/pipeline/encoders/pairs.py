"""Distinct pairs of texts: each text is hashed once, and the rest is arithmetic on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimscore.pipeline.encoders.batching import Distinct, distinct

Pair = tuple[str, str]


class DistinctPairs(NamedTuple):
    """Distinct pairs, and the distinct ``texts`` in them: ``places`` ``[pairs, 2]`` says which."""

    pairs: Distinct[Pair]
    texts: list[str]
    places: NDArray[np.int64]


def distinct_pairs(pairs: Sequence[Pair]) -> DistinctPairs:
    """Return each pair once and each text once, both in the order of their first occurrence."""
    texts = distinct(list(chain.from_iterable(pairs)))
    places = texts.inverse.reshape(-1, 2)
    numbers = places[:, 0] * len(texts.items) + places[:, 1]
    once = distinct(numbers.tolist())
    first = np.flatnonzero(np.diff(np.maximum.accumulate(once.inverse), prepend=-1))
    items = [pairs[i] for i in first.tolist()]
    return DistinctPairs(Distinct(items, once.inverse), texts.items, places[first])
