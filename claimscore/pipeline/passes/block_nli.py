"""NLI over blocks: every block of one side (the premises) with every block of another.

Several documents of one record are cut one by one, and their blocks follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import polars as pl

from claimscore.blocks import Cut, find_cut
from claimscore.metrics.base import PassNeed
from claimscore.pipeline.encoders.protocols import ModelInfo, PairClassifier
from claimscore.pipeline.passes.base import ModelPass, PassInput, PassResult, model_columns
from claimscore.pipeline.passes.pair_blocks import Judged, judge
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


def block_nli_pass(given: PassInput) -> PassResult:
    """Every block of the first item of `over` as premise, every one of the second as hypothesis.

    The premise side is the document: of it SummaC's code reads the first blocks only. A record
    without blocks on a side has no rows.
    """
    classifier: PairClassifier = given.model
    cells = _cells(given.records, given.need)
    frame = partial(_frame, need=given.need, info=classifier.info)
    rows, failures = judge(classifier, cells, kind=KIND, listen=given.listen, frame=frame)
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
    return [cell for cell in cells if cell.premises and cell.hypotheses]


def _frame(cells: Sequence[_Cell], judged: Judged, need: PassNeed, info: ModelInfo) -> pl.DataFrame:
    if not len(judged.grids):
        return BLOCK_NLI.empty()
    premise, hypothesis = _cut_sides(need)
    frame = pl.DataFrame(
        {
            "id": pl.Series([cell.id for cell in cells])[judged.grids],
            "premise_index": judged.premises,
            "hypothesis_index": judged.hypotheses,
            **judged.columns(),
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
