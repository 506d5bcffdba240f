"""The figures of evaluations as data: axes, boxes, and what they leave to the tables."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from claimscore.report.evaluation.evaluation_page import (
    MAX_ROWS,
    Box,
    Mark,
    box_chart,
    interval_charts,
    tukey_box,
)

numbers = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


@given(st.lists(numbers, min_size=1, max_size=8), numbers)
def test_an_axis_holds_every_value_and_the_line(values: list[float], line: float) -> None:
    one, other = interval_charts(
        {"a": [Mark("", value) for value in values], "b": [Mark("", None)]}, line, 2
    )
    low, high = one.data["domain"]
    assert low < high
    assert low <= min(*values, line)
    assert max(*values, line) <= high
    assert other.data["domain"] == (low, high)


def test_a_box_by_hand() -> None:
    """1, 2, 3, 4, 100: quartiles 2, 3, 4; 100 is further than 1.5 times 2 away."""
    assert list(tukey_box([100, 4, 2, 3, 1]).values()) == [1, 2, 3, 4, 4, [100]]
    assert list(tukey_box([]).values()) == [None] * 5 + [[]]


def test_charts_say_in_words_what_they_show() -> None:
    (chart,) = interval_charts({"t": [Mark("a", None), Mark("b", -0.5, (-1, 0))]}, 0.0, 2)
    assert chart.description == "a none; b -0.50 (-1.00 to 0.00)"
    drawn = box_chart("t", [Box("a", [0.0, 1.0], 0.5, 0.1, 0.25), Box("b", [])])
    assert drawn.description == "a: mean 0.50, published 0.2; b: no value"
    assert drawn.data["groups"][1]["median"] is None


def test_a_chart_of_too_many_rows_says_so() -> None:
    (chart,) = interval_charts({"t": [Mark(f"s {n}", 0.5) for n in range(MAX_ROWS + 5)]}, 0, 2)
    assert len(chart.data["marks"]) == MAX_ROWS
    assert f"The first {MAX_ROWS} of {MAX_ROWS + 5}" in chart.hint
