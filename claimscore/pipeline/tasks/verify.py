"""Verdicts: whether a text supports a claim, and the passage of the text that says so.

The verdict comes before the evidence, so its log-probabilities are those of the decision: after a
quotation the verdict would be settled. A prompt with label words has no evidence, and the verdicts
of a verifier with two labels. The questions about one window of a text follow one another, with the
window at the head of the prompt. Of a long text it has what bears on the claims of the record
(`claimscore.evidence`), the same for each claim. A claim that a sentence says word for word is
supported without a question.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.calibration import Calibration
from claimscore.config import LLM_VERIFIER, EncoderConfig
from claimscore.evidence import copies, excerpt
from claimscore.metrics.support import (
    BEST,
    CONTRADICTED,
    MODEL,
    OF_CLAIM,
    SUPPORTED,
    THRESHOLD,
    UNMENTIONED,
    UNSURE,
    VERDICTS,
    by_claim,
    joined,
    uncertainty,
    verdicts,
)
from claimscore.pipeline.tasks.base import (
    ExampleAnswers,
    Task,
    TaskInput,
    Unit,
    UnitAnswer,
    side_texts,
    value_probabilities,
)
from claimscore.tables import OPINIONS, REFERENCES_SIDE, SOURCE_SIDE, SUPPORT
from claimscore.text import split_sentences
from claimscore.types import Completion

#: The side whose texts the claims of each side are looked for in.
TEXTS_OF = {"summary": SOURCE_SIDE, REFERENCES_SIDE: "summary"}

#: The estimate's assumption: a token has so many bytes.
_BYTES_A_TOKEN = 4

#: More than there are verdicts, because several tokens may begin one; some servers give no more.
TOP_LOGPROBS = 5

#: Between sentences of a text that are no neighbours there.
GAP = " [...] "

_OBJECTION = (
    "This evidence is not in the source. Answer again, with a passage that is copied from the "
    "source word for word."
)

#: Signs that do not count at the ends of a quotation.
_AROUND = "\"'.,;:!?… \t\r\n"

#: Quotation marks that count as the same.
_QUOTES = str.maketrans("“”„‟«»‘’‚‛`´", '"' * 6 + "'" * 6)


class _SourceText(NamedTuple):
    """A text with the claims of a record that are looked for in it, as units without the text;
    `copies` has the places of those that a sentence says word for word."""

    text: str
    sentences: list[str]
    claims: list[Unit]
    copies: dict[int, int]


def _texts(given: TaskInput) -> Iterator[_SourceText]:
    claims: dict[tuple[str, str], list[Any]] = {}
    columns = ("id", "side", "text", "sentence_index", "claim_index", "sentence")
    for record, side, *claim in given.claims.select(columns).iter_rows():
        claims.setdefault((record, side), []).append(claim)
    for side in dict.fromkeys(item.side for item in given.texts):
        n_texts: Counter[str] = Counter()
        for item in side_texts(given.records, (TEXTS_OF[side],)):
            place, n_texts[item.id] = n_texts[item.id], n_texts[item.id] + 1
            units = [
                Unit(
                    item.id,
                    side,
                    claim,
                    item.text,
                    sentence_index,
                    claim_index,
                    more={"sentence": sentence or "", "read": f"{MODEL}.{given.evidence}"},
                    place=(position, place, 0),
                )
                for position, (claim, sentence_index, claim_index, sentence) in enumerate(
                    claims.get((item.id, side), ())
                )
            ]
            if units:
                sentences = split_sentences(item.text)
                known = copies(sentences, [unit.text for unit in units])
                yield _SourceText(item.text, sentences, units, known)


def _units(given: TaskInput) -> list[Unit]:
    """One unit a claim and window of a text, window by window; those of the claims that an earlier
    verifier is unsure of, where one was asked."""
    most_bytes, units = given.window_tokens * _BYTES_A_TOKEN, list[Unit]()
    earlier = _earlier(given)
    unsure = by_claim([row for row in earlier or () if row["uncertainty"] >= UNSURE])
    for source in _texts(given):
        asked = [unit for unit in source.claims if unit.place[0] not in source.copies]
        kept = None
        if given.evidence == BEST:
            kept = excerpt(source.sentences, [unit.text for unit in asked])
        for start, window in windows(source.text, most_bytes, kept) if asked else ():
            units += [
                dataclasses.replace(
                    unit, more={**unit.more, "source": window}, place=(*unit.place[:2], start)
                )
                for unit in asked
                if earlier is None or (unit.id, unit.side, *unit.place[:2]) in unsure
            ]
    return units


def _earlier(given: TaskInput) -> list[dict[str, Any]] | None:
    """What a verifier said that was asked before; None where there is none, or none yet."""
    if OPINIONS.name not in given.tables:
        return None
    sides = pl.col("side").is_in({item.side for item in given.texts})
    return given.tables[OPINIONS.name].filter(sides).to_dicts()


def _known(given: TaskInput) -> list[dict[str, Any]]:
    """The rows of an earlier verifier, or those of claims that a sentence says word for word."""
    if (earlier := _earlier(given)) is not None:
        return earlier
    answer = {"verdict": SUPPORTED, "evidence": None, "probabilities": {SUPPORTED: 1.0}}
    return [
        row | {"verbatim": True, "evidence_index": place, "evidence": source.sentences[place]}
        for source in _texts(given)
        for claim, place in source.copies.items()
        for row in _rows(source.claims[claim], answer)
    ]


def windows(
    text: str, most_bytes: int, kept: Collection[int] | None = None
) -> Iterator[tuple[int, str]]:
    """What is asked about of a text: windows of at most so many bytes, each after the place where
    it begins.

    They have the sentences at the places `kept`, or all of them, and `GAP` between those that are
    no neighbours. They are cut between sentences; a longer sentence is cut at white space, and
    where it has none anywhere. A blank text has none.
    """
    runs, end, goes_on = list[tuple[int, int]](), 0, False
    for place, piece in _pieces(text, most_bytes):
        start = text.index(piece, end)
        end = start + len(piece)
        if kept is not None and place not in kept:
            goes_on = False
            continue
        longer = [*runs[:-1], (runs[-1][0], end)] if goes_on else [*runs, (start, end)]
        if runs and len(_joined(text, longer).encode()) > most_bytes:
            yield runs[0][0], _joined(text, runs)
            longer = [(start, end)]
        runs, goes_on = longer, True
    if runs:
        yield runs[0][0], _joined(text, runs)


def _joined(text: str, runs: Sequence[tuple[int, int]]) -> str:
    return GAP.join(text[start:end] for start, end in runs)


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


def find_quotation(quotation: str, text: str, start: int = 0) -> tuple[int, int] | None:
    """From where to where a text has these words, from `start` on; None where it has not, or there
    is none.

    White space, quotation marks, capitals, and what stands around all of it may differ.
    """
    quoted, text = quotation.translate(_QUOTES), _plain(text)
    bare = quoted.strip(_AROUND)
    for words in (quoted.split(), bare.split()) if bare else ():
        pattern = r"\s+".join(map(re.escape, words))
        whole = re.compile(rf"(?<!\w){pattern}(?!\w)", re.IGNORECASE)
        match = whole.search(text, start)
        if match is not None:
            return match.span()
    return None


def _quoted(unit: Unit, answer: Mapping[str, Any]) -> tuple[int, int] | None:
    """Where the source has the evidence: in the text itself, so that it has no gap."""
    return find_quotation(answer["evidence"] or "", unit.summary, unit.place[-1])


def _objection(unit: Unit, answer: Mapping[str, Any]) -> str:
    needs_evidence = answer["verdict"] != UNMENTIONED and answer["evidence"] is not None
    return _OBJECTION if needs_evidence and _quoted(unit, answer) is None else ""


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
    position, text_index, _ = unit.place
    sentence = evidence = None
    span = _quoted(unit, answer) if verdict != UNMENTIONED else None
    if span is not None:
        evidence = unit.summary[slice(*span)]
        sentence = max(0, bisect.bisect(_sentence_starts(unit.summary), span[0]) - 1)
    return [
        {
            "id": unit.id,
            "side": unit.side,
            "claim_position": position,
            "claim": unit.text,
            "source_side": TEXTS_OF[unit.side],
            "source_index": text_index,
            "read": unit.more["read"],
            "verdict": verdict,
            "probability": probabilities.get(SUPPORTED, 0.0),
            "contradiction": probabilities.get(CONTRADICTED, 0.0),
            "evidence_index": sentence,
            "evidence": evidence,
            "verbatim": False,
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
        place = tuple(row.get(name) for name in columns)
        known = kept.setdefault(place, row)
        most = max(known["probability"], row["probability"])
        of_most = {"probability": most, "uncertainty": uncertainty(most)}
        kept[place] = max(known, row, key=_weight) | of_most
    return list(kept.values())


def _join(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a claim and text: that of the window which decides; of several samples, and with an
    earlier verifier's, that of all votes."""
    joint, rows = [], [{"threshold": THRESHOLD, **row} for row in rows]
    for votes in by_claim(deciding(rows, *OF_CLAIM, "verifier", "sample")).values():
        samples = [row for row in votes if "sample" in row]
        names = [f"sample {row['sample'] + 1}" for row in samples]
        own = [joined(samples, names)] if samples else []
        joint.append(joined([*(row for row in votes if "sample" not in row), *own]))
    return joint


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


VERIFY = Task(
    name="verify",
    table=SUPPORT,
    output={"verdict": list(VERDICTS), "evidence": "string"},
    units=_units,
    check=lambda answer: None,
    rows=_rows,
    known=_known,
    sides=TEXTS_OF,
    after=("decompose",),
    fields=("text", "source", "sentence"),
    n_required=2,
    join=_join,
    samples=True,
    findings=_findings,
    top_logprobs=TOP_LOGPROBS,
    refine=_refine,
    objection=_objection,
    shared="source",
    labels=(SUPPORTED, UNMENTIONED),
)


def verify_task(encoders: EncoderConfig) -> Task:
    """The task as this run does it: beside another verifier it is asked first, for the pass
    `support` to join, or after that pass about what it left unsure."""
    if encoders.llm_is_second:
        after = (*VERIFY.after, "support")
        return dataclasses.replace(VERIFY, after=after, reads=(OPINIONS.name,))
    return dataclasses.replace(VERIFY, table=OPINIONS) if encoders.judges else VERIFY


def calibrated_task(calibration: Calibration) -> Task:
    """The task with the probabilities of a calibration, and verdicts by its threshold."""
    return dataclasses.replace(VERIFY, join=lambda rows: calibration.applied(_join(rows)))
