"""NLI over blocks: every block of one side (the premises) with every block of another.

Several documents of one record are cut one by one, and their blocks follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.blocks import Cut, find_cut
from claimscore.metrics.base import PassNeed
from claimscore.pipeline.encoders.base import ModelInfo, PairClassifier, RejectedItemsError
from claimscore.pipeline.passes.base import (
    ModelPass,
    PassInput,
    PassResult,
    failure_row,
    model_columns,
    truncated,
)
from claimscore.pipeline.tasks.base import side_texts
from claimscore.tables import BLOCK_NLI, FAILURES

KIND = "block_nli"


class _CutSide(NamedTuple):
    """A side and its cut: an item of `PassNeed.over`."""

    side: str
    cut: Cut


class _Cell(NamedTuple):
    """All pairs of one record."""

    id: str
    premises: Sequence[str]
    hypotheses: Sequence[str]

    @property
    def size(self) -> int:
        return len(self.premises) * len(self.hypotheses)

    def pairs(self) -> list[tuple[str, str]]:
        return [(p, h) for p in self.premises for h in self.hypotheses]


def block_nli_pass(given: PassInput) -> PassResult:
    """Every block of the first item of `over` as premise, every one of the second as hypothesis.

    The premise side is the document: of it SummaC's code reads the first blocks only. A record
    without blocks on a side has no rows.
    """
    classifier: PairClassifier = given.model
    cells = _cells(given.records, given.need)
    failures: list[dict[str, Any]] = []
    while True:
        pairs = [pair for cell in cells for pair in cell.pairs()]
        try:
            values = classifier.classify(pairs, on_batch=given.listen(len(pairs)))
        except RejectedItemsError as exc:
            # One pair costs its own record, not the chunk: the others are computed again.
            owners = np.repeat(np.arange(len(cells)), [cell.size for cell in cells])
            rejected = {cells[owners[index]].id for index in exc.indices}
            failures += [failure_row(KIND, record, exc) for record in sorted(rejected)]
            cells = [cell for cell in cells if cell.id not in rejected]
        else:
            cut = truncated(classifier, pairs)
            rows = _frame(cells, values, cut, given.need, classifier.info)
            return PassResult({BLOCK_NLI.name: rows}, FAILURES.frame(failures))


def _cut_sides(need: PassNeed) -> tuple[_CutSide, _CutSide]:
    premise, hypothesis = (item.partition(".") for item in need.over)
    return (
        _CutSide(premise[0], find_cut(premise[2])),
        _CutSide(hypothesis[0], find_cut(hypothesis[2])),
    )


def _cells(records: pl.DataFrame, need: PassNeed) -> list[_Cell]:
    premise, hypothesis = _cut_sides(need)
    texts: dict[tuple[str, str], list[str]] = {}
    for item in side_texts(records, (premise.side, hypothesis.side)):
        texts.setdefault((item.id, item.side), []).append(item.text)
    cells = [
        _Cell(
            record,
            premise.cut.document_blocks(texts.get((record, premise.side), [])),
            [b for t in texts.get((record, hypothesis.side), []) for b in hypothesis.cut.blocks(t)],
        )
        for record in records["id"]
    ]
    return [cell for cell in cells if cell.size]


def _frame(
    cells: list[_Cell],
    values: NDArray[np.float32],
    cut: pl.Series,
    need: PassNeed,
    info: ModelInfo,
) -> pl.DataFrame:
    if not cells:
        return BLOCK_NLI.empty()
    premise, hypothesis = _cut_sides(need)
    sizes = [cell.size for cell in cells]
    grids = [np.divmod(np.arange(cell.size), len(cell.hypotheses)) for cell in cells]
    frame = pl.DataFrame(
        {
            "id": pl.Series([cell.id for cell in cells])[np.repeat(np.arange(len(cells)), sizes)],
            "premise_index": np.concatenate([grid[0] for grid in grids]),
            "hypothesis_index": np.concatenate([grid[1] for grid in grids]),
            "entailment": np.ascontiguousarray(values[:, 0]),
            "neutral": np.ascontiguousarray(values[:, 1]),
            "contradiction": np.ascontiguousarray(values[:, 2]),
            "truncated": cut,
        }
    ).with_columns(
        premise_side=pl.lit(premise.side),
        premise_cut=pl.lit(premise.cut.name),
        hypothesis_side=pl.lit(hypothesis.side),
        hypothesis_cut=pl.lit(hypothesis.cut.name),
        **model_columns(info),
    )
    return frame.select(pl.col(name).cast(dtype) for name, dtype in BLOCK_NLI.schema.items())


BLOCK_NLI_PASS = ModelPass(KIND, "nli", block_nli_pass)
