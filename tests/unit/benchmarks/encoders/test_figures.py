"""From seconds to the words of the table."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from figures import Difference, Played, TableLine, as_json, difference, lines, table
from rows import OWN, ROWS

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


def test_a_rate_has_the_machines_peak_beside_it() -> None:
    """90 GFLOP in 1 s are 90 % of the best way's 100; each round has a peak of its own."""
    line = line_of(played(), CE)
    assert line.own == "100.0/s, 90% of 100 GFLOP/s, off by 1e-05, same label 100.0%"
    assert line.beside.startswith("CrossEncoder default: 33.3/s, 30% of 100 GFLOP/s")


def test_share_of_the_peak_is_taken_within_rounds() -> None:
    """Rounds of 90 %, 22.5 / 25 = 90 % and 90 %."""
    line = line_of(played(), None)
    assert line.ratio == "90%"
    assert line.met is True
    assert line.at_least == "85%"
    assert line.beside == "peak, GFLOP/s: torch fp32 50, oneDNN fp32 100"


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(Difference(3e-5, 1.0), id="too far"),
        pytest.param(Difference(1e-5, 0.99), id="another label"),
    ],
)
def test_fast_and_wrong_is_not_met(found: Difference) -> None:
    """A ratio counts only with numbers that agree with the stock model's."""
    assert line_of(played(differences={OWN: found}), CE).met is False


def test_slow_is_not_met() -> None:
    """Below what is asked."""
    assert line_of(played(seconds={OWN: [1.0] * 3, CE: [2.7] * 3}), CE).met is False


def test_a_peer_that_failed_has_its_reason_and_no_ratio() -> None:
    """Never a number in place of a missing result."""
    found = played(failed={CE: "not installed"}, seconds={OWN: [1.0, 1.0, 1.0]})
    line = line_of(found, CE)
    assert (line.beside, line.ratio, line.met) == (f"{CE}: not installed", "", None)
    assert line_of(found, "OpenVINO f32").beside == "OpenVINO f32: not asked for"


def test_without_claimscore_nothing_is_met() -> None:
    """It failed, or was not asked for."""
    found = played(seconds={CE: [1.0, 1.0, 1.0]}, failed={OWN: "no model"})
    assert {line.met for line in lines(found)} == {None}
    assert line_of(found, CE).own == "no model"


def test_a_tuned_option_is_named() -> None:
    """The table says which batch size was best."""
    found = played(tuned={CE: "batch size 8"})
    assert line_of(found, CE).beside.startswith("CrossEncoder default, batch size 8: ")


def test_difference_of_probabilities_and_labels() -> None:
    """Where the reference itself is undecided, another label is no disagreement."""
    reference = np.array([[0.2, 0.5, 0.3], [0.4, 0.400001, 0.199999], [0.1, 0.1, 0.8]])
    values = np.array([[0.2, 0.5, 0.3], [0.400001, 0.4, 0.199999], [0.6, 0.2, 0.2]])
    found = difference("nli", values, reference)
    assert found.most == pytest.approx(0.6)
    assert found.same_label == pytest.approx(2 / 3)


def test_difference_of_vectors_is_one_minus_cosine() -> None:
    """Length does not count, direction does."""
    reference = np.array([[1.0, 0.0], [0.0, 2.0]])
    assert difference("embed", 3 * reference, reference).most == pytest.approx(0.0)
    turned = np.array([[1.0, 0.0], [1.0, 1.0]])
    assert difference("embed", turned, reference).most == pytest.approx(1 - 0.5**0.5)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.zeros((2, 3)), id="fewer rows"),
        pytest.param(np.full((3, 3), np.nan), id="not a number"),
    ],
)
def test_what_cannot_be_compared_is_infinitely_far(values: np.ndarray) -> None:
    """NaN or missing rows never pass as agreement."""
    assert difference("bertscore", values, np.zeros((3, 3))).most == float("inf")


def test_table_has_a_cell_for_each_heading() -> None:
    """Markdown with the same number of cells in every line."""
    found = [*lines(played()), TableLine("x", "1", "", "", False, "y")]
    rows = table(found).splitlines()
    assert len({row.count("|") for row in rows}) == 1
    assert "**not met**" in rows[-1]


def test_everything_measured_is_json() -> None:
    """`--out` has the rounds, not only their medians."""
    content = json.loads(json.dumps(as_json(dataclasses.replace(played()))))
    assert content["row"] == "w1"
    assert content["seconds"][OWN] == [1.0, 4.0, 1.0]
    assert content["differences"][OWN]["same_label"] == 1.0
