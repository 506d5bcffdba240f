"""NLI over claims: every claim of one side with every claim of the other, both directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.pipeline.encoders.base import ModelInfo, PairClassifier, RejectedItemsError
from claimscore.pipeline.passes.base import (
    ModelPass,
    PassInput,
    PassResult,
    failure_row,
    model_columns,
    truncated,
)
from claimscore.tables import FAILURES, NLI


class _Cells(NamedTuple):
    """All pairs of one record and direction: premise index and hypothesis index of each."""

    id: str
    premises: Sequence[str]
    hypotheses: Sequence[str]
    premise_side: str
    hypothesis_side: str

    @property
    def size(self) -> int:
        return len(self.premises) * len(self.hypotheses)

    def pairs(self) -> list[tuple[str, str]]:
        return [(p, h) for p in self.premises for h in self.hypotheses]


def nli_pass(given: PassInput) -> PassResult:
    """Every claim of one side with every claim of the other, in both directions."""
    classifier: PairClassifier = given.model
    by_record = _claims_by_record(given.read("claims"))
    cells = [
        cell
        for record in given.records["id"]
        if record not in given.broken
        for cell in _directions(record, given.need.sides, by_record)
    ]
    failures: list[dict[str, Any]] = []
    while True:
        pairs = [pair for cell in cells for pair in cell.pairs()]
        try:
            values = classifier.classify(pairs, on_batch=given.listen(len(pairs)))
        except RejectedItemsError as exc:
            # One pair costs its own record, not the chunk: the others are computed again.
            owners = np.repeat(np.arange(len(cells)), [cell.size for cell in cells])
            rejected = {cells[owners[index]].id for index in exc.indices}
            failures += [failure_row("nli", record, exc) for record in sorted(rejected)]
            cells = [cell for cell in cells if cell.id not in rejected]
        else:
            rows = _nli_frame(cells, values, truncated(classifier, pairs), classifier.info)
            return PassResult({NLI.name: rows}, FAILURES.frame(failures))


def _claims_by_record(claims: pl.DataFrame) -> dict[tuple[str, str], list[str]]:
    """The claims of each record and side in the order of the text."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for record, side, text in claims.select("id", "side", "text").iter_rows():
        grouped.setdefault((record, side), []).append(text)
    return grouped


def _directions(
    record: str, sides: Sequence[str], by_record: dict[tuple[str, str], list[str]]
) -> Iterator[_Cells]:
    first, second = (by_record.get((record, side), []) for side in sides)
    if first and second:
        yield _Cells(record, first, second, sides[0], sides[1])
        yield _Cells(record, second, first, sides[1], sides[0])


def _nli_frame(
    cells: list[_Cells], values: NDArray[np.float32], cut: pl.Series, info: ModelInfo
) -> pl.DataFrame:
    sizes = [cell.size for cell in cells]
    if not sum(sizes):
        return NLI.empty()
    per_cell = pl.DataFrame(
        {
            "id": [cell.id for cell in cells],
            "premise_side": [cell.premise_side for cell in cells],
            "hypothesis_side": [cell.hypothesis_side for cell in cells],
            "direction": [f"{c.premise_side}_to_{c.hypothesis_side}" for c in cells],
        }
    )[np.repeat(np.arange(len(cells)), sizes)]
    grids = [np.divmod(np.arange(n), len(c.hypotheses)) for c, n in zip(cells, sizes, strict=True)]
    return per_cell.with_columns(
        premise_index=np.concatenate([grid[0] for grid in grids]),
        hypothesis_index=np.concatenate([grid[1] for grid in grids]),
        entailment=np.ascontiguousarray(values[:, 0]),
        neutral=np.ascontiguousarray(values[:, 1]),
        contradiction=np.ascontiguousarray(values[:, 2]),
        truncated=cut,
        **model_columns(info),
    ).select(pl.col(name).cast(dtype) for name, dtype in NLI.schema.items())


NLI_PASS = ModelPass("nli", "nli", nli_pass, after=("decompose",))
