"""CASPR: the published cases, the paper's rules, and the metric over tables."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_golden_cases_are_reproduced():
    """Every worked case of aggregation_golden.json comes out to 1e-6, with its parts."""
    golden = json.loads(shared("data/caspr/aggregation_golden.json").read_text())
    for case in golden["cases"]:
        forward, backward = case["nli_a_to_b"], case["nli_b_to_a"]
        expected = (
            case["caspr"] if case["caspr"] is None else pytest.approx(case["caspr"], abs=1e-6)
        )
        assert caspr_from_labels(forward, backward) == expected, case["name"]
        assert pair_labels(forward, backward) == case["comparison_labels"], case["name"]
        scores = sentence_scores(forward, backward)
        assert scores == (case["sentence_scores_a"], case["sentence_scores_b"]), case["name"]


def test_golden_cases_come_out_of_the_metric():
    """The run's metric agrees with the golden file; a side without claims is null instead."""
    cases = json.loads(shared("data/caspr/aggregation_golden.json").read_text())["cases"]
    chunk = tables(
        [{"id": case["name"]} for case in cases],
        claims=[row for c in cases for row in claim_rows(c["name"], c["n_a"], c["n_b"])],
        nli=[row for c in cases for row in nli_rows(c["name"], c["nli_a_to_b"], c["nli_b_to_a"])],
    )
    for case, score in zip(cases, CASPR.score(chunk), strict=True):
        assert score.id == case["name"]
        if case["n_a"] and case["n_b"]:
            assert score.value == pytest.approx(case["caspr"], abs=1e-6)
            assert score.components["sentence_scores_a"] == case["sentence_scores_a"]
            assert score.components["sentence_scores_b"] == case["sentence_scores_b"]
        else:
            assert score.value is None
            assert score.reason == f"no claims in summary_{'b' if case['n_a'] else 'a'}"


@pytest.mark.parametrize(
    ("there", "back", "label"),
    [
        pytest.param(N, N, N, id="both neutral"),
        pytest.param(N, E, E, id="one entailment"),
        pytest.param(E, E, E, id="both entailment"),
        pytest.param(N, C, C, id="one contradiction"),
        pytest.param(C, C, C, id="both contradiction"),
        pytest.param(E, C, N, id="conflict is neutral"),
    ],
)
def test_pair_label_of_two_directions(there, back, label):
    """Appendix C's table holds, whichever direction comes first."""
    assert pair_labels([[there]], [[back]]) == [[label]]
    assert pair_labels([[back]], [[there]]) == [[label]]


@given(matrices())
@settings(max_examples=40, deadline=None)
def test_swapping_the_summaries_changes_nothing(pair):
    """CASPR(A, B) = CASPR(B, A)."""
    forward, backward = pair
    assert caspr_from_labels(forward, backward) == caspr_from_labels(backward, forward)


@given(matrices())
@settings(max_examples=40, deadline=None)
def test_value_is_within_the_range(pair):
    """CASPR lies in [0, 100]."""
    assert 0 <= caspr_from_labels(*pair) <= 100


@given(matrices())
@settings(max_examples=40, deadline=None)
def test_probabilities_give_what_their_labels_give(pair):
    """Only the largest probability of a row counts."""
    forward, backward = pair
    assert caspr_from_labels(one_hot(forward), one_hot(backward)) == caspr_from_labels(*pair)


@given(matrices(), st.randoms())
@settings(max_examples=40, deadline=None)
def test_order_of_claims_is_irrelevant(pair, rng):
    """Claims of A in another order give the same value."""
    forward, backward = pair
    order = list(range(len(forward)))
    rng.shuffle(order)
    shuffled = [forward[i] for i in order], [[row[i] for i in order] for row in backward]
    assert caspr_from_labels(*shuffled) == caspr_from_labels(forward, backward)


def test_duplicate_claims_count_each_time():
    """A repeated claim is one more sentence in the mean."""
    assert caspr_from_labels([[C, E]], [[N], [N]]) == pytest.approx(100 / 3)
    assert caspr_from_labels([[C, C, E]], [[N], [N], [N]]) == 75


