"""Whether each claim of a side is entailed by the sentence that it was made from.

A check (`claim_checks`), made where a metric needs the NLI model anyway. It fails no record: a
claim that the model refuses, or cannot read whole beside its sentence, has no row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimscore.metrics.support import threshold_of
from claimscore.pipeline.encoders.protocols import NLI_LABELS, PairClassifier
from claimscore.pipeline.passes.model_pass import (
    ModelPass,
    PassInput,
    PassResult,
    pass_result,
    truncated,
    without_rejected,
)
from claimscore.tables import CLAIM_CHECKS, SIDE_COLUMNS

KIND = "claim_entailment"
_ENTAILMENT = NLI_LABELS.index("entailment")


class _Claim(NamedTuple):
    id: str
    sentence_index: int | None
    claim_index: int
    pair: tuple[str, str]


def claim_entailment_pass(given: PassInput) -> PassResult:
    """A row for each claim of one side whose entailment is below the model's threshold.

    A claim that is its sentence is entailed without a question. Claims of a whole text are judged
    by that text.
    """
    classifier: PairClassifier = given.model
    every = _claims(given)

    def ask(claims: list[_Claim]) -> NDArray[np.float32]:
        pairs = [claim.pair for claim in claims]
        return classifier.classify(pairs, on_batch=given.listen(len(pairs)))

    claims, values, _ = without_rejected(KIND, every, ask)
    threshold = threshold_of(classifier)
    cut = truncated(classifier, [claim.pair for claim in claims])
    rows: list[dict[str, object]] = [
        {
            "id": claim.id,
            "side": given.need.sides[0],
            "sentence_index": claim.sentence_index,
            "claim_index": claim.claim_index,
            "check": "not_entailed",
            "value": float(value[_ENTAILMENT]),
        }
        for claim, value, is_cut in zip(claims, values, cut, strict=True)
        if value[_ENTAILMENT] < threshold and not is_cut
    ]
    return pass_result(CLAIM_CHECKS, CLAIM_CHECKS.frame(rows), [], classifier.info)


def _claims(given: PassInput) -> list[_Claim]:
    (side,) = given.need.sides
    columns = ("id", "sentence_index", "claim_index", "sentence", "text")
    rows = given.read("claims").filter(side=side).select(columns)
    has_text = SIDE_COLUMNS.get(side) in given.records.columns
    whole = dict(given.records.select("id", SIDE_COLUMNS[side]).iter_rows()) if has_text else {}
    found = []
    for record, sentence_index, claim_index, sentence, claim in rows.iter_rows():
        text = whole.get(record) if sentence is None else sentence
        if text and text.strip() not in ("", claim):
            found.append(_Claim(record, sentence_index, claim_index, (text, claim)))
    places = {record: place for place, record in enumerate(given.records["id"])}
    return sorted(found, key=lambda claim: places[claim.id])


CLAIM_ENTAILMENT_PASS = ModelPass(KIND, "nli", claim_entailment_pass, after=("decompose",))
