"""The label matrices of records, from NLI rows to short strings.

Probabilities are thousandths, two base-64 characters each: a matrix of 10 by 10 claims in
both directions takes 800 bytes and 100 more for its labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

JSON = dict[str, Any]

MAX_CELLS = 10_000
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
MISSING = 4095  # "__": this pair was not judged
_CODES = np.array([[ord(ALPHABET[v >> 6]), ord(ALPHABET[v & 63])] for v in range(4096)], np.uint8)
#: Label of a pair from the labels of its two directions (METRICS section 3).
_PAIR = np.array([list(b"EEN"), list(b"ENC"), list(b"NCC")], np.uint8)
_ONE = np.frombuffer(b"ENC", np.uint8)

#: A report holds so many characters of facts, blocks, their matrices and of scores' parts; then
#: it says so.
MAX_MATRIX_CHARS = 30_000_000

_SIDE_ORDER = ("a", "b", "common", "source", "summary")


class Room:
    """How many more characters a page may hold."""

    def __init__(self, chars: int = MAX_MATRIX_CHARS) -> None:
        self.left = chars

    def take(self, chars: int) -> bool:
        """Whether that many fit; if so they are taken."""
        if chars > self.left:
            return False
        self.left -= chars
        return True


class Matrices:
    """The NLI rows of a chunk, found again by the position of their record."""

    def __init__(self, ids: list[str], nli: pl.DataFrame) -> None:
        positions = pl.DataFrame(
            {"id": ids, "position": np.arange(len(ids))},
            schema={"id": pl.String(), "position": pl.Int64()},
        )
        joined = nli.join(positions, on="id", how="inner", maintain_order="left").sort(
            "position", maintain_order=True
        )
        names = pl.concat([joined["premise_side"], joined["hypothesis_side"]]).unique().to_list()
        self.sides = sorted(names, key=_side_rank)
        sides = pl.Enum(self.sides)
        first, second = (
            joined[column].cast(sides).to_physical().to_numpy().astype(np.intp)
            for column in ("premise_side", "hypothesis_side")
        )
        self.pair = first * len(self.sides) + second
        self.premise = joined["premise_index"].to_numpy()
        self.hypothesis = joined["hypothesis_index"].to_numpy()
        self.p = joined.select("entailment", "neutral", "contradiction").to_numpy()
        self.bounds = np.searchsorted(joined["position"].to_numpy(), np.arange(len(ids) + 1))

    def of(self, position: int) -> list[JSON]:
        start, stop = int(self.bounds[position]), int(self.bounds[position + 1])
        if start == stop:
            return []
        pair, n = self.pair[start:stop], len(self.sides)
        # The code of a pair and of its reverse, smaller first: one matrix for both.
        both = {tuple(sorted(divmod(int(code), n))) for code in np.unique(pair)}
        return [
            self._matrix(
                self.sides[a],
                self.sides[b],
                start + np.flatnonzero(pair == a * n + b),
                start + np.flatnonzero((pair == b * n + a) & (a != b)),
            )
            for a, b in sorted(both)
        ]

    def _matrix(self, a: str, b: str, there: np.ndarray, back: np.ndarray) -> JSON:
        i = np.concatenate([self.premise[there], self.hypothesis[back]])
        j = np.concatenate([self.hypothesis[there], self.premise[back]])
        rows, columns = int(i.max()) + 1, int(j.max()) + 1
        found: JSON = {"rows": a, "columns": b, "size": [rows, columns]}
        if rows * columns > MAX_CELLS:
            return found
        half = len(there)
        forward = self._direction(there, i[:half] * columns + j[:half], rows * columns)
        backward = self._direction(back, i[half:] * columns + j[half:], rows * columns)
        found["labels"] = _labels(forward, backward)
        found["forward"] = _encode(forward) if half else None
        found["backward"] = _encode(backward) if len(back) else None
        return found

    def _direction(self, rows: np.ndarray, cells: np.ndarray, size: int) -> np.ndarray:
        p = np.full((size, 3), np.nan, np.float32)
        p[cells] = self.p[rows]
        return p


def _side_rank(side: str) -> tuple[int, str]:
    return (_SIDE_ORDER.index(side) if side in _SIDE_ORDER else len(_SIDE_ORDER), side)


def _labels(forward: np.ndarray, backward: np.ndarray) -> str:
    """E, N or C for each pair; "-" where a direction that the record has is missing."""
    has = [~np.isnan(p).any(axis=1) for p in (forward, backward)]
    first, second = (np.nan_to_num(p).argmax(axis=1) for p in (forward, backward))
    if has[0].any() and has[1].any():
        labels, known = _PAIR[first, second], has[0] & has[1]
    elif has[0].any():
        labels, known = _ONE[first], has[0]
    else:
        labels, known = _ONE[second], has[1]
    return np.where(known, labels, ord("-")).astype(np.uint8).tobytes().decode("ascii")


def _encode(p: np.ndarray) -> str:
    """Entailment and contradiction in thousandths; neutral is what is left."""
    thousandths = np.rint(p[:, [0, 2]] * 1000)
    ints = np.where(np.isnan(thousandths), MISSING, thousandths.clip(0, 1000)).astype(np.intp)
    return _CODES[ints].tobytes().decode("ascii")
