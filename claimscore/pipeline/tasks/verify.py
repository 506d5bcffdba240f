"""Verdicts: whether a text supports a claim, and the passage of the text that says so.

The verdict comes before the evidence, so its log-probabilities are those of the decision: after a
quotation the verdict would be settled. A prompt with label words has no evidence, and the verdicts
of a verifier with two labels. The questions about one window of a text follow one another, with the
window at the head of the prompt.
"""

from __future__ import annotations

import bisect
import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from claimscore.config import LLM_VERIFIER
from claimscore.metrics.support import (
    CONTRADICTED,
    MODEL,
    SUPPORTED,
    THRESHOLD,
    UNMENTIONED,
    VERDICTS,
    verdicts,
)
from claimscore.pipeline.tasks.base import (
    ExampleAnswers,
    Task,
    TaskInput,
    Unit,
    UnitAnswer,
    side_texts,
    sides_and_source_in,
    value_probabilities,
)
from claimscore.tables import REFERENCES_SIDE, SOURCE_SIDE, SUPPORT
from claimscore.text import split_sentences
from claimscore.types import Completion

#: The side whose texts the claims of each side are looked for in.
TEXTS_OF = {"summary": SOURCE_SIDE, REFERENCES_SIDE: "summary"}

#: The estimate's assumption: a token has so many bytes.
_BYTES_A_TOKEN = 4

#: More than there are verdicts, because several tokens may begin one; some servers give no more.
TOP_LOGPROBS = 5

_OBJECTION = (
    "This evidence is not in the source. Answer again, with a passage that is copied from the "
    "source word for word."
)

#: Signs that do not count at the ends of a quotation.
_AROUND = "\"'.,;:!?… \t\r\n"

#: Quotation marks that count as the same.
_QUOTES = str.maketrans("“”„‟«»‘’‚‛`´", '"' * 6 + "'" * 6)


def _units(given: TaskInput) -> list[Unit]:
    """One unit a claim and window of a text, window by window."""
    most_bytes = given.window_tokens * _BYTES_A_TOKEN
    claims: dict[tuple[str, str], list[tuple[int, int, str, str | None]]] = {}
    columns = ("id", "side", "sentence_index", "claim_index", "text", "sentence")
    rows = given.claims.select(columns)
    for record, side, *claim in rows.iter_rows():
        claims.setdefault((record, side), []).append(tuple(claim))
    units = []
    for side in dict.fromkeys(item.side for item in given.texts):
        n_texts: Counter[str] = Counter()
        for item in side_texts(given.records, (TEXTS_OF[side],)):
            text_index = n_texts[item.id]
            n_texts[item.id] += 1
            for first, window in windows(item.text, most_bytes):
                units += [
                    Unit(
                        item.id,
                        side,
                        claim,
                        claim,
                        sentence_index,
                        index,
                        more={"source": window, "sentence": sentence or ""},
                        place=(position, text_index, first),
                    )
                    for position, (sentence_index, index, claim, sentence) in enumerate(
                        claims.get((item.id, side), ())
                    )
                ]
    return units


def windows(text: str, most_bytes: int) -> Iterator[tuple[int, str]]:
    """The slices of a text with at most so many bytes, each after the place of its first sentence.

    They are cut between sentences; a longer sentence is cut at white space, and where it has none
    anywhere. A blank text has none.
    """
    first = start = end = 0
    for place, piece in _pieces(text, most_bytes):
        at = text.index(piece, end)
        if end > start and len(text[start : at + len(piece)].encode()) > most_bytes:
            yield first, text[start:end]
            start = end
        if end == start:
            first, start = place, at
        end = at + len(piece)
    if end > start:
        yield first, text[start:end]