@pytest.mark.parametrize(
    ("forward", "backward", "message"),
    [
        pytest.param([[E, N]], [[E]], "forward must have 1 rows of 1", id="too wide"),
        pytest.param([[E]], [[E, E]], "backward must have 1 rows of 1", id="backward too wide"),
        pytest.param([["yes"]], [[E]], "'yes' is not one of", id="unknown label"),
        pytest.param([[[0.5, 0.5]]], [[E]], "rows of 3 probabilities", id="two probabilities"),
        pytest.param([[[np.nan, 0, 1]]], [[E]], "not a number", id="nan"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(forward, backward, message):
    """Wrong shapes, labels and probabilities raise and say what is wrong."""
    with pytest.raises(ValueError, match=message):
        caspr_from_labels(forward, backward)


@given(st.lists(matrices(), min_size=1, max_size=4), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_order_of_table_rows_is_irrelevant(pairs, seed):
    """Shuffled NLI and claim rows give the scores of the plain function, record by record."""
    claims = [r for k, (f, b) in enumerate(pairs) for r in claim_rows(str(k), len(f), len(b))]
    nli = [r for k, (f, b) in enumerate(pairs) for r in nli_rows(str(k), f, b)]
    random.Random(seed).shuffle(claims)
    random.Random(seed).shuffle(nli)
    chunk = tables([{"id": str(k)} for k in range(len(pairs))], claims=claims, nli=nli)
    expected = [(str(k), caspr_from_labels(*pair)) for k, pair in enumerate(pairs)]
    assert [(s.id, s.value) for s in CASPR.score(chunk)] == [
        (record, pytest.approx(value)) for record, value in expected
    ]


def test_components_say_what_the_value_is_made_of():
    """Counts of claims and pair labels and both sides' scores stand beside the value."""
    nli = nli_rows("x", [[E, N], [N, C]], [[N, N], [N, N]])
    (score,) = CASPR.score(tables([{"id": "x"}], claims=claim_rows("x", 2, 2), nli=nli))
    assert score.value == 50
    assert score.components == {
        "n_a": 2,
        "n_b": 2,
        "sentence_scores_a": [-1, 1],
        "sentence_scores_b": [-1, 1],
        "pairs": {E: 1, N: 2, C: 1},
    }
    json.dumps(score.components)


def test_failures_of_other_stages_and_sides_do_not_matter():
    """Only what CASPR needs can make it null."""
    failures = [
        {"id": "x", "stage": "paraphrase", "side": "a", "message": "m"},
        {"id": "x", "stage": "decompose", "side": "source", "message": "m"},
        {"id": "y", "stage": "decompose", "side": "a", "message": "m"},
    ]
    nli = nli_rows("x", [[E]], [[E]])
    chunk = tables([{"id": "x"}], claims=claim_rows("x", 1, 1), nli=nli, failures=failures)
    assert CASPR.score(chunk)[0].value == 0


@pytest.mark.parametrize("dropped", [0, 3, slice(0, 4), slice(0, 8)])
def test_missing_nli_rows_are_null_not_neutral(dropped):
    """Fewer rows than pairs of claims is no score, whichever direction lacks them."""
    nli = nli_rows("x", [[E, N], [N, C]], [[N, N], [N, N]])
    del nli[dropped]
    (score,) = CASPR.score(tables([{"id": "x"}], claims=claim_rows("x", 2, 2), nli=nli))
    assert score.value is None
    assert score.reason.startswith("nli rows do not match the claims:")


def test_probabilities_that_are_no_numbers_are_null():
    """NaN from a model is never taken for a label."""
    nli = nli_rows("x", [[E]], [[E]])
    nli[0]["neutral"] = float("nan")
    (score,) = CASPR.score(tables([{"id": "x"}], claims=claim_rows("x", 1, 1), nli=nli))
    assert (score.value, score.reason) == (None, "nli probabilities are not numbers")
