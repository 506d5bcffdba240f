"""FactSim: the golden numbers, the paper's tables, and the metric over records."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.metrics import load_metric
from claimscore.metrics.fact_similarity import FACTSIM, factsim
from tests.support.frames import fact_cells, fact_rows, tables
from tests.support.shared_data import shared

vectors = st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=1, max_size=5)

#: By hand: rows are source facts, columns summary facts (golden case `hand_3x2`).
HAND = [[0.6, 0.96], [1.0, 0.8], [0.0, 0.6]]


def golden() -> dict:
    return json.loads(shared("data/factsim/golden.json").read_text(encoding="utf-8"))


def test_golden_cases_come_out_of_the_function_and_of_the_metric():
    content = golden()
    cases = content["cases"]
    sizes = {c["name"]: (len(c["review_embeddings"]), len(c["summary_embeddings"])) for c in cases}
    chunk = tables(
        [{"id": case["name"]} for case in cases],
        facts=[row for name, size in sizes.items() for row in fact_rows(name, *size)],
        similarities=[row for c in cases for row in fact_cells(c["name"], c["similarity"] or [])],
    )
    for case, score in zip(cases, FACTSIM.metric().score(chunk), strict=True):
        assert score.id == case["name"]
        expected = [case[key] for key in ("coverage_fV", "consistency_fN", "factsim")]
        result = factsim(case["review_embeddings"], case["summary_embeddings"])
        assert result == pytest.approx(tuple(expected), abs=content["tolerance"]), score.id
        if not all(sizes[score.id]):
            assert score.value is None
            continue
        found = [score.components["coverage"], score.components["consistency"], score.value]
        assert found == pytest.approx(expected, abs=content["tolerance"]), score.id


@pytest.mark.parametrize(
    ("source", "summary", "message"),
    [
        ([1.0, 2.0], [[1.0, 2.0]], "source vectors must be a matrix"),
        ([[1.0]], [[1.0, 2.0]], "have 1 numbers, summary vectors 2"),
        ([[1.0]], [[float("nan")]], "not finite"),
        ([[1.0]], [[float("inf")]], "not finite"),
    ],
)
def test_what_is_no_matrix_of_vectors_is_refused(source, summary, message):
    with pytest.raises(ValueError, match=message):
        factsim(source, summary)


@settings(deadline=None, max_examples=60)
@given(vectors, vectors)
def test_ranges_and_exchange_of_the_sides(source, summary):
    found, back = factsim(source, summary), factsim(summary, source)
    assert all(0 <= value <= 1 for value in found)
    if all(any(abs(x) > 1e-3 for x in vector) for vector in source):  # no zeros
        assert factsim(source, source) == pytest.approx((1, 1, 1), abs=1e-9)
    assert (back.consistency, back.coverage) == pytest.approx(found[:2], abs=1e-9)
    assert back.score == pytest.approx(found.score, abs=1e-9)
    assert min(found[:2]) - 1e-9 <= found.score <= max(found[:2]) + 1e-9


# The metric over tables


def test_components_name_what_is_missing_and_what_is_unsupported():
    """Each fact with its best match; below the stated similarity it is missing or unsupported."""
    rows = {"facts": fact_rows("r", 3, 2), "similarities": fact_cells("r", HAND)}
    (score,) = FACTSIM.metric().score(tables([{"id": "r"}], **rows))
    assert score.value == pytest.approx(0.91229091, abs=1e-6)
    assert score.components["coverage"] == pytest.approx(0.85333333, abs=1e-6)
    assert score.components["consistency"] == pytest.approx(0.98, abs=1e-6)
    assert (score.components["n_source"], score.components["n_summary"]) == (3, 2)
    assert score.components["missing"] == ["s 2"]
    assert score.components["unsupported"] == []
    assert score.components["matches_source"] == [
        {"fact": "s 0", "match": "z 1", "similarity": 0.96},
        {"fact": "s 1", "match": "z 0", "similarity": 1.0},
        {"fact": "s 2", "match": "z 1", "similarity": 0.6},
    ]
    assert [m["match"] for m in score.components["matches_summary"]] == ["s 1", "s 0"]


@pytest.mark.parametrize(
    ("name", "coverage", "n_listed"),
    [("factsim", (0.9 + 0.9 + 0.2) / 3, 3), ("factsim:repeats=once", (0.9 + 0.2) / 2, 2)],
)
def test_a_fact_of_two_reviews_counts_each_time_or_once(name, coverage, n_listed):
    facts = fact_rows("r", 3, 1)
    facts[1] |= {"subject": "S", "description": "0!"}
    rows = {"facts": facts, "similarities": fact_cells("r", [[0.9], [0.9], [0.2]])}
    (score,) = load_metric(name).score(tables([{"id": "r"}], **rows))
    parts = {"n_source": 3, "n_repeats_source": 1, "n_repeats_summary": 0, "missing": ["s 2"]}
    assert parts.items() <= score.components.items()
    assert score.components["repeats"] == (name.partition("=")[2] or "each")
    assert score.components["coverage"] == pytest.approx(coverage)
    assert len(score.components["matches_source"]) == n_listed
