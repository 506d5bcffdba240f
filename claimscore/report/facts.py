"""The facts of records and how alike they are, from the tables `facts` and `similarities`."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.metrics.fact_similarity import MATCH
from claimscore.report.matrix import ALPHABET, MAX_CELLS, Room

JSON = dict[str, Any]

#: Parts of FactSim's components that are not listed where its facts are shown.
METRIC = "factsim"
SHOWN = ("matches_source", "matches_summary", "missing", "unsupported", "match")

MAX_FACT_CHARS = 200

_CODES = np.array([[ord(ALPHABET[v >> 6]), ord(ALPHABET[v & 63])] for v in range(1001)], np.uint8)
_SIDES = ("source", "summary")


class FactMatrices:
    """The facts and similarities of a chunk, found again by their record."""

    def __init__(self, facts: pl.DataFrame, similarities: pl.DataFrame) -> None:
        texts = (
            facts.filter(pl.col("side").is_in(_SIDES))
            .sort("index", maintain_order=True)
            .select("id", "side", text=pl.concat_str("subject", "description", separator=" "))
        )
        self._texts: dict[tuple[str, str], list[str]] = {}
        for record, side, fact in texts.iter_rows():
            shown = (fact or "")[:MAX_FACT_CHARS]
            self._texts.setdefault((record, side), []).append(shown)
        cells = similarities.filter(
            (pl.col("unit") == "fact")
            & (pl.col("row_side") == "source")
            & (pl.col("column_side") == "summary")
        ).sort("id", "row_index", "column_index")
        self._values = cells["similarity"].cast(pl.Float64).to_numpy()
        counts = cells.group_by("id", maintain_order=True).len()
        stops = counts["len"].cum_sum().to_list()
        bounds = zip([0, *stops[:-1]] if stops else [], stops, strict=True)
        self._bounds = dict(zip(counts["id"].to_list(), bounds, strict=True))

    def of(self, record: str, room: Room) -> JSON | None:
        """The facts of a record by side, and of those with a whole matrix its similarities.

        `cells` are thousandths of max(0, cosine), two base-64 characters each, row by row;
        `missing` and `unsupported` the places of the facts whose best match is below `match`.
        None where the record has no facts. `left_out` says what there was no room for.
        """
        source, summary = (self._texts.get((record, side), []) for side in _SIDES)
        if not (source or summary):
            return None
        found: JSON = {"size": [len(source), len(summary)]}
        if not room.take(sum(map(len, source)) + sum(map(len, summary))):
            return found | {"left_out": "page"}
        found |= {"source": source, "summary": summary}
        matrix = self._matrix(record, len(source), len(summary))
        if matrix is None:
            return found
        found |= {
            "match": MATCH,
            "missing": _below(matrix.max(axis=1)),
            "unsupported": _below(matrix.max(axis=0)),
        }
        if matrix.size > MAX_CELLS:
            return found | {"left_out": "size"}
        if not room.take(2 * matrix.size):
            return found | {"left_out": "page"}
        codes = _CODES[np.rint(matrix.ravel() * 1000).astype(np.intp)]
        return found | {"cells": codes.tobytes().decode("ascii")}

    def _matrix(self, record: str, rows: int, columns: int) -> NDArray[np.float64] | None:
        """max(0, cosine); None where a fact has no similarity, or one is not a number."""
        start, stop = self._bounds.get(record, (0, 0))
        values = self._values[start:stop]
        if not len(values) or len(values) != rows * columns or not np.isfinite(values).all():
            return None
        return values.clip(0, 1).reshape(rows, columns)


def _below(best: NDArray[np.float64]) -> list[int]:
    """As FactSim names them: by six digits."""
    places: list[int] = np.flatnonzero(np.round(best, 6) < MATCH).tolist()
    return places
