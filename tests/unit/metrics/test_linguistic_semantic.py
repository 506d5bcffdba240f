"""LS_Score's formulas and the metric over the tables."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.metrics import load_metric, ls_score
from tests.support.frames import Row, number, tables
from tests.support.shared_data import shared

LOG_PROBS = st.floats(-50, 0)


def golden_cases() -> list[dict]:
    return json.loads(shared("data/ls_score/golden.json").read_text())["cases"]


def vectors(cosine: float) -> tuple[list[float], list[float]]:
    """Two vectors with that cosine."""
    return [2.0, 0.0], [3 * cosine, 3 * math.sqrt(1 - cosine**2)]


def test_rows_over_the_vocabulary_are_gathered():
    rows = np.log(np.random.default_rng(0).dirichlet(np.ones(10), size=6))
    ids = [2, 7, 9, 3]
    own = [rows[i, token] for i, token in enumerate([*ids, 0, 0])]
    for variant in ("paper", "code"):
        expected = ls_score(ids, own, *vectors(0.1), variant=variant)
        assert ls_score(ids, rows, *vectors(0.1), variant=variant) == pytest.approx(expected)


def test_golden_token_log_probs():
    for case in golden_cases():
        ids, values = case["summary_input_ids"], case["token_log_probs"]
        cls = vectors(case["S_score"])
        found = ls_score(ids, values, *cls, variant="paper")
        assert found.linguistic == pytest.approx(
            case["L_score_paper_mean_over_cls_tokens_sep"], abs=2e-5
        )
        assert found.score == pytest.approx(
            case["LS_score_paper_alpha0.01_beta1_cls_sep_included"], abs=2e-5
        )
        inner = case["L_score_mean_over_tokens_without_cls_sep"]
        if inner is None:
            with pytest.raises(ValueError, match="without tokens"):
                ls_score(ids, values, *cls, variant="paper", special_tokens=False)
        else:
            found = ls_score(ids, values, *cls, variant="paper", special_tokens=False)
            assert found.linguistic == pytest.approx(inner, abs=2e-5)


def test_golden_code_from_the_raw_sum():
    """The padding's share is what is missing to the golden sum over 512 positions."""
    for case in golden_cases():
        ids, values = case["summary_input_ids"], case["token_log_probs"]
        left = 512 - len(ids)
        rest = case["code_L_raw_sum_over_512_positions_div_n"] * len(ids) - sum(values)
        padded = [*values, *([rest / left] * left if left else [])]
        found = ls_score(ids, padded, *vectors(case["S_score"]), variant="code")
        assert found.linguistic == pytest.approx(case["code_L_score"], abs=2e-5)
        assert found.score == pytest.approx(case["code_LS_score"], abs=2e-5)


@given(st.lists(LOG_PROBS, min_size=1, max_size=20), st.floats(-1, 1))
def test_ranges_and_the_variants_agree_without_padding(values, cosine):
    """L ≤ 0 and LS ≤ 1 in the paper; without padding the code's LS is LS + 2."""
    ids = list(range(1, len(values) + 1))
    paper = ls_score(ids, values, *vectors(cosine), variant="paper")
    code = ls_score(ids, values, *vectors(cosine), variant="code")
    assert paper.linguistic <= 0
    assert -1 <= paper.semantic <= 1
    assert paper.score <= 1
    assert code.score == pytest.approx(paper.score + 2)


@pytest.mark.parametrize(
    ("ids", "values", "variant", "message"),
    [
        ([], [], "paper", "without tokens"),
        ([0, 0], [-1, -1], "code", "without tokens"),
        ([2, 3], [-1], "paper", "one log-probability"),
        ([2, 3], [-1, math.nan], "paper", "no number"),
        ([2, 3], [-1, -math.inf], "code", "no number"),
        ([2, 3], [-1, -1], "best", "paper or code"),
    ],
)
def test_what_is_no_summary_is_refused(ids, values, variant, message):
    with pytest.raises(ValueError, match=message):
        ls_score(ids, values, *vectors(0.5), variant=variant)


def test_vectors_must_fit():
    with pytest.raises(ValueError, match="one length"):
        ls_score([2], [-1], [1.0], [1.0, 2.0], variant="paper")
    with pytest.raises(ValueError, match="no numbers"):
        ls_score([2], [-1], [math.nan], [1.0], variant="paper")
    assert ls_score([2], [-1], [0.0], [1.0], variant="paper").semantic == 0


# -- the metric


def rows_of(*cosines: float, name: str = "semantic") -> list[Row]:
    given = [("source", index) for index in range(len(cosines))]
    likelihood = [
        number("ls", "linguistic", -10.0),
        number("ls", "linguistic_inner", -9.0),
        number("ls_padded", "linguistic_code", -1.5),
    ]
    return [
        *(likelihood if name == "semantic" else []),
        number("ls", "tokens", 8.0),
        number("ls", "cut", 0.0),
        *(number("ls", name, cosine, place) for place, cosine in zip(given, cosines, strict=True)),
        *(number("ls", "tokens", 12.0, (None, index), side="source") for _, index in given),
        *(number("ls", "cut", 3.0, (None, index), side="source") for _, index in given),
    ]


def score(spec: str, records: list[dict], rows: list[dict], **more: list[dict]):
    return load_metric(spec).score(tables(records, text_scores=rows, **more))


RECORD = {"id": "x", "source": "A document.", "summary": "A summary."}


def test_metric_in_both_variants():
    (paper,) = score("ls-score", [RECORD], rows_of(0.5))
    assert paper.value == pytest.approx(0.4)
    assert paper.components == {
        "summary_tokens": 8,
        "summary_cut": 0,
        "source_cut": 3,
        "n_sources": 1,
        "linguistic": -10.0,
        "semantic": 0.5,
        "linguistic_without_special": -9.0,
    }
    (code,) = score("ls-score:variant=code", [RECORD], rows_of(0.5))
    assert code.value == pytest.approx(-1.0)
    assert load_metric("ls-score:variant=code").name == "ls-score:variant=code"


def test_several_sources_count_by_the_mean_cosine():
    """Row order is irrelevant."""
    rows = rows_of(0.5, 0.7)
    for order in (rows, rows[::-1]):
        (found,) = score("ls-score", [RECORD | {"source": ["a", "b"]}], order)
        assert found.value == pytest.approx(0.5)
        assert found.components["n_sources"] == 2
        assert found.components["source_cut"] == 6


def test_a_linear_head_gives_its_own_score():
    (found,) = score("ls-score:variant=bert-linear", [RECORD], rows_of(1.25, name="linear"))
    assert found.value == 1.25
