"""Distinct items of a call: a model computes each text or pair once, and every input gets it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain, count
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=Hashable)

Pair = tuple[str, str]


class Distinct(NamedTuple, Generic[T]):
    """Distinct items in the order of their first occurrence, and where each input went."""

    items: list[T]
    inverse: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many inputs each distinct item stands for."""
        return np.bincount(self.inverse, minlength=len(self.items))

    def positions(self, *items: int) -> tuple[int, ...]:
        """The places of distinct items in the input."""
        return tuple(np.flatnonzero(np.isin(self.inverse, items)).tolist())


class DistinctPairs(NamedTuple):
    """Distinct pairs, and the distinct ``texts`` in them: ``places`` ``[pairs, 2]`` says which."""

    pairs: Distinct[Pair]
    texts: list[str]
    places: NDArray[np.int64]


def distinct(items: Sequence[T]) -> Distinct[T]:
    """Return each item once; ``[d.items[i] for i in d.inverse]`` is the input again."""
    places: defaultdict[T, int] = defaultdict(count().__next__)
    inverse = np.fromiter(map(places.__getitem__, items), np.int64, count=len(items))
    return Distinct(list(places), inverse)


def distinct_pairs(pairs: Sequence[Pair]) -> DistinctPairs:
    """Return each pair once and each text once, both in the order of their first occurrence.

    Each text is hashed once; the rest is arithmetic on arrays.
    """
    texts = distinct(list(chain.from_iterable(pairs)))
    places = texts.inverse.reshape(-1, 2)
    numbers = places[:, 0] * len(texts.items) + places[:, 1]
    _, places_first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(places_first)  # of first occurrence, not of the numbers
    first, rank = places_first[order], np.empty_like(order)
    rank[order] = np.arange(len(order))
    items = [pairs[i] for i in first.tolist()]
    return DistinctPairs(Distinct(items, rank[inverse]), texts.items, places[first])


def distinct_texts(texts: Sequence[str], lacks: str = "it has no embedding") -> Distinct[str]:
    """Return each text once, without the space around it; `ValueError` for a blank text."""
    stripped = [text.strip() for text in texts]
    if "" in stripped:
        raise ValueError(f"text {stripped.index('')} is empty: {lacks}")
    return distinct(stripped)
