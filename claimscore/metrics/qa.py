"""qa: whether summary and source give the same answers to questions made from either."""

from __future__ import annotations

import dataclasses
import json
import re
import string
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    Requirements,
    Score,
    TaskRequirement,
    option,
    score_records,
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

#: Values of the option `overlap` -> what signatures call them.
_OVERLAPS = {"f1": "squad-token-f1", "exact": "squad-exact-match", "answered": "answered"}

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

    def agreement(self, overlap: str) -> float:
        """How far both answers agree, in [0, 1]; 0 without an answer."""
        if overlap == "answered":
            return float(self.given is not None)
        return float(self.f1 == 1) if overlap == "exact" else self.f1


#: By record and side, then by the place of the question: the question and an answer.
_Answers = dict[tuple[str, str], dict[int, tuple[str, Any]]]


@dataclasses.dataclass(frozen=True)
class QaOptions:
    """Options of `qa`."""

    value: str = option(
        "f1",
        "Questions of the summary (precision), of the source (recall), or both.",
        ("f1", "precision", "recall"),
    )
    overlap: str = option(
        "f1",
        "What two answers have in common: F1 of their words, all words or none, or that there is "
        "an answer.",
        ("f1", "exact", "answered"),
    )
    unanswered: str = option(
        "zero", "Whether questions without an answer count 0 or are left out.", ("zero", "left_out")
    )


def _make(name: str, options: QaOptions) -> Metric:
    parts = tuple(_SIDE_OF) if options.value == "f1" else (options.value,)
    sides = tuple(_SIDE_OF[part] for part in parts)
    requires = Requirements(
        columns=("summary", "source"),
        tasks=(TaskRequirement("questions", sides), TaskRequirement("answers", sides)),
    )

    def score(tables: ChunkTables) -> list[Score]:
        questions, answers = _answers(tables, "questions"), _answers(tables, "answers")

        def score_record(row: Mapping[str, Any]) -> Score:
            record = row["id"]
            components: dict[str, Any] = {}
            values: list[float] = []
            failed: list[dict[str, object]] = []
            for part in parts:
                side = _SIDE_OF[part]
                expected, given = (rows.get((record, side), {}) for rows in (questions, answers))
                if not expected:
                    reason = f"no questions from {SIDE_COLUMNS.get(side, side)}"
                    return unscored(record, reason, components)
                if expected.keys() != given.keys():
                    reason = f"answers do not match the questions: {len(given)} of {len(expected)}"
                    return unscored(record, reason, components)
                asked = [_Question(*expected[index], given[index][1]) for index in sorted(expected)]
                agreements = [question.agreement(options.overlap) for question in asked]
                counted = [
                    value
                    for question, value in zip(asked, agreements, strict=True)
                    if options.unanswered == "zero" or question.given is not None
                ]
                if not counted:
                    reason = f"no question from {SIDE_COLUMNS.get(side, side)} has an answer"
                    return unscored(record, reason, components)
                values.append(sum(counted) / len(counted))
                components |= {part: values[-1], f"{part}_{options.overlap}": agreements}
                failed += [
                    {"from": side, **question._asdict()}
                    for question, value in zip(asked, agreements, strict=True)
                    if value == 0
                ]
            value = harmonic_mean(*values) if len(values) == len(_SIDE_OF) else values[0]
            return scored(record, value, components | {"failed": failed})

        return score_records(tables, requires, score_record)

    return Metric(
        name=name,
        requires=requires,
        score=score,
        signature_keys=("questions", "answers", "claimscore"),
        higher_is="more answers in common",
        range=(0.0, 1.0),
        description=f"Agreement of summary and source on the answers to questions: {options.value}",
        reference=REFERENCE,
        facts=(
            ("value", options.value),
            ("overlap", _OVERLAPS[options.overlap]),
            *((("unanswered", "left_out"),) if options.unanswered != "zero" else ()),
        ),
    )


def _answers(tables: ChunkTables, task: str) -> _Answers:
    rows = tables["llm_answers"].filter(task=task)
    columns = rows.select("id", "side", "index", "question", "answer")
    answers: _Answers = {}
    for record, side, index, question, answer in columns.iter_rows():
        answers.setdefault((record, side), {})[index] = question, json.loads(answer)["answer"]
    return answers


QA = MetricFamily("qa", QaOptions, _make)
