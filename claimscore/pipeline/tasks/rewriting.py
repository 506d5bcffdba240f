"""Texts written anew: paraphrases, negations joined to sentences again, and FactSim's facts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from claimscore.pipeline.tasks.base import (
    SUMMARIES,
    Task,
    TaskInput,
    Unit,
    no_empty,
    numbered_through,
    text_units,
    whole_text_units,
)
from claimscore.tables import FACTS, NEGATIONS, PARAPHRASES, SOURCE_SIDE
from claimscore.text import STOP_WORDS, split_sentences


def _paraphrase_rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{**unit.of_sentence, "original": unit.text, "text": answer["paraphrase"].strip()}]


PARAPHRASE = Task(
    name="paraphrase",
    table=PARAPHRASES,
    output={"paraphrase": "string"},
    units=text_units,
    check=no_empty("the paraphrase"),
    rows=_paraphrase_rows,
    sides=SUMMARIES,
    several=True,
    samples=True,
)


def _claim_units(given: TaskInput) -> list[Unit]:
    """One unit a claim of the sides asked about (METRICS: decompose first, then negate)."""
    whole = {(item.id, item.side): item.text for item in given.texts}
    columns = ("id", "side", "text", "sentence_index", "claim_index")
    return [
        Unit(record, side, text, whole[record, side], *indices)
        for record, side, text, *indices in given.claims.select(columns).iter_rows()
        if (record, side) in whole
    ]


def _negation_rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    texts = {"original": unit.text, "text": answer["negation"].strip()}
    return [{**unit.of_sentence, "level": "claim", "claim_index": unit.claim_index, **texts}]


def _sample(row: Mapping[str, Any]) -> int:
    return row.get("sample") or 0


def _join_sentences(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, and after those of each sentence one row of level `sentence`.

    Each sample of a sentence is joined by itself.
    """
    joined: list[dict[str, Any]] = []
    sentences = itertools.groupby(rows, key=lambda r: (r["id"], r["side"], r["sentence_index"]))
    for _, sentence in sentences:
        for _, sample in itertools.groupby(sorted(sentence, key=_sample), key=_sample):
            claims = list(sample)
            whole = {"level": "sentence", "text": _rejoined([row["text"] for row in claims])}
            no_claim = dict.fromkeys(("claim_index", "original", "request_key"))
            joined += [*claims, {**claims[0], **whole, **no_claim}]
    return joined


def _rejoined(claims: list[str]) -> str:
    """The claims of one sentence as a complex sentence: "A, and b, and c."."""
    opened = [claim.rstrip(".!…").rstrip() for claim in claims[:-1]]
    first, *rest = (*opened, claims[-1])
    return ", and ".join((first, *map(_with_small_letter, rest)))


def _with_small_letter(claim: str) -> str:
    """A claim behind "and": its first word keeps its capital where it may be a name."""
    first = claim.partition(" ")[0].lower()
    is_common = first in STOP_WORDS and first != "i"
    return claim[0].lower() + claim[1:] if is_common else claim


NEGATE = Task(
    name="negate",
    table=NEGATIONS,
    output={"negation": "string"},
    units=_claim_units,
    check=no_empty("the negation"),
    rows=_negation_rows,
    sides=SUMMARIES,
    after=("decompose",),
    several=True,
    samples=True,
    join=_join_sentences,
)


def _fact_rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    facts = ({name: text.strip() for name, text in fact.items()} for fact in answer["facts"])
    return [{"id": unit.id, "side": unit.side, **fact} for fact in facts]


def _guess_facts(unit: Unit) -> dict[str, Any]:
    """One fact a sentence, of its first and last word."""
    words = [sentence.split() for sentence in split_sentences(unit.text)]
    return {"facts": [{"subject": sentence[0], "description": sentence[-1]} for sentence in words]}


FACTS_TASK = Task(
    name="facts",
    table=FACTS,
    output={"facts": [{"subject": "string", "description": "string"}]},
    units=whole_text_units,
    check=no_empty("a fact's subject or description"),
    rows=_fact_rows,
    sides={**SUMMARIES, SOURCE_SIDE: ""},
    join=numbered_through,
    guess=_guess_facts,
    guessed="are assumed: one a sentence",
)
