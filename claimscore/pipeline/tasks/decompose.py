"""Claims: each sentence (or the whole summary) broken into statements that say one thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from claimscore.pipeline.tasks.base import SideText, Task, Unit, refuse_empty, sides_in, text_units
from claimscore.tables import CLAIMS
from claimscore.text import split_sentences


def _check(answer: Mapping[str, Any]) -> None:
    refuse_empty("a claim", *answer["claims"])


def _rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": unit.id,
            "side": unit.side,
            "sentence_index": unit.sentence_index,
            "claim_index": index,
            "text": claim.strip(),
            "sentence": unit.text if unit.sentence_index is not None else None,
        }
        for index, claim in enumerate(answer["claims"])
    ]


DECOMPOSE = Task(
    name="decompose",
    table=CLAIMS,
    output={"claims": ["string"]},
    units=text_units,
    check=_check,
    rows=_rows,
    sides=sides_in,
    several=True,
)


def sentences_as_claims(texts: Sequence[SideText]) -> pl.DataFrame:
    """The claims table with each sentence as one claim: `--units sentences`, no LLM asked."""
    return CLAIMS.frame(
        [
            {
                "id": item.id,
                "side": item.side,
                "sentence_index": index,
                "claim_index": 0,
                "text": sentence,
                "sentence": sentence,
            }
            for item in texts
            for index, sentence in enumerate(split_sentences(item.text))
        ]
    )
