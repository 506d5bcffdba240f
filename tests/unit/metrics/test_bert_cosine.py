"""The cosine of the summary with its references or its source, over records."""

from __future__ import annotations

import pytest

from claimscore.metrics import load_metric
from tests.support.frames import tables

RECORD = {"id": "r", "summary": "A.", "references": ["B.", " ", "C."], "source": "D."}


def cell(index: int, value: float, **other: object) -> dict[str, object]:
    return {
        "id": "r",
        "unit": "text",
        "row_side": "summary",
        "row_index": 0,
        "column_side": "references",
        "column_index": index,
        "similarity": value,
    } | other


CELLS = [
    cell(2, 0.25),
    cell(0, 0.75),
    cell(0, -0.5, column_side="source"),
    cell(0, 0.9, unit="sentence"),
    cell(0, 0.9, row_side="source"),
]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param("bert-cosine", 0.75, id="the most alike reference"),
        pytest.param("bert-cosine:multi=mean", 0.5, id="mean over the references"),
        pytest.param("bert-cosine:against=source", -0.5, id="the document"),
    ],
)
def test_one_value_of_several_texts(spec, expected):
    """A blank reference takes no part; other cells are other metrics'."""
    metric = load_metric(spec)
    (score,) = metric.score(tables([RECORD], similarities=CELLS))
    assert (metric.name, score.value) == (spec, pytest.approx(expected))


def test_components():
    """Every text's cosine by its place, and which was the best."""
    (score,) = load_metric("bert-cosine").score(tables([RECORD], similarities=CELLS))
    assert score.components == {"best": 0, "values": {0: 0.75, 2: 0.25}}


@pytest.mark.parametrize(
    ("record", "cells", "reason"),
    [
        pytest.param({}, CELLS[1:], "no similarity for some texts", id="a cell is missing"),
        pytest.param(
            {"references": ["B."]},
            [cell(0, float("nan"))],
            "a similarity is not a number",
            id="nan",
        ),
    ],
)
def test_null_has_a_reason(record, cells, reason):
    """Never a number in place of what is not there."""
    (score,) = load_metric("bert-cosine").score(tables([RECORD | record], similarities=cells))
    assert (score.value, score.reason) == (None, reason)


def test_a_failed_pass_is_the_reason():
    """As the table of failures tells it."""
    failure = {"id": "r", "stage": "text_similarities", "side": "references", "message": "long"}
    given = tables([RECORD], failures=[failure], similarities=CELLS)
    (score,) = load_metric("bert-cosine").score(given)
    assert score.reason == "text_similarities failed for references: long"
    (score,) = load_metric("bert-cosine:against=source").score(given)
    assert score.value == -0.5
