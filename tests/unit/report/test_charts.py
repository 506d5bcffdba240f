"""The drawn charts: axes, boxes, and what they leave to the tables."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.report.evaluation.charts import (
    MAX_ROWS,
    Axis,
    Box,
    Mark,
    box_chart,
    find_axis,
    five_numbers,
    interval_chart,
)

numbers = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


@given(st.lists(numbers, min_size=1, max_size=8))
def test_an_axis_holds_every_value(values: list[float]) -> None:
    """In few round steps, whatever the values."""
    axis = find_axis([Mark("", value) for value in values])
    slack = 1e-6 * (axis.high - axis.low)
    assert axis.low - slack <= min(values)
    assert max(values) <= axis.high + slack
    assert 2 <= len(axis.ticks) <= 9
    steps = [b - a for a, b in zip(axis.ticks, axis.ticks[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * len(steps))


@pytest.mark.parametrize(
    ("marks", "line", "within", "expected"),
    [
        pytest.param([], 0.0, (-1, 1), (-0.6, 0.6), id="nothing but the line"),
        pytest.param([Mark("", None)], None, None, (0.0, 1.0), id="nothing at all"),
        pytest.param([Mark("", 1.0, (0.9, 1.0))], 0.0, (-1, 1), (0.0, 1.0), id="up to the end"),
        pytest.param([Mark("", 62.0)], 50.0, (0, 100), (50.0, 62.0), id="from chance"),
        pytest.param([Mark("", 3.0, wider=(-2, 8))], None, None, (-2.0, 8.0), id="wider"),
    ],
)
def test_ends_of_an_axis(
    marks: list[Mark],
    line: float | None,
    within: tuple[float, float] | None,
    expected: tuple[float, float],
) -> None:
    """The line is on it; it goes no further than values can."""
    axis = find_axis(marks, line, within)
    assert (axis.low, axis.high) == pytest.approx(expected)


@given(st.lists(numbers, min_size=1, max_size=30))
def test_boxes_are_tukeys(values: list[float]) -> None:
    """As matplotlib draws them."""
    stats = pytest.importorskip("matplotlib.cbook").boxplot_stats(values)[0]
    found = five_numbers(values)
    assert found[:5] == pytest.approx(
        [stats["whislo"], stats["q1"], stats["med"], stats["q3"], stats["whishi"]]
    )
    assert sorted(found.outside) == pytest.approx(sorted(stats["fliers"].tolist()))


def test_five_numbers_by_hand() -> None:
    """1, 2, 3, 4, 100: quartiles 2, 3, 4; 100 is further than 1.5 times 2 away."""
    assert five_numbers([100, 4, 2, 3, 1]) == (1, 2, 3, 4, 4, (100,))


def test_a_value_that_is_not_there_has_no_dot() -> None:
    """Its row says none."""
    drawn = interval_chart(
        "t", [Mark("a", None), Mark("b", -0.5, (-1, 0))], Axis(-1, 1, (-1, 1)), ".2f"
    )
    assert drawn.count("<circle") == 1
    assert ">none<" in drawn
    assert ">−0.50<" in drawn


def test_a_chart_of_too_many_rows_says_so() -> None:
    """The table has all."""
    marks = [Mark(f"score {n}", 0.5) for n in range(MAX_ROWS + 5)]
    drawn = interval_chart("t", marks, find_axis(marks), ".2f")
    assert drawn.count("<circle") == MAX_ROWS
    assert f"The first {MAX_ROWS} of {MAX_ROWS + 5}" in drawn


def test_places_follow_the_values() -> None:
    """Both ends of the axis are the ends of the picture; up is more."""
    drawn = interval_chart("t", [Mark("a", 0.0), Mark("b", 1.0)], Axis(0, 1, (0, 1)), ".2f")
    assert re.findall(r'cx="([\d.]+)"', drawn) == ["8.0", "352.0"]
    boxes = box_chart("t", [Box(("a", ""), [0.0, 1.0], 0.5, 0.1), Box(("b", ""), [], None)])
    bars = re.findall(
        r'class="interval-bar" x1="[\d.]+" x2="[\d.]+" y1="([\d.]+)" y2="([\d.]+)"', boxes
    )
    assert len(bars) == 1
    low, high = map(float, bars[0])
    assert low > high
    assert math.isclose((low + high) / 2, 110.0)
    assert boxes.count('class="box"') == 1
