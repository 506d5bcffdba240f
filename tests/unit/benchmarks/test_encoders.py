"""The rows of the benchmark of encoders, and from seconds to the words of its table."""

from __future__ import annotations

import numpy as np
import pytest
from figures import Difference, Played, TableLine, difference, lines
from rows import OWN, ROWS, Row
from workers import CLIENTS, HERE

W1 = next(row for row in ROWS if row.name == "w1")
CE = "CrossEncoder default"


def played(**changes: object) -> Played:
    """Three rounds of claimscore beside CrossEncoder; the second round was disturbed."""
    figures = {
        "seconds": {OWN: [1.0, 4.0, 1.0], CE: [3.0, 12.4, 2.9]},
        "ways": {"torch fp32": [50.0, 20.0, 50.0], "oneDNN fp32": [100.0, 25.0, 100.0]},
        "differences": {OWN: Difference(1e-5, 1.0), CE: Difference(2e-5, 1.0)},
    }
    return Played(W1, 1, n=100, gflop=90.0, **{**figures, **changes})  # type: ignore[arg-type]


def line_of(found: Played, beside: str | None) -> TableLine:
    """The line of one comparison."""
    names = [comparison.beside for comparison in found.row.comparisons]
    return lines(found)[names.index(beside)]


def test_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    """Ratios of 3.0, 3.1 and 2.9: what slowed a round slowed both."""
    assert line_of(played(), CE).ratio == "3.00 (2.90 to 3.10)"
    assert line_of(played(), CE).met is True


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(Difference(3e-5, 1.0), id="too far"),
        pytest.param(Difference(1e-5, 0.99), id="another label"),
    ],
)
def test_fast_and_wrong_is_not_met(found: Difference) -> None:
    assert line_of(played(differences={OWN: found}), CE).met is False


def test_a_peer_that_failed_has_its_reason_and_no_ratio() -> None:
    found = played(failed={CE: "not installed"}, seconds={OWN: [1.0, 1.0, 1.0]})
    line = line_of(found, CE)
    assert (line.beside, line.ratio, line.met) == (f"{CE}: not installed", "", None)
    assert line_of(found, "OpenVINO f32").beside == "OpenVINO f32: not asked for"


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.zeros((2, 3)), id="fewer rows"),
        pytest.param(np.full((3, 3), np.nan), id="not a number"),
    ],
)
def test_what_cannot_be_compared_is_infinitely_far(values: np.ndarray) -> None:
    assert difference("bertscore", values, np.zeros((3, 3))).most == float("inf")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_compare_those_that_take_part(row: Row) -> None:
    names = [variant.name for variant in row.variants]
    assert names[0] == OWN
    assert len(set(names)) == len(names)
    assert {comparison.beside for comparison in row.comparisons} <= {*names, None}
    assert {variant.client for variant in (*row.variants, row.reference)} <= set(CLIENTS)
    for variant in row.variants:
        assert (HERE / "clients" / CLIENTS[variant.client][0]).is_file()
