"""qa: whether summary and source give the same answers to questions made from either."""

from __future__ import annotations

import dataclasses
import json
import re
import string
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    Requirements,
    Score,
    TaskRequirement,
    blank_reason,
    option,
    scored,
    unscored,
)
from claimscore.tables import SIDE_COLUMNS

REFERENCE = (
    "After Scialom et al. 2021, QuestEval (EMNLP), and Fabbri et al. 2022, QAFactEval (NAACL); "
    "token F1 of Rajpurkar et al. 2016, SQuAD (EMNLP)"
)

#: What each part is made of: the questions of this side, asked of the other one.
_SIDE_OF = {"precision": "summary", "recall": "source"}

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_tokens(answer: str) -> list[str]:
    """The words that count, as SQuAD's evaluation script normalises an answer.

    Lower case, no ASCII punctuation, no English articles, split at white space.
    """
    return _ARTICLES.sub(" ", answer.lower().translate(_WITHOUT_PUNCTUATION)).split()


def token_f1(expected: str, given: str) -> float:
    """F1 of the multisets of words of two answers (SQuAD's F1), in [0, 1].

    Where one of them has no word left: 1 if neither has, else 0, as SQuAD 2.0 does.
    """
    first, second = answer_tokens(expected), answer_tokens(given)
    if not first and not second:
        return 1.0
    shared = (Counter(first) & Counter(second)).total()
    return 2 * shared / (len(first) + len(second))


def harmonic_mean(precision: float, recall: float) -> float:
    """2·P·R / (P + R); 0 where both are 0."""
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


class _Question(NamedTuple):
    """A question with both answers; `given` is None where the other text does not answer it."""

    question: str
    expected: str
    given: str | None

    @property
    def f1(self) -> float:
        return 0.0 if self.given is None else token_f1(self.expected, self.given)


class _Tables(NamedTuple):
    """The questions and answers of each record and side."""

    failed: Mapping[tuple[str, str], str]
    questions: Mapping[tuple[str, str], dict[int, tuple[str, str]]]
    answers: Mapping[tuple[str, str], dict[int, str | None]]


@dataclasses.dataclass(frozen=True)
class QaOptions:
    """Options of `qa`."""

    value: str = option(
        "f1",
        "Questions of the summary (precision), of the source (recall), or both.",
        ("f1", "precision", "recall"),
    )


def _make(name: str, options: QaOptions) -> Metric:
    parts = tuple(_SIDE_OF) if options.value == "f1" else (options.value,)
    sides = tuple(_SIDE_OF[part] for part in parts)
    requires = Requirements(
        columns=("summary", "source"),
        tasks=(TaskRequirement("questions", sides), TaskRequirement("answers", sides)),
    )

    def score(tables: ChunkTables) -> list[Score]:
        read = _read(tables)
        return [
            unscored(row["id"], blank)
            if (blank := blank_reason(row, requires.columns))
            else _score_record(row["id"], parts, read)
            for row in tables.records.iter_rows(named=True)
        ]

    return Metric(
        name=name,
        version="v1",
        requires=requires,
        score=score,
        signature_keys=("questions", "answers", "llm", "claimscore"),
        higher_is="more answers in common",
        range=(0.0, 1.0),
        description=f"Agreement of summary and source on the answers to questions: {options.value}",
        reference=REFERENCE,
        facts=(("value", options.value), ("overlap", "squad-token-f1")),
    )


def _read(tables: ChunkTables) -> _Tables:
    failures = tables["failures"].filter(pl.col("stage").is_in(["questions", "answers"]))
    failed: dict[tuple[str, str], str] = {}
    for stage in ("questions", "answers"):
        of_stage = failures.filter(pl.col("stage") == stage).sort("index", maintain_order=True)
        for record, side, message in of_stage.select("id", "side", "message").iter_rows():
            place = SIDE_COLUMNS.get(side, side)
            failed.setdefault((record, side), f"{stage} failed for {place}: {message}")
    questions: dict[tuple[str, str], dict[int, tuple[str, str]]] = {}
    answers: dict[tuple[str, str], dict[int, str | None]] = {}
    rows = tables["llm_answers"].select("task", "id", "side", "index", "question", "answer")
    for task, record, side, index, question, answer in rows.iter_rows():
        if task == "questions":
            said = json.loads(answer)["answer"]
            questions.setdefault((record, side), {})[index] = (question, said)
        elif task == "answers":
            answers.setdefault((record, side), {})[index] = json.loads(answer)["answer"]
    return _Tables(failed, questions, answers)


def _score_record(record: str, parts: tuple[str, ...], read: _Tables) -> Score:
    components: dict[str, Any] = {}
    values: list[float] = []
    failed: list[dict[str, object]] = []
    for part in parts:
        key = (record, _SIDE_OF[part])
        asked = _asked(key, read)
        if isinstance(asked, str):
            return unscored(record, asked, components)
        scores = [question.f1 for question in asked]
        values.append(sum(scores) / len(scores))
        components |= {part: values[-1], f"{part}_f1": scores}
        failed += [{"from": key[1], **question._asdict()} for question in asked if question.f1 == 0]
    value = harmonic_mean(*values) if len(values) == len(_SIDE_OF) else values[0]
    return scored(record, value, components | {"failed": failed})


def _asked(key: tuple[str, str], read: _Tables) -> list[_Question] | str:
    """The questions of one side of a record with their answers, or why there are none."""
    if key in read.failed:
        return read.failed[key]
    questions, answers = read.questions.get(key, {}), read.answers.get(key, {})
    if not questions:
        return f"no questions from {SIDE_COLUMNS.get(key[1], key[1])}"
    if questions.keys() != answers.keys():
        return f"answers do not match the questions: {len(answers)} of {len(questions)}"
    return [_Question(*questions[index], answers[index]) for index in sorted(questions)]


QA = MetricFamily("qa", QaOptions, _make)
