"""The model passes over one chunk of records: NLI over claim pairs, BERTScore over texts.

Each pass is a function of the chunk alone, so a chunk that was interrupted is computed
again whole and gives the same numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.pipeline.encoders.base import (
    ModelInfo,
    OnBatch,
    PairClassifier,
    RejectedItemsError,
    TokenEncoder,
)
from claimscore.pipeline.plan import SidePair
from claimscore.pipeline.tasks.base import side_texts
from claimscore.tables import FAILURES, NLI, TOKEN_SCORES

#: Told how many pairs a model is about to judge; gives what to call after each batch.
Listen = Callable[[int], OnBatch]


@dataclasses.dataclass(frozen=True, slots=True)
class PassResult:
    """The rows of the pass's table, and the records that it could not do."""

    rows: pl.DataFrame
    failures: pl.DataFrame


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


def nli_pass(
    classifier: PairClassifier,
    sides: SidePair,
    record_ids: Sequence[str],
    claims: pl.DataFrame,
    broken: frozenset[str],
    listen: Listen,
) -> PassResult:
    """Every claim of one side with every claim of the other, in both directions.

    The records in `broken` are left out: their decomposition failed, so their metrics are
    null whatever the model says.
    """
    by_record = _claims_by_record(claims)
    cells = [
        cell
        for record in record_ids
        if record not in broken
        for cell in _directions(record, sides, by_record)
    ]
    failures: list[dict[str, Any]] = []
    while True:
        pairs = [pair for cell in cells for pair in cell.pairs()]
        try:
            values = classifier.classify(pairs, on_batch=listen(len(pairs)))
        except RejectedItemsError as exc:
            # One pair costs its own record, not the chunk: the others are computed again.
            owners = np.repeat(np.arange(len(cells)), [cell.size for cell in cells])
            rejected = {cells[owners[index]].id for index in exc.indices}
            failures += [_failure_row("nli", record, exc) for record in sorted(rejected)]
            cells = [cell for cell in cells if cell.id not in rejected]
        else:
            return PassResult(_nli_frame(cells, values, classifier.info), FAILURES.frame(failures))


def _failure_row(stage: str, record: str, exc: RejectedItemsError) -> dict[str, Any]:
    return {"id": record, "stage": stage, "kind": exc.kind, "message": str(exc), "attempts": 1}


def _claims_by_record(claims: pl.DataFrame) -> dict[tuple[str, str], list[str]]:
    """The claims of each record and side in the order of the text."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for record, side, text in claims.select("id", "side", "text").iter_rows():
        grouped.setdefault((record, side), []).append(text)
    return grouped


def _directions(
    record: str, sides: SidePair, by_record: dict[tuple[str, str], list[str]]
) -> Iterator[_Cells]:
    first, second = (by_record.get((record, side), []) for side in sides)
    if first and second:
        yield _Cells(record, first, second, sides[0], sides[1])
        yield _Cells(record, second, first, sides[1], sides[0])


def _nli_frame(cells: list[_Cells], values: NDArray[np.float32], info: ModelInfo) -> pl.DataFrame:
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
        **_model_columns(info),
    ).select(pl.col(name).cast(dtype) for name, dtype in NLI.schema.items())


def token_pass(
    encoder: TokenEncoder, sides: SidePair, records: pl.DataFrame, listen: Listen
) -> PassResult:
    """BERTScore of one side against the other; records with an empty text have no row."""
    texts = {(item.id, item.side): item.text for item in side_texts(records, sides)}
    ids = [
        record
        for record in records["id"]
        if all(texts.get((record, side), "").strip() for side in sides)
    ]
    failures: list[dict[str, Any]] = []
    while True:
        candidates, references = ([texts[record, side] for record in ids] for side in sides)
        try:
            scores = encoder.bertscore(candidates, references, on_batch=listen(len(ids)))
        except RejectedItemsError as exc:
            rejected = {ids[index] for index in exc.indices}
            failures += [_failure_row("token_scores", record, exc) for record in sorted(rejected)]
            ids = [record for record in ids if record not in rejected]
        else:
            return PassResult(_token_frame(ids, sides, scores, encoder), FAILURES.frame(failures))


def _token_frame(
    ids: list[str], sides: SidePair, scores: NDArray[np.float64], encoder: TokenEncoder
) -> pl.DataFrame:
    baseline = encoder.baseline or (None, None, None)
    frame = pl.DataFrame(
        {"id": ids, "precision": scores[:, 0], "recall": scores[:, 1], "f1": scores[:, 2]}
    ).with_columns(
        candidate_side=pl.lit(sides[0]),
        reference_side=pl.lit(sides[1]),
        baseline_precision=pl.lit(baseline[0]),
        baseline_recall=pl.lit(baseline[1]),
        baseline_f1=pl.lit(baseline[2]),
        layer=pl.lit(encoder.layer),
        **_model_columns(encoder.info),
    )
    return frame.select(pl.col(name).cast(dtype) for name, dtype in TOKEN_SCORES.schema.items())


def _model_columns(info: ModelInfo) -> dict[str, Any]:
    return {name: pl.lit(value) for name, value in info._asdict().items()}
