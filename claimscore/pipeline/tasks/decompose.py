"""Claims: each sentence (or the whole summary) broken into statements that say one thing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from claimscore.claim_checks import Examples, Finding, word_checks
from claimscore.pipeline.tasks.base import (
    CONTEXT_FIELDS,
    FIELDS,
    SUMMARIES,
    ExampleAnswers,
    SideText,
    Task,
    Unit,
    UnitAnswer,
    no_empty,
    text_units,
)
from claimscore.tables import AMBIGUOUS, CLAIMS
from claimscore.text import content_words, split_sentences

#: A claim with at most this share of its content words in its own text, and so much more of them
#: in another text of the request, belongs to the other.
_HARDLY, _CLEARLY_MORE = 1 / 3, 1 / 2


def _claims(answer: Mapping[str, Any]) -> list[str]:
    """All claims of an answer; those that are ambiguous come last."""
    return [*answer["claims"], *answer.get("ambiguous", ())]


def _rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    n_counted = len(answer["claims"])
    return [
        {
            **unit.of_sentence,
            "claim_index": index,
            "text": claim.strip(),
            "sentence": unit.text if unit.sentence_index is not None else None,
            "left_out": None if index < n_counted else AMBIGUOUS,
        }
        for index, claim in enumerate(_claims(answer))
    ]


def _misplaced(texts: Sequence[str], answers: Mapping[int, Mapping[str, Any]]) -> set[int]:
    """The positions whose answer belongs to another text, wholly or in part.

    One claim is enough that has hardly any of its content words in its own text and clearly more in
    another; else each claim must have all of them in another text, and not in its own. A claim
    without content words says nothing (decision 97).
    """
    words = [content_words(text) for text in texts]
    misplaced = set()
    for place, answer in answers.items():
        shares = [
            [(claim & of_text).total() / claim.total() for of_text in words]
            for claim in map(content_words, _claims(answer))
            if claim
        ]
        here_and_there = [(share[place], max(share)) for share in shares]
        is_partly = any(
            here <= _HARDLY and there >= here + _CLEARLY_MORE for here, there in here_and_there
        )
        if is_partly or (shares and all(here < 1 == there for here, there in here_and_there)):
            misplaced.add(place)
    return misplaced


def _findings(
    answers: Sequence[UnitAnswer], examples: Sequence[ExampleAnswers]
) -> list[dict[str, Any]]:
    known = Examples(
        (text, (claim for answer in of_text for claim in _claims(answer)))
        for text, of_text in examples
    )
    return [
        {**unit.of_sentence, **finding._asdict()}
        for unit, shown, answer, was_misplaced, _ in answers
        for finding in (
            *word_checks(
                unit.text,
                _claims(answer),
                known,
                n_ambiguous=len(answer.get("ambiguous", ())),
                context=" ".join(text for name, text in shown.items() if name != "text"),
            ),
            *((Finding(None, "wrong_number", None),) if was_misplaced else ()),
        )
    ]


def _guess(unit: Unit) -> dict[str, Any]:
    """The parts of a text, with its first two words before each as a claim has its subject."""
    parts = re.split(r"[.!?,;]\s|\b(?:and|but)\b", unit.text.strip())
    start = " ".join(unit.text.split()[:2])
    return {"claims": [f"{start} {part.strip()}" for part in parts if part.strip()]}


DECOMPOSE = Task(
    name="decompose",
    table=CLAIMS,
    output={"claims": ["string"]},
    optional={"ambiguous": ["string"]},
    units=text_units,
    check=no_empty("a claim"),
    rows=_rows,
    sides=SUMMARIES,
    fields=(*FIELDS, *CONTEXT_FIELDS),
    several=True,
    misplaced=_misplaced,
    findings=_findings,
    guess=_guess,
    guessed='are assumed: one for each part between commas, "and" or "but"',
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
