"""A task: the questions it asks about a chunk of records, and the rows its answers make."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.config import Granularity
from claimscore.errors import ParseError
from claimscore.metrics.support import BEST
from claimscore.tables import (
    CLAIMS,
    COLUMNS_OF,
    SIDE_COLUMNS,
    Table,
    counted,
    texts_on_side,
)
from claimscore.text import split_sentences
from claimscore.types import Completion, TokenLogprob

#: What a prompt about one text may use: the text asked about, and the whole text it is part of.
FIELDS = ("text", "summary")

#: What a prompt about a sentence may use besides: the sentences around it, "" where there are none.
CONTEXT_FIELDS = ("before", "after")

#: So many sentences are the context before a sentence, besides the text's first one (as VeriScore
#: has it, Song et al. 2024), and after it.
N_BEFORE, N_AFTER = 3, 1


#: A window of a long text has at most so many tokens, where the user does not say.
WINDOW_TOKENS = 3000

#: The sides of tasks about summaries, for `Task.sides`.
SUMMARIES = dict.fromkeys(SIDE_COLUMNS, "")

#: An example of a prompt: the user's turn, and the answers in the other one.
ExampleAnswers = tuple[str, Sequence[Mapping[str, Any]]]


class SideText(NamedTuple):
    """One text of one record."""

    id: str
    side: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """One question: a text of a record, or a sentence or claim of it, by its position.

    `place` is what else a task must know of the place of its rows.
    """

    id: str
    side: str
    text: str
    summary: str
    sentence_index: int | None = None
    claim_index: int | None = None
    more: Mapping[str, str] = dataclasses.field(default_factory=dict)
    place: tuple[int, ...] = ()

    @property
    def of_sentence(self) -> dict[str, Any]:
        """Record, side and sentence, as rows name them."""
        return {"id": self.id, "side": self.side, "sentence_index": self.sentence_index}

    def fields(self, wanted: frozenset[str]) -> dict[str, str]:
        """The values of the placeholders that a prompt uses."""
        values = {"text": self.text, "summary": self.summary, **self.more}
        return {name: value for name, value in values.items() if name in wanted}


class UnitAnswer(NamedTuple):
    """A unit, what the prompt's placeholders `shown` of it, and its checked answer; whether an
    answer about several was `misplaced` before, and whether it was asked about again because of
    `Task.objection`."""

    unit: Unit
    shown: Mapping[str, str]
    answer: Mapping[str, Any]
    was_misplaced: bool = False
    asked_again: bool = False


#: Rows of `claim_checks` about units with their answers; see `Task.findings`.
Findings = Callable[[Sequence[UnitAnswer], Sequence[ExampleAnswers]], list[dict[str, Any]]]


@dataclasses.dataclass(frozen=True, slots=True)
class TaskInput:
    """The input of a task: the texts of its sides, the tables of tasks before it, the records.

    A text longer than `window_tokens` (4 bytes each) is asked about by windows, in tasks that do;
    `evidence` says what of it.
    """

    texts: Sequence[SideText]
    granularity: Granularity
    tables: Mapping[str, pl.DataFrame]
    records: pl.DataFrame = dataclasses.field(default_factory=pl.DataFrame)
    window_tokens: int = WINDOW_TOKENS
    evidence: str = BEST

    @property
    def claims(self) -> pl.DataFrame:
        """The claims that count."""
        return counted(self.tables[CLAIMS.name])

    def whole_texts(self, side: str) -> dict[str, str]:
        """The text of a side for each record that has one; several are joined by a blank line."""
        texts: dict[str, list[str]] = {}
        for item in side_texts(self.records, (side,)):
            if item.text.strip():
                texts.setdefault(item.id, []).append(item.text)
        return {record: "\n\n".join(parts) for record, parts in texts.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A record of functions; the engine between `units` and `rows` is the same for all.

    `check` raises `ParseError` for an answer of the right types that says nothing. `rows`
    gets each unit with its checked answer (the columns of the prompt's `[output]`) and
    returns rows of `table` without provenance. A prompt may have the columns of `optional` besides
    those of `output`. `fields` are the placeholders that a prompt
    of the task may use, the first `n_required` of which it must; what they are besides the
    text and the summary stands in `Unit.more`. `join`, where there is one, sees all rows
    of a chunk and numbers them or adds rows made from neighbours.

    `findings`, where there is one, gives rows of `claim_checks` about units with their answers;
    it gets the prompt's examples too, of each the user's turn and the answers.
    `top_logprobs` is asked for with every answer; `refine`, where there is one, adds to a
    checked answer what the completion says besides its text. `several`: a request may be about
    several units of one text; `misplaced`, where there is one, gets the texts of such a request and
    the answers by their positions, and returns the positions whose answers belong to other texts.
    `samples`: several answers may be asked for; the rows have a column `sample`. `guess` is what
    an estimate takes for an answer that is not known yet, and `guessed` says so in words.

    `sides` are those that it may be done for, each with the side that must be there too, or "".

    `known`, where there is one, gives rows about what needs no question.

    `labels`: in the place of `output` a prompt may have these label words.

    `objection`, where there is one, says what is wrong with a checked answer about a unit, "" for
    nothing; the model is told so and asked once more. `shared` is the long field at the head of
    the prompt that the questions about several units have in common.

    `after` are tasks, whose tables it gets, and kinds of model passes; it `reads` others besides.
    """

    name: str
    table: Table
    output: Mapping[str, Any]
    units: Callable[[TaskInput], list[Unit]]
    check: Callable[[Mapping[str, Any]], None]
    rows: Callable[[Unit, Mapping[str, Any]], list[dict[str, Any]]]
    sides: Mapping[str, str]
    after: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    fields: tuple[str, ...] = FIELDS
    n_required: int = 1
    known: Callable[[TaskInput], list[dict[str, Any]]] = lambda given: []
    join: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None
    findings: Findings | None = None
    top_logprobs: int = 0
    refine: Callable[[Completion, dict[str, Any]], dict[str, Any]] | None = None
    several: bool = False
    misplaced: Callable[[Sequence[str], Mapping[int, Mapping[str, Any]]], set[int]] | None = None
    samples: bool = False
    guess: Callable[[Unit], dict[str, Any]] | None = None
    guessed: str = ""
    objection: Callable[[Unit, Mapping[str, Any]], str] | None = None
    shared: str = ""
    labels: tuple[str, ...] = ()
    optional: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def sides_in(self, columns: Collection[str]) -> tuple[str, ...]:
        """The sides that it can be done for where the records have these columns."""
        there = {""} | {side for side, names in COLUMNS_OF.items() if {*names} & {*columns}}
        return tuple(side for side, other in self.sides.items() if {side, other} <= there)

    def takes(self, output: Mapping[str, Any]) -> bool:
        """Whether a prompt of the task may have this `[output]`."""
        return output in (self.output, {**self.output, **self.optional})


