"""Metrics over what an encoder or a language model made: formulas, values and reasons."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.metrics import load_metric
from claimscore.metrics.bert_score import bertscore, bs_inverse
from claimscore.metrics.likelihood import bart_score, perplexity
from claimscore.metrics.supert import supert
from tests.support.frames import Row, cosine, number, tables, token_row

NAN = float("nan")
RECORD = {"id": "x", "summary": "A.", "references": ["B.", " ", "C."], "source": "D."}


def similar(index: int, value: float, **other: object) -> Row:
    return cosine(("summary", "references"), (0, index), value, **other)


def token_scores(index: int, f1: float, **other: object) -> Row:
    numbers = {"precision": f1 - 0.1, "recall": f1 + 0.1, "f1": f1, "layer": 2}
    sides = {"candidate_side": "summary", "reference_side": "references"}
    return {"id": "x", **sides, "reference_index": index, **numbers, **other}


def likelihood(
    mean: float, tokens: int, measure: str, given: Any = None, **other: Any
) -> list[Row]:
    return [
        number(measure, "log_likelihood", mean * tokens, given, **other),
        number(measure, "tokens", tokens, given, **other),
    ]


def bart(given_side: str, side: str, *means: float) -> list[Row]:
    rows: list[Row] = []
    for place, mean in zip((0, 2), means, strict=False):
        rows += likelihood(mean, 4 + place, "bart_score", (given_side, place), side=side)
    return rows


#: Rows that each metric takes, and rows of other measures, units and sides that it does not.
COSINES = [
    similar(2, 0.25),
    similar(0, 0.75),
    similar(0, -0.5, column_side="source"),
    similar(0, 0.9, unit="sentence"),
    similar(0, 0.9, row_side="source"),
]
BASELINES = {"baseline_precision": 0.2, "baseline_recall": 0.4, "baseline_f1": 0.5}
TOKENS = [
    token_scores(2, 0.8),
    token_scores(0, 0.5),
    token_scores(0, 0.9, reference_side="source"),
    token_scores(0, 0.9, candidate_side="a"),
]
RESCALED = [token_scores(0, 0.75, **BASELINES), token_scores(2, 0.5, **BASELINES)]
BART = [
    *bart("source", "summary", -1.0),
    *bart("references", "summary", -2.0, -3.0),
    *bart("summary", "references", -4.0, -1.0),
]
MOVERS = [
    number(measure, name, value, given)
    for measure, name in (
        *(("sentence_movers", name) for name in ("wms", "sms", "s+wms")),
        *(("mover_score", name) for name in ("paper-1", "code-2")),
    )
    for value, given in (
        (0.5, ("references", 0)),
        (0.25, ("references", 2)),
        (0.9, ("source", 0)),
    )
]
PERPLEXITY = [
    *likelihood(-math.log(7), 2, "perplexity"),
    *likelihood(-1, 1, "perplexity", side="source"),
    *likelihood(-1, 1, "ls"),
]


def score(spec: str, rows: list[Row], **record: Any) -> Any:
    kind = spec.partition(":")[0]
    table = {
        "bert-cosine": "similarities", "bertscore": "token_scores", "bs-inverse": "token_scores"
    }.get(kind, "text_scores")  # fmt: skip
    (found,) = load_metric(spec).score(tables([RECORD | record], **{table: rows}))
    return found


@pytest.mark.parametrize(
    ("spec", "rows", "expected"),
    [
        ("bert-cosine", COSINES, 0.75),
        ("bert-cosine:multi=mean", COSINES, 0.5),
        ("bert-cosine:against=source", COSINES, -0.5),
        ("bertscore", TOKENS, 0.8),
        ("bertscore:multi=mean", TOKENS, 0.65),
        ("bertscore:measure=recall", TOKENS, 0.9),
        ("bertscore:against=source", TOKENS, 0.9),
        ("bertscore", RESCALED, 0.5),
        ("bertscore:measure=recall", RESCALED, 0.75),
        ("bertscore:measure=precision", RESCALED, 0.5625),
        ("bs-inverse", [token_row("x", 0.9)], 10),
        ("bs-inverse", [token_row("x", 0.9, 0.8)], 50),
        ("bs-inverse", [token_row("x", 0.7, 0.8)], 150),  # not clipped
        ("factcc", [number("factcc", "supported", 0.7, ("source", 0))], 0.7),
        ("bart-score", BART, -1.0),
        ("bart-score:direction=precision", BART, -2.5),
        ("bart-score:direction=precision:multi=max", BART, -2.0),
        ("bart-score:direction=recall", BART, -2.5),
        ("bart-score:direction=f", BART, (-3.0 - 2.0) / 2),
        ("bart-score:direction=f:multi=max", BART, -2.0),
        ("wms", MOVERS, 0.5),
        ("wms:multi=mean", MOVERS, 0.375),
        ("sms", MOVERS, 0.5),
        ("sms:words=yes", MOVERS, 0.5),
        ("moverscore", MOVERS, 0.5),
        ("moverscore:against=source", MOVERS, 0.9),
        ("moverscore:variant=code:n=2", MOVERS, 0.5),
        ("perplexity", PERPLEXITY, 7),
    ],
)
def test_a_metric_takes_its_own_rows(spec: str, rows: list[Row], expected: float) -> None:
    """A blank reference takes no part; of several the best counts, or their mean."""
    for order in (rows, rows[::-1]):
        assert score(spec, order).value == pytest.approx(expected)


def test_a_failure_of_another_side_does_not_matter() -> None:
    failure = {"id": "x", "stage": "mover_score", "side": "references", "message": "too long"}
    given_tables = tables([RECORD], failures=[failure], text_scores=MOVERS)
    (failed,) = load_metric("moverscore").score(given_tables)
    assert failed.reason == "mover_score failed for references: too long"
    (found,) = load_metric("moverscore:against=source").score(given_tables)
    assert found.value == 0.9


@given(st.integers(1, 5000), st.integers(2, 10**6))
def test_a_uniform_model_has_the_vocabulary_as_perplexity(tokens: int, vocabulary: int) -> None:
    assert perplexity(-tokens * math.log(vocabulary), tokens) == pytest.approx(vocabulary)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bs_inverse(0.5, 1.0), "below 1"),
        (lambda: bs_inverse(0.5, NAN), "below 1"),
        (lambda: perplexity(0, 0), "none"),
        (lambda: bart_score(0, 0), "none"),
        (lambda: bertscore("a", "b"), "lists of texts"),
        (lambda: bertscore(["a"], ["b"], baseline=(0, 0, 1)), "below 1"),
        (lambda: bertscore(["a"], ["b"], baseline=(0.5, 0.5)), "three numbers"),
    ],
)
def test_what_has_no_score_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_alignment_by_hand() -> None:
    """Lengths do not count: cosines of (1, 0), (1, 1) with (2, 0), (0, 3), (-1, 0)."""
    found = supert(np.array([[1, 0], [1, 1]]), np.array([[2.0, 0], [0, 3], [-1, 0]]))
    half = 2**-0.5
    assert found is not None
    assert found.recall == pytest.approx((1 + half - half) / 3)
    assert found.precision == pytest.approx((1 + half) / 2)
    both = found.recall + found.precision
    assert found.f1 == pytest.approx(2 * found.recall * found.precision / both)
    assert supert(np.zeros((0, 2)), np.ones((1, 2))) is None
    assert supert(np.ones((1, 2)), np.zeros((0, 2))) is None
