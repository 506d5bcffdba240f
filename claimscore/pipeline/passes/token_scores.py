"""BERTScore of one side against another, as the token encoder gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.pipeline.encoders.protocols import RejectedItemsError, TokenEncoder
from claimscore.pipeline.passes.base import (
    ModelPass,
    PassInput,
    PassResult,
    failure_row,
    model_columns,
    truncated,
)
from claimscore.pipeline.passes.texts import TextPair, failed_side, text_pairs
from claimscore.tables import FAILURES, TOKEN_SCORES


class _Sides(NamedTuple):
    candidate: str
    reference: str


def token_pass(given: PassInput) -> PassResult:
    """BERTScore of the first side against each text of the second; blank texts have no row."""
    encoder: TokenEncoder = given.model
    sides = _Sides(*given.need.sides)
    pairs = text_pairs(given.records, first=sides.candidate, second=sides.reference)
    failures: list[dict[str, Any]] = []
    while True:
        candidates, references = [pair.first for pair in pairs], [pair.second for pair in pairs]
        try:
            scores = encoder.bertscore(candidates, references, on_batch=given.listen(len(pairs)))
        except RejectedItemsError as exc:
            rejected = {pairs[index].id for index in exc.indices}
            side = failed_side(sides)
            failures += [
                failure_row("token_scores", record, exc) | {"side": side}
                for record in sorted(rejected)
            ]
            pairs = [pair for pair in pairs if pair.id not in rejected]
        else:
            rows = _token_frame(pairs, sides, scores, encoder)
            return PassResult({TOKEN_SCORES.name: rows}, FAILURES.frame(failures))


def _token_frame(
    pairs: Sequence[TextPair], sides: _Sides, scores: NDArray[np.float64], encoder: TokenEncoder
) -> pl.DataFrame:
    baseline = encoder.baseline or (None, None, None)
    frame = pl.DataFrame(
        {
            "id": [pair.id for pair in pairs],
            "reference_index": [pair.second_index for pair in pairs],
            "precision": scores[:, 0],
            "recall": scores[:, 1],
            "f1": scores[:, 2],
            "truncated": truncated(encoder, [pair.first for pair in pairs])
            | truncated(encoder, [pair.second for pair in pairs]),
        }
    ).with_columns(
        candidate_side=pl.lit(sides.candidate),
        reference_side=pl.lit(sides.reference),
        baseline_precision=pl.lit(baseline[0]),
        baseline_recall=pl.lit(baseline[1]),
        baseline_f1=pl.lit(baseline[2]),
        layer=pl.lit(encoder.layer),
        **model_columns(encoder.info),
    )
    return frame.select(pl.col(name).cast(dtype) for name, dtype in TOKEN_SCORES.schema.items())


TOKEN_SCORES_PASS = ModelPass("token_scores", "token_encoder", token_pass)
