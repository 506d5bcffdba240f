"""CASPR: the published cases, the paper's rules, and the metric over tables."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.metrics import load_metric
from claimscore.metrics.caspr import (
    CASPR,
    LABELS,
    caspr_from_labels,
    pair_labels,
    sentence_scores,
)
from tests.support.frames import claim_rows, nli_rows, tables
from tests.support.shared_data import shared

E, N, C = LABELS


@st.composite
def matrices(draw):
    m, n = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    label = st.sampled_from(LABELS)
    forward = [[draw(label) for _ in range(n)] for _ in range(m)]
    backward = [[draw(label) for _ in range(m)] for _ in range(n)]
    return forward, backward


def one_hot(matrix):
    return np.array([[[float(label == name) for name in LABELS] for label in r] for r in matrix])


def test_golden_cases_come_out_of_the_function_and_of_the_metric():
    cases = json.loads(shared("data/caspr/aggregation_golden.json").read_text())["cases"]
    chunk = tables(
        [{"id": case["name"]} for case in cases],
        claims=[row for c in cases for row in claim_rows(c["name"], c["n_a"], c["n_b"])],
        nli=[row for c in cases for row in nli_rows(c["name"], c["nli_a_to_b"], c["nli_b_to_a"])],
    )
    for case, score in zip(cases, CASPR.metric().score(chunk), strict=True):
        assert score.id == case["name"]
        forward, backward = case["nli_a_to_b"], case["nli_b_to_a"]
        value = caspr_from_labels(forward, backward)
        assert value == (case["caspr"] and pytest.approx(case["caspr"], abs=1e-6))
        assert pair_labels(forward, backward) == case["comparison_labels"]
        scores = sentence_scores(forward, backward)
        assert scores == (case["sentence_scores_a"], case["sentence_scores_b"])
        if case["n_a"] and case["n_b"]:
            assert score.value == pytest.approx(case["caspr"], abs=1e-6)
            assert score.components["sentence_scores_a"] == case["sentence_scores_a"]
            assert score.components["sentence_scores_b"] == case["sentence_scores_b"]
            labels = Counter(label for row in case["comparison_labels"] for label in row)
            assert score.components["pairs"] == {label: labels[label] for label in LABELS}
        else:
            assert score.value is None
            assert score.reason == f"no claims in summary_{'b' if case['n_a'] else 'a'}"


@given(matrices())
@settings(max_examples=40, deadline=None)
def test_invariants(pair):
    """Within the range; the same for swapped summaries; of probabilities the largest counts."""
    forward, backward = pair
    value = caspr_from_labels(forward, backward)
    assert 0 <= value <= 100
    assert caspr_from_labels(backward, forward) == value
    assert caspr_from_labels(one_hot(forward), one_hot(backward)) == value


@pytest.mark.parametrize(
    ("forward", "backward", "message"),
    [
        ([[E, N]], [[E]], "forward must have 1 rows of 1"),
        ([[E]], [[E, E]], "backward must have 1 rows of 1"),
        ([["yes"]], [[E]], "'yes' is not one of"),
        ([[[0.5, 0.5]]], [[E]], "rows of 3 probabilities"),
        ([[[np.nan, 0, 1]]], [[E]], "not a number"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(forward, backward, message):
    with pytest.raises(ValueError, match=message):
        caspr_from_labels(forward, backward)


@pytest.mark.parametrize(
    ("name", "value", "scores_a"),
    [("caspr", 40, [-1, -1, 1]), ("caspr:repeats=once", 50, [-1, None, 1])],
)
def test_a_repeated_claim_counts_each_time_or_once(name, value, scores_a):
    """By hand: b_0 entails a_0 and its repeat a_1 and says nothing of a_2; b_1 is alone."""
    texts = ["Rooms are clean.", "rooms  are clean", "It rains.", "Clean rooms.", "It is far."]
    claims = claim_rows("r", 3, 2)
    for row, text in zip(claims, texts, strict=True):
        row["text"] = text
    forward, backward = [[E, N], [E, N], [N, N]], [[E, E, N], [N, N, N]]
    rows = {"claims": claims, "nli": nli_rows("r", forward, backward)}
    metric = load_metric(name)
    (score,) = metric.score(tables([{"id": "r"}], **rows))
    option = name.partition("=")[2] or "each"
    assert score.value == pytest.approx(value)
    assert (metric.name, metric.facts) == (name, (("repeats", option),))
    parts = {"n_a": 3, "n_b": 2, "repeats": option, "n_repeats_a": 1, "n_repeats_b": 0}
    assert parts.items() <= score.components.items()
    assert score.components["sentence_scores_a"] == scores_a
    assert score.components["sentence_scores_b"] == [-1, 1]
