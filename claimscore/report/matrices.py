"""The matrices of records as short strings: NLI labels of claims and of blocks, facts' similarity.

Probabilities are thousandths, two base-64 characters each: a matrix of 10 by 10 claims in
both directions takes 800 bytes and 100 more for its labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.blocks import blocks_on_side
from claimscore.config import LLM_VERIFIER
from claimscore.metrics.claims import NO_CELLS, Cells, cells_by_record
from claimscore.metrics.fact_similarity import MATCH, SIDES, facts_by_side, similarities_by_record
from claimscore.metrics.summac import PROBABILITIES
from claimscore.metrics.support import UNSURE, VERDICTS, uncertainty
from claimscore.report.record_texts import cut_off

JSON = dict[str, Any]

MAX_CELLS = 10_000
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
MISSING = 4095  # "__": this pair was not judged
_CODES = np.array([[ord(ALPHABET[v >> 6]), ord(ALPHABET[v & 63])] for v in range(4096)], np.uint8)
#: Label of a pair from the labels of its two directions (METRICS section 3).
_PAIR = np.array([list(b"EEN"), list(b"ENC"), list(b"NCC")], np.uint8)
_ONE = np.frombuffer(b"ENC", np.uint8)

_SIDE_ORDER = ("a", "b", "common", "source", "summary")


class LabelMatrices:
    """The NLI rows of a chunk, found again by their record and the sides of their two texts."""

    def __init__(self, nli: pl.DataFrame) -> None:
        names = "id", *PROBABILITIES, "premise_side", "hypothesis_side"
        cells = nli.select(*names, row="premise_index", column="hypothesis_index")
        self._cells: dict[str, dict[tuple[Any, ...], Cells]] = {}
        both = cells.partition_by(names[-2:], as_dict=True, include_key=False)
        for sides, rows in both.items():
            for record, of_record in cells_by_record(rows).items():
                self._cells.setdefault(record, {})[sides] = of_record

    def of(self, record: str) -> list[JSON]:
        """The matrices of a record, one for both directions of two sides."""
        cells = self._cells.get(record, {})
        both = {tuple(sorted(sides, key=_side_rank)) for sides in cells}
        return [
            self._matrix(a, b, cells.get((a, b), NO_CELLS), cells.get((b, a), NO_CELLS))
            if a != b
            else self._matrix(a, a, cells[a, a], NO_CELLS)
            for a, b in sorted(both, key=lambda sides: list(map(_side_rank, sides)))
        ]

    def _matrix(self, a: str, b: str, there: Cells, back: Cells) -> JSON:
        rows, columns = map(max, there.shape, back.shape[::-1])
        matrix: JSON = {"rows": a, "columns": b, "size": [rows, columns]}
        if rows * columns > MAX_CELLS:
            return matrix
        forward, backward = np.full((2, rows * columns, 3), np.nan, np.float32)
        forward[there.row * columns + there.column] = there.values
        backward[back.column * columns + back.row] = back.values
        matrix["labels"] = _labels(forward, backward)
        matrix["forward"] = _encode(forward) if len(there.row) else None
        matrix["backward"] = _encode(backward) if len(back.row) else None
        return matrix


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


# Facts

#: FactSim's name, and its components that are not listed where its facts are shown.
FACT_METRIC = "factsim"
FACT_COMPONENTS = ("matches_source", "matches_summary", "missing", "unsupported", "match")

MAX_FACT_CHARS = 200


class FactMatrices:
    """The facts and similarities of a chunk, found again by their record."""

    def __init__(self, facts: pl.DataFrame, similarities: pl.DataFrame) -> None:
        self._texts = facts_by_side(facts)
        self._cells = similarities_by_record(similarities)

    def of(self, record: str) -> JSON | None:
        """The facts of a record by side, and of those with a whole matrix its similarities.

        `cells` are thousandths of max(0, cosine), two base-64 characters each, row by row;
        `missing` and `unsupported` the places of the facts whose best match is below `match`.
        None where the record has no facts; with too many there are no `cells`.
        """
        source, summary = (
            [text[:MAX_FACT_CHARS] for text in self._texts.get((record, side), [])]
            for side in SIDES
        )
        if not (source or summary):
            return None
        shown: JSON = {"size": [len(source), len(summary)], "source": source, "summary": summary}
        matrix = self._matrix(record, len(source), len(summary))
        if matrix is None:
            return shown
        shown |= {
            "match": MATCH,
            "missing": _below(matrix.max(axis=1)),
            "unsupported": _below(matrix.max(axis=0)),
        }
        if matrix.size > MAX_CELLS:
            return shown | {"left_out": True}
        codes = _CODES[np.rint(matrix.ravel() * 1000).astype(np.intp)]
        return shown | {"cells": codes.tobytes().decode("ascii")}

    def _matrix(self, record: str, rows: int, columns: int) -> NDArray[np.float64] | None:
        """max(0, cosine); None where a fact has no similarity, or one is not a number."""
        values = self._cells.get(record, NO_CELLS).matrix((rows, columns))
        if values is None or not values.size:
            return None
        return values[:, :, 0].astype(np.float64).clip(0, 1)


def _below(best: NDArray[np.float64]) -> list[int]:
    """As FactSim names them: by six digits."""
    places: list[int] = np.flatnonzero(np.round(best, 6) < MATCH).tolist()
    return places


# Blocks

MAX_BLOCK_CHARS = 600


class BlockMatrices:
    """The block NLI of a chunk; a side is `source.sentence`: the text, and how it is cut."""

    def __init__(self, block_nli: pl.DataFrame) -> None:
        sides = {
            f"{role}_side": pl.concat_str(f"{role}_side", f"{role}_cut", separator=".")
            for role in ("premise", "hypothesis")
        }
        self._matrices = LabelMatrices(block_nli.with_columns(**sides))

    def of(self, record: Mapping[str, Any]) -> JSON:
        """`matrices` as of claims, and by side the `blocks` that they compare."""
        matrices, blocks = self._matrices.of(str(record["id"])), {}
        for matrix in matrices:
            for side, size in zip((matrix["rows"], matrix["columns"]), matrix["size"], strict=True):
                whole = [] if side in blocks else blocks_on_side(record, side)
                texts = [cut_off(block, MAX_BLOCK_CHARS) for block in whole]
                if len(texts) == size:
                    blocks[side] = texts
        return {"matrices": matrices, "blocks": blocks}


# Support

_VERDICTS = {"supported": "E", "contradicted": "C", "unmentioned": "N"}


class SupportRows:
    """The verdicts of a chunk, found again by their record."""

    def __init__(self, support: pl.DataFrame) -> None:
        self._rows = support.partition_by("id", as_dict=True)

    def of(self, record: str) -> list[JSON]:
        """For each side with claims: the texts that were asked, how many (`count`), and as `rows`
        claim, text, verdict as E, C or N, probability, evidence and votes. `unsure` are the places
        of unsure claims, `counts` how many claims have each of `VERDICTS`. A language model
        `quotes` its evidence.

        Of several ways of reading the first one is shown.
        """
        shown: list[JSON] = []
        if (record,) not in self._rows:
            return shown
        of_sides = self._rows[record,]
        for (side, texts), ways in of_sides.group_by("side", "source_side", maintain_order=True):
            rows = ways.filter(pl.col("read") == ways["read"][0])
            entry = {
                "side": side,
                "texts": texts,
                "count": rows["source_index"].n_unique(),
                "verifier": ", ".join(rows["model"].drop_nulls().unique(maintain_order=True))
                or rows["verifier"][0],
                "quotes": rows["verifier"].drop_nulls().unique().to_list() == [LLM_VERIFIER],
                "unsure": _unsure(rows),
                "counts": _verdict_counts(rows),
                "rows": [
                    [claim, text, _VERDICTS.get(verdict, "N"), _rounded(p), evidence, _votes(votes)]
                    for claim, text, verdict, p, evidence, votes in rows.select(
                        *("claim_position", "source_index", "verdict", "probability", "evidence"),
                        "votes",
                    ).iter_rows()
                ],
            }
            shown.append(entry)
        return shown


def _unsure(rows: pl.DataFrame) -> list[int]:
    """Claims that are unsure beside the text that supports them most, the least sure first."""
    best = rows.group_by("claim_position", maintain_order=True).agg(pl.col("probability").max())
    unsure = best.with_columns(u=uncertainty(pl.col("probability"))).filter(pl.col("u") >= UNSURE)
    places: list[int] = unsure.sort("u", descending=True, maintain_order=True)[:, 0].to_list()
    return places


def _verdict_counts(rows: pl.DataFrame) -> list[int]:
    """Claims with each verdict; of several texts one that supports counts before one that
    contradicts."""
    has = [pl.col("verdict").eq(verdict).any() for verdict in VERDICTS[:2]]
    best = rows.group_by("claim_position").agg(supported=has[0], contradicted=~has[0] & has[1])
    counts: list[int] = list(best.select(pl.col("supported", "contradicted").sum()).row(0))
    return [*counts, best.height - sum(counts)]


def _votes(votes: Sequence[Mapping[str, Any]] | None) -> str:
    """The probability that each verifier or sample gave."""
    return ", ".join(f"{vote['verifier']} {_rounded(vote['probability'])}" for vote in votes or ())


def _rounded(value: float | None) -> float | None:
    """A probability as it is shown; None where it is no number."""
    return None if value is None or not np.isfinite(value) else round(value, 3)