def _pieces(text: str, most_bytes: int) -> Iterator[tuple[int, str]]:
    most = max(1, most_bytes // 4)  # a character has at most four bytes
    cut = re.compile(rf"\S.{{0,{most - 1}}}(?!\S)|\S{{1,{most}}}", re.DOTALL)
    for place, sentence in enumerate(split_sentences(text)):
        if len(sentence.encode()) <= most_bytes:
            yield place, sentence
        else:
            yield from ((place, piece.rstrip()) for piece in cut.findall(sentence))


@functools.lru_cache(maxsize=256)
def _plain(text: str) -> str:
    return text.translate(_QUOTES)


@functools.lru_cache(maxsize=256)
def _sentence_starts(text: str) -> list[int]:
    starts, end = [], 0
    for sentence in split_sentences(text):
        starts.append(text.index(sentence, end))
        end = starts[-1] + len(sentence)
    return starts


def find_quotation(quotation: str, text: str) -> tuple[int, int] | None:
    """From where to where a text has these words; None where it has not, or there is none.

    White space, quotation marks, capitals, and what stands around all of it may differ.
    """
    quoted, text = quotation.translate(_QUOTES), _plain(text)
    bare = quoted.strip(_AROUND)
    for words in (quoted.split(), bare.split()) if bare else ():
        pattern = r"\s+".join(map(re.escape, words))
        match = re.search(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE)
        if match is not None:
            return match.span()
    return None


def _objection(unit: Unit, answer: Mapping[str, Any]) -> str:
    needs_evidence = answer["verdict"] != UNMENTIONED and answer["evidence"] is not None
    span = find_quotation(answer["evidence"] or "", unit.more["source"])
    return _OBJECTION if needs_evidence and span is None else ""


def _refine(completion: Completion, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with the probability of each verdict: 1 and 0 where the server gave none.

    Label words have neither evidence nor a probability of contradiction.
    """
    if "verdict" not in answer:
        (verdict,) = verdicts([answer[SUPPORTED]], [math.nan], THRESHOLD)
        probabilities = {SUPPORTED: answer[SUPPORTED], CONTRADICTED: None}
        return {"verdict": verdict, "evidence": None, "probabilities": probabilities}
    verdict, logprobs = answer["verdict"], completion.logprobs or ()
    probabilities = value_probabilities("verdict", VERDICTS, verdict, logprobs) or {}
    total = sum(probabilities.values())
    shares = {name: p / total for name, p in probabilities.items()} if total else {verdict: 1.0}
    return {**answer, "probabilities": shares}


def _rows(unit: Unit, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    verdict, probabilities = answer["verdict"], answer["probabilities"]
    position, text_index, sentence = unit.place
    window, evidence = unit.more["source"], None
    span = find_quotation(answer["evidence"] or "", window) if verdict != UNMENTIONED else None
    if span is not None:
        evidence = window[slice(*span)]
        sentence += max(0, bisect.bisect(_sentence_starts(window), span[0]) - 1)
    return [
        {
            "id": unit.id,
            "side": unit.side,
            "claim_position": position,
            "claim": unit.text,
            "source_side": TEXTS_OF[unit.side],
            "source_index": text_index,
            "read": MODEL,
            "verdict": verdict,
            "probability": probabilities.get(SUPPORTED, 0.0),
            "contradiction": probabilities.get(CONTRADICTED, 0.0),
            "evidence_index": sentence if evidence else None,
            "evidence": evidence,
            "truncated": False,
            "verifier": LLM_VERIFIER,
        }
    ]


def deciding(rows: Iterable[dict[str, Any]], *columns: str) -> list[dict[str, Any]]:
    """Of the rows with the same values in these columns the one that decides, with the largest
    probability of them.

    A row that supports the claim comes before one that contradicts it.
    """
    kept: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        place = tuple(row[name] for name in columns)
        known = kept.setdefault(place, row)
        most = max(known["probability"], row["probability"])
        kept[place] = max(known, row, key=_weight) | {"probability": most}
    return list(kept.values())


def _join(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a claim and text: that of the window which decides."""
    return deciding(rows, "id", "side", "claim_position", "source_index")


def _weight(row: Mapping[str, Any]) -> tuple[Any, ...]:
    against = row["verdict"] == CONTRADICTED
    return (
        row["verdict"] == SUPPORTED,
        against,
        row["contradiction" if against else "probability"],
    )


def _findings(
    answers: Sequence[UnitAnswer], examples: Sequence[ExampleAnswers]
) -> list[dict[str, Any]]:
    """Each claim at most once: about whom the question was asked again, whose evidence is not in
    the text."""
    findings = {}
    for unit, _, answer, _, asked_again in answers:
        of_claim = {**unit.of_sentence, "claim_index": unit.claim_index}
        is_dropped = bool(_objection(unit, answer))
        for check, holds in (("evidence_again", asked_again), ("evidence_dropped", is_dropped)):
            if holds:
                findings[*of_claim.values(), check] = {**of_claim, "check": check}
    return list(findings.values())


def _sides(columns: Sequence[str]) -> tuple[str, ...]:
    there = {*sides_and_source_in(columns), *({REFERENCES_SIDE} & set(columns))}
    return tuple(side for side, texts in TEXTS_OF.items() if {side, texts} <= there)


VERIFY = Task(
    name="verify",
    table=SUPPORT,
    output={"verdict": list(VERDICTS), "evidence": "string"},
    units=_units,
    check=lambda answer: None,
    rows=_rows,
    sides=_sides,
    after=("decompose",),
    fields=("text", "source", "sentence"),
    n_required=2,
    join=_join,
    findings=_findings,
    top_logprobs=TOP_LOGPROBS,
    refine=_refine,
    objection=_objection,
    shared="source",
    labels=(SUPPORTED, UNMENTIONED),
)
