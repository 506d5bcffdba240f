"""NLI over claims: every claim of one side with every claim of the other, both directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import polars as pl

from claimscore.pipeline.encoders.protocols import ModelInfo, PairClassifier
from claimscore.pipeline.passes.base import ModelPass, PassInput, PassResult, model_columns
from claimscore.pipeline.passes.pair_blocks import Judged, judge
from claimscore.tables import FAILURES, NLI

KIND = "nli"


class _Cells(NamedTuple):
    """All pairs of one record and direction."""

    id: str
    premises: Sequence[str]
    hypotheses: Sequence[str]
    premise_side: str
    hypothesis_side: str


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
    frame = partial(_nli_frame, info=classifier.info)
    rows, failures = judge(classifier, cells, kind=KIND, listen=given.listen, frame=frame)
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


def _nli_frame(cells: Sequence[_Cells], judged: Judged, info: ModelInfo) -> pl.DataFrame:
    if not len(judged.grids):
        return NLI.empty()
    per_cell = pl.DataFrame(
        {
            "id": [cell.id for cell in cells],
            "premise_side": [cell.premise_side for cell in cells],
            "hypothesis_side": [cell.hypothesis_side for cell in cells],
            "direction": [f"{c.premise_side}_to_{c.hypothesis_side}" for c in cells],
        }
    )[judged.grids]
    return per_cell.with_columns(
        premise_index=judged.premises,
        hypothesis_index=judged.hypotheses,
        **judged.columns(),
        **model_columns(info),
    ).select(pl.col(name).cast(dtype) for name, dtype in NLI.schema.items())


NLI_PASS = ModelPass(KIND, "nli", nli_pass, after=("decompose",))
