"""llm-judge: a language model's grades of a summary on four dimensions, after G-Eval."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

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
    option_facts,
    scored,
    unscored,
)

REFERENCE = (
    "After Liu et al. 2023, G-Eval: NLG Evaluation using GPT-4 with Better Human Alignment (EMNLP)"
)

#: What is graded, in the order of the questions.
DIMENSIONS = ("coherence", "consistency", "fluency", "relevance")

#: The scores that there are.
SCALE = (1, 2, 3, 4, 5)

_REQUIRES = Requirements(
    columns=("summary", "source"), tasks=(TaskRequirement("judge", ("summary",)),)
)


def expected_score(probabilities: Mapping[str, float]) -> float:
    """Σ p(s)·s, p the probabilities of the scores over their sum (G-Eval, section 2).

    `probabilities` are those of a model's tokens by score ("1" to "5"); what is missing
    counts as 0. `ValueError` where they sum to nothing.
    """
    total = sum(probabilities.values())
    if not total > 0:
        raise ValueError("the probabilities of the scores sum to nothing")
    return sum(int(score) * p for score, p in probabilities.items()) / total


@dataclasses.dataclass(frozen=True)
class JudgeOptions:
    """Options of `llm-judge`."""

    dimension: str = option(
        "overall", "The dimension, or the mean of all four.", ("overall", *DIMENSIONS)
    )
    expectation: str = option(
        "auto",
        "Whether a grade is the expected value of the probabilities of the scores: where the "
        "server gives them, always, or never.",
        ("auto", "required", "off"),
    )


def _make(name: str, options: JudgeOptions) -> Metric:
    asked = DIMENSIONS if options.dimension == "overall" else (options.dimension,)

    def score(tables: ChunkTables) -> list[Score]:
        failed, answers = _failures(tables), _answers(tables)

        def score_record(row: Mapping[str, Any]) -> Score:
            record, blank = row["id"], blank_reason(row, _REQUIRES.columns)
            if blank:
                return unscored(record, blank)
            components: dict[str, object] = {}
            values: list[float] = []
            for dimension in asked:
                key = (record, DIMENSIONS.index(dimension))
                if key in failed:
                    return unscored(
                        record, f"judge failed for {dimension}: {failed[key]}", components
                    )
                if key not in answers:
                    return unscored(record, f"no grade of {dimension}", components)
                grade = _mean_grade(
                    [_grade(answer, options.expectation) for answer in answers[key]]
                )
                if grade["value"] is None:
                    return unscored(record, f"no log-probabilities: {dimension}", components)
                components[dimension] = grade
                values.append(grade["value"])
            return scored(record, sum(values) / len(values), components)

        return [score_record(row) for row in tables.records.iter_rows(named=True)]

    described = "mean of four dimensions" if len(asked) > 1 else options.dimension
    return Metric(
        name=name,
        requires=_REQUIRES,
        score=score,
        signature_keys=("judge", "claimscore"),
        higher_is="better",
        range=(float(SCALE[0]), float(SCALE[-1])),
        description=f"A language model's grade of the summary, 1 to 5: {described}",
        reference=REFERENCE,
        facts=option_facts(options),
        verdict="{mean} of 5: 1 is the worst grade, 5 the best",
    )


def _failures(tables: ChunkTables) -> dict[tuple[str, int | None], str]:
    """Why a dimension of a record has no grade, by the dimension's position."""
    of_judge = tables["failures"].filter(pl.col("stage") == "judge")
    rows = of_judge.select("id", "index", "message").iter_rows()
    return {(record, index): message for record, index, message in rows}


def _answers(tables: ChunkTables) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The answers about a dimension of a record, by its position: one a sample."""
    of_judge = tables["llm_answers"].filter(pl.col("task") == "judge")
    answers: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record, index, answer in of_judge.select("id", "index", "answer").iter_rows():
        answers.setdefault((record, index), []).append(json.loads(answer))
    return answers


def _grade(answer: Mapping[str, Any], expectation: str) -> dict[str, Any]:
    """One dimension: its value, how it was got, the score that was said, what else was likely."""
    probabilities = answer["probabilities"] if expectation != "off" else None
    value: float | None = float(answer["score"])
    if probabilities:
        value = expected_score(probabilities)
    elif expectation == "required":
        value = None
    by = "expectation" if probabilities else "score"
    return {"value": value, "by": by, "score": answer["score"], "probabilities": probabilities}


def _mean_grade(grades: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean of a dimension's samples, all of which must have a value; one is its own mean."""
    if len(grades) == 1:
        return grades[0]
    values = [grade["value"] for grade in grades]
    whole = all(value is not None for value in values)
    return {
        "value": sum(values) / len(values) if whole else None,
        "by": " and ".join(sorted({grade["by"] for grade in grades})),
        "score": sum(grade["score"] for grade in grades) / len(grades),
        "probabilities": None,
        "samples": [{key: g[key] for key in ("value", "score", "probabilities")} for g in grades],
    }


LLM_JUDGE = MetricFamily("llm-judge", JudgeOptions, _make)
