"""Token ids of many rows in flat arrays: tokenised once, joined into batches by array operations.

A row is what one forward pass sees as one sequence: a text with its special tokens, or a pair of
texts. Nothing here knows a model or a device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class TokenBatch(NamedTuple):
    """Rows without padding one after another.

    ``ids``, ``types`` and ``within`` (the place in its row) are of each token ``[tokens]``,
    ``lengths`` of each row ``[rows]``.
    """

    ids: Ints
    types: Ints
    within: Ints
    lengths: Ints

    @classmethod
    def of(cls, ids: NDArray[np.integer], types: NDArray[np.integer], lengths: Ints) -> TokenBatch:
        """The batch of rows of these lengths."""
        starts = np.cumsum(lengths) - lengths
        within = np.arange(len(ids)) - np.repeat(starts, lengths)
        ids, types = (part.astype(np.int64, copy=False) for part in (ids, types))
        return cls(ids, types, within, lengths)

    @property
    def starts(self) -> Ints:
        """Where each row begins."""
        return np.cumsum(self.lengths) - self.lengths

    def cut(self, rows: Sequence[int]) -> list[TokenBatch]:
        """Batches of so many of the rows each, as views."""
        ends = np.cumsum(rows)
        tokens = np.cumsum(self.lengths)[ends - 1].tolist()
        return [
            TokenBatch(self.ids[a:b], self.types[a:b], self.within[a:b], self.lengths[first:end])
            for a, b, first, end in zip([0, *tokens], tokens, [0, *ends], ends, strict=False)
        ]

    def split(self) -> list[Ints]:
        """The ids row by row."""
        return np.split(self.ids, self.starts[1:]) if len(self.lengths) else []


class TokenRows(Protocol):
    """Rows from which any batch can be taken."""

    @property
    def lengths(self) -> Ints: ...

    def batch(self, places: Ints) -> TokenBatch:
        """Return the rows at ``places`` in that order."""
        ...


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Lists of unlike length in one flat array."""

    flat: NDArray[np.int32]
    lengths: Ints

    @cached_property
    def starts(self) -> Ints:
        return np.cumsum(self.lengths) - self.lengths

    def row(self, i: int) -> NDArray[np.int32]:
        return self.flat[self.starts[i] : self.starts[i] + self.lengths[i]]


def ragged(rows: Iterable[Sequence[int]]) -> Ragged:
    """Return lists of ids as flat array and lengths."""
    kept = list(rows)
    lengths = np.fromiter(map(len, kept), np.int64, count=len(kept))
    flat = np.fromiter(chain.from_iterable(kept), np.int32, count=int(lengths.sum()))
    return Ragged(flat, lengths)


def take(starts: Ints, lengths: Ints) -> Ints:
    """Return the indices of the ranges ``start .. start + length`` one after another."""
    shifts = starts - (np.cumsum(lengths) - lengths)
    return np.repeat(shifts, lengths) + np.arange(int(lengths.sum()))


class WholeRows:
    """Rows that the tokenizer has made itself; ``types`` default to zeros."""

    def __init__(self, ids: Ragged, types: Ragged | None = None) -> None:
        self._ids = ids
        self._types = types

    @property
    def lengths(self) -> Ints:
        return self._ids.lengths

    def batch(self, places: Ints) -> TokenBatch:
        lengths = self._ids.lengths[places]
        index = take(self._ids.starts[places], lengths)
        types = np.zeros_like(index) if self._types is None else self._types.flat[index]
        return TokenBatch.of(self._ids.flat[index], types, lengths)


class PairTemplate(NamedTuple):
    """The special tokens around and between two texts, and the token type of each part."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, int, int, int, int]

    @property
    def n_special(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


class PairRows:
    """Rows put together from the ids of single texts: each is named by two places in ``texts``.

    ``kept`` ``[pairs, 2]`` says how many ids of either text remain (the first ones).
    """

    def __init__(self, template: PairTemplate, texts: Ragged, places: Ints, kept: Ints) -> None:
        special = [*template.before, *template.between, *template.after]
        self._pool = np.concatenate([np.array(special, dtype=np.int32), texts.flat])
        sizes = [len(template.before), len(template.between), len(template.after)]
        begins = np.array([0, sizes[0], sizes[0] + sizes[1]])
        n = len(places)
        self._starts = np.empty((n, 5), dtype=np.int64)
        self._sizes = np.empty((n, 5), dtype=np.int64)
        self._starts[:, 0::2], self._sizes[:, 0::2] = begins, sizes
        self._starts[:, 1::2] = texts.starts[places] + len(special)
        self._sizes[:, 1::2] = kept
        self._types = np.array(template.types, dtype=np.int64)
        self._lengths: Ints = self._sizes.sum(axis=1)

    @property
    def lengths(self) -> Ints:
        return self._lengths

    def batch(self, places: Ints) -> TokenBatch:
        sizes = self._sizes[places].reshape(-1)
        index = take(self._starts[places].reshape(-1), sizes)
        if self._types.any():
            types = np.repeat(np.tile(self._types, len(places)), sizes)
        else:
            types = np.zeros_like(index)
        return TokenBatch.of(self._pool[index], types, self._lengths[places])


def cut_longest_first(sizes: Ints, most: int) -> Ints:
    """Return how much of two texts remains where together they may have ``most`` ids, ``[n, 2]``.

    The rule of the tokenizers' ``longest_first``: the longer text is cut to what the shorter one
    leaves; where that is not enough, both get half, the second (or the longer) the odd one.
    """
    first, second = sizes[:, 0], sizes[:, 1]
    swap = first > second
    short, long = np.where(swap, second, first), np.where(swap, first, second)
    rest = np.where(short > most, short, np.maximum(short, most - short))
    rest = np.minimum(rest, long)
    halves = short + rest > most
    short = np.where(halves, most // 2, short)
    rest = np.where(halves, most // 2 + most % 2, rest)
    cut = np.stack([np.where(swap, rest, short), np.where(swap, short, rest)], axis=1)
    return np.where((first + second > most)[:, None], cut, sizes)
