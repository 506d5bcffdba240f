"""How alike two texts are: by their letters, or by the vectors of a sentence encoder.

Both are asked for many small groups of texts at once (the claims of one side of one record that
have no equal), and answer with the pairs of a group that are alike enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from claimscore.pipeline.encoders.protocols import Embedder, RejectedItemsError

Numbers = NDArray[np.int64]

#: Pairs whose similarity is lower are two texts, not one that was reworded.
TRIGRAM_THRESHOLD = 0.5
COSINE_THRESHOLD = 0.75

#: Rows, and pairs of vectors, that are worked on at a time.
_ROWS, _PAIRS = 20_000, 200_000

_GAPS = re.compile(r"[\W_]+")

#: Beyond Unicode's last code point.
_BASE = np.uint64(1 << 21)

#: Odd factors that spread a trigram and its group over 64 bits.
_SPREAD, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class Group(NamedTuple):
    """Texts, and the number of the group that each belongs to."""

    texts: Sequence[str]
    groups: Numbers


class Alike(NamedTuple):
    """Positions of pairs in two `Group`s, and how alike they are; nothing below the threshold."""

    a: Numbers
    b: Numbers
    similarity: NDArray[np.float64]


class Similarity(Protocol):
    """`name` says what the number is, for people."""

    name: str
    threshold: float

    def alike(self, a: Group, b: Group) -> Alike: ...


class TrigramSimilarity:
    """Dice's coefficient of the sets of letter trigrams of two texts, 0 to 1.

    Twice the number of trigrams that both have over the sum of the numbers that each has (Dice
    1945; for n-grams of letters Adamson and Boreham 1974). Case, punctuation and spaces count as
    in `normalised`.
    """

    name = "letter trigrams (Dice)"

    def __init__(self, threshold: float = TRIGRAM_THRESHOLD) -> None:
        self.threshold = threshold

    def alike(self, a: Group, b: Group) -> Alike:
        (rows_a, codes_a), (rows_b, codes_b) = _trigrams(a), _trigrams(b)
        found, places = np.unique(np.concatenate([codes_a, codes_b]), return_inverse=True)
        has_a = _incidence(rows_a, places[: rows_a.size], (len(a.texts), found.size))
        has_b = _incidence(rows_b, places[rows_a.size :], (len(b.texts), found.size))
        sizes_a, sizes_b = (np.diff(has.indptr) for has in (has_a, has_b))
        parts = []
        for start in range(0, len(a.texts), _ROWS):
            shared = (has_a[start : start + _ROWS] @ has_b.T).tocoo()
            row, column = shared.row.astype(np.int64) + start, shared.col.astype(np.int64)
            dice = 2.0 * shared.data / (sizes_a[row] + sizes_b[column])
            parts.append(_kept(Alike(row, column, dice), self.threshold))
        return _joined(parts)


class _Trigrams(NamedTuple):
    """The text and the code of every trigram; one of another group has another code, so that no
    pair crosses groups."""

    rows: Numbers
    codes: NDArray[np.uint64]


def _trigrams(given: Group) -> _Trigrams:
    padded = [f" {normalised(text)} " for text in given.texts]
    letters = np.frombuffer("".join(padded).encode("utf-32-le", "replace"), dtype=np.uint32)
    owners = np.repeat(np.arange(len(padded)), np.array([*map(len, padded)], dtype=np.int64))
    whole = owners[:-2] == owners[2:]
    rows = owners[:-2][whole]
    first, second, third = (
        letters[place : place + whole.size][whole].astype(np.uint64) for place in range(3)
    )
    spelt = (first * _BASE + second) * _BASE + third  # 63 bits: exact
    return _Trigrams(rows, spelt * _SPREAD + given.groups[rows].astype(np.uint64) * _SHIFT)


def normalised(text: str) -> str:
    """Lower case, with single spaces for whatever is neither letter nor digit."""
    return _GAPS.sub(" ", text.lower()).strip()


def _incidence(rows: Numbers, columns: Numbers, shape: tuple[int, int]) -> sparse.csr_array:
    ones = np.ones(rows.size, dtype=np.int32)
    found = sparse.csr_array((ones, (rows, columns)), shape=shape)  # equals are added up
    found.data[:] = 1
    return found


class EmbeddingSimilarity:
    """The cosine of two texts' vectors by a sentence encoder; a text without a vector has none."""

    def __init__(
        self,
        embedder: Embedder,
        threshold: float = COSINE_THRESHOLD,
        on_texts: Callable[[int, int], None] | None = None,
    ) -> None:
        self.threshold = threshold
        self.name = f"cosine of vectors by {embedder.info.model}"
        self._embedder = embedder
        self._on_texts = on_texts

    def alike(self, a: Group, b: Group) -> Alike:
        pairs = _pairs(a.groups, b.groups)
        texts = [*a.texts, *b.texts]
        needed = np.unique(np.concatenate([pairs.a, pairs.b + len(a.texts)])).tolist()
        vectors = self._vectors([texts[place] for place in needed])
        if not vectors:
            return _joined([])
        places = np.full(len(texts), -1, dtype=np.int64)
        kept = [place for place in needed if texts[place].strip() in vectors]
        places[kept] = np.arange(len(kept))
        matrix = np.stack([vectors[texts[place].strip()] for place in kept])
        parts = []
        for start in range(0, pairs.a.size, _PAIRS):
            row, column = (side[start : start + _PAIRS] for side in (pairs.a, pairs.b))
            one, other = places[row], places[column + len(a.texts)]
            have = (one >= 0) & (other >= 0)
            cosines = np.einsum("ij,ij->i", matrix[one[have]], matrix[other[have]])
            found = Alike(row[have], column[have], cosines.astype(np.float64).clip(-1.0, 1.0))
            parts.append(_kept(found, self.threshold))
        return _joined(parts)

    def _vectors(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The vector, of length 1, of each distinct text that has one."""
        wanted = [text for text in dict.fromkeys(map(str.strip, texts)) if text]
        while wanted:
            try:
                vectors = self._embedder.embed(wanted, on_batch=self._listen(len(wanted)))
            except RejectedItemsError as exc:
                rejected = set(exc.indices)
                wanted = [text for place, text in enumerate(wanted) if place not in rejected]
                continue
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            unit = vectors / np.where(lengths == 0, 1.0, lengths)
            return dict(zip(wanted, unit, strict=True))
        return {}

    def _listen(self, total: int) -> Callable[[int], None] | None:
        tell = self._on_texts
        return None if tell is None else lambda done: tell(done, total)


class _Pairs(NamedTuple):
    a: Numbers
    b: Numbers


def _pairs(groups_a: Numbers, groups_b: Numbers) -> _Pairs:
    """Every position of one side with every one of the other that has the same group."""
    a, b = (
        pl.DataFrame({"group": groups, name: np.arange(groups.size)})
        for name, groups in (("a", groups_a), ("b", groups_b))
    )
    joined = a.join(b, on="group", maintain_order="left_right")
    return _Pairs(joined["a"].to_numpy(), joined["b"].to_numpy())


def _kept(found: Alike, threshold: float) -> Alike:
    enough = found.similarity >= threshold
    return Alike(found.a[enough], found.b[enough], found.similarity[enough])


def _joined(parts: Sequence[Alike]) -> Alike:
    none = np.zeros(0, np.int64)
    empty = Alike(none, none, np.zeros(0))
    return Alike(*(np.concatenate(columns) for columns in zip(empty, *parts, strict=True)))