def side_texts(records: pl.DataFrame, sides: Sequence[str]) -> list[SideText]:
    """The texts of the named sides, record by record, sides in the order given.

    Several sources of one record are several texts of the side `source`, its references those
    of the side `references`. A record without the text (null) has none.
    """
    return [
        SideText(row["id"], side, text)
        for row in records.iter_rows(named=True)
        for side in sides
        for text in texts_on_side(row, side)
    ]


def whole_text_units(given: TaskInput) -> list[Unit]:
    """One unit a text: several sources of a record are several texts. Blank ones have none."""
    return [
        Unit(item.id, item.side, item.text, item.text) for item in given.texts if item.text.strip()
    ]


def text_units(given: TaskInput) -> list[Unit]:
    """One unit a sentence, or one a whole text, as the granularity says; with its context.

    Blank texts have none.
    """
    if given.granularity == "summary":
        no_context = dict.fromkeys(CONTEXT_FIELDS, "")
        return [dataclasses.replace(unit, more=no_context) for unit in whole_text_units(given)]
    units = []
    for item in given.texts:
        sentences = split_sentences(item.text)
        for index, sentence in enumerate(sentences):
            context = context_of(sentences, index)
            units.append(Unit(item.id, item.side, sentence, item.text, index, more=context))
    return units


def context_of(sentences: Sequence[str], index: int) -> dict[str, str]:
    """The values of `CONTEXT_FIELDS` for the sentence at this place."""
    start = max(0, index - N_BEFORE)
    before = (*sentences[: min(1, start)], *sentences[start:index])
    after = sentences[index + 1 : index + 1 + N_AFTER]
    return dict(zip(CONTEXT_FIELDS, map(" ".join, (before, after)), strict=True))


def numbered_through(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with their `index` among all of their side: several sources follow one another."""
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        key = (row["id"], row["side"])
        row["index"] = seen[key]
        seen[key] += 1
    return rows


def value_probabilities(
    column: str, values: Sequence[str], answered: str, logprobs: Sequence[TokenLogprob]
) -> dict[str, float] | None:
    """The probability of each value that is among the likeliest tokens where that of `column`
    begins in the answer.

    A token counts for the value that it begins, with no more than JSON's signs around it; values
    begin differently. Tokens of one value are added up; what is no value has no part, so the sum
    is 1 or less. None where there are no log-probabilities or they are of another answer.
    """
    match = re.search(rf'"{column}"\s*:\s*"?(\w+)', "".join(place.token for place in logprobs))
    if match is None or match[1] != answered:
        return None
    ends = itertools.accumulate(len(place.token) for place in logprobs)
    place = next(p for p, end in zip(logprobs, ends, strict=True) if end > match.start(1))
    sums: dict[str, float] = {}
    for token, logprob in dict([place[:2], *place.top]).items():
        start = token.strip(' \t\r\n":,}')
        for value in values:
            if start and value.startswith(start):
                sums[value] = sums.get(value, 0.0) + math.exp(min(logprob, 0.0))
    return dict(sorted(sums.items())) or None


def refuse_empty(what: str, *texts: str) -> None:
    """`ParseError` where one of the texts of an answer says nothing."""
    if not all(text.strip() for text in texts):
        raise ParseError(f"{what} is empty")


def no_empty(what: str) -> Callable[[Mapping[str, Any]], None]:
    """A check that refuses an answer in which any text, at whatever depth, says nothing."""

    def texts_of(part: Any) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping | list):
            for inner in part.values() if isinstance(part, Mapping) else part:
                yield from texts_of(inner)

    return lambda answer: refuse_empty(what, *texts_of(answer))
