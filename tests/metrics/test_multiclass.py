"""Confusion, macro-F1 and the interval of a share, against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.metrics.multiclass import confusion_matrix, macro_f1, wilson_interval


def test_a_row_is_a_true_class() -> None:
    """Columns are what it was called."""
    found = confusion_matrix([0, 0, 1, 2, 2, 2], [0, 1, 1, 0, 2, 2], 3)
    assert found.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 2]]


def test_macro_f1_by_hand() -> None:
    """F1 of 2/4, 2/3 and 4/5."""
    confusion = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 2]])
    assert macro_f1(confusion) == pytest.approx((2 / 4 + 2 / 3 + 4 / 5) / 3)


def test_a_class_without_rows_has_no_f1() -> None:
    """What was called by its name is missed by the right class: F1 of 4/6 and 2/3."""
    confusion = np.array([[2, 1, 1], [0, 1, 0], [0, 0, 0]])
    assert macro_f1(confusion) == pytest.approx((4 / 6 + 2 / 3) / 2)
    assert macro_f1(np.zeros((3, 3), dtype=np.int64)) is None


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        pytest.param(0, 10, 0.0, 0.2775, id="none"),
        pytest.param(10, 10, 0.7225, 1.0, id="all"),
        pytest.param(81, 263, 0.2553, 0.3662, id="Newcombe 1998, Table I"),
        pytest.param(15, 148, 0.0624, 0.1605, id="Newcombe 1998, Table I, second"),
    ],
)
def test_wilson_interval(successes: int, trials: int, low: float, high: float) -> None:
    """Method 3 of Newcombe 1998, Statistics in Medicine 17."""
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=6e-5)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_share(case: tuple[int, int]) -> None:
    """Within 0 and 1, and the mirror image of the failures' interval."""
    successes, trials = case
    low, high = wilson_interval(successes, trials)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1
    assert low < high
    assert wilson_interval(trials - successes, trials) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 2)])
def test_no_share_no_interval(successes: int, trials: int) -> None:
    """Counts that are none are refused."""
    with pytest.raises(ValueError, match="successes of"):
        wilson_interval(successes, trials)


@pytest.mark.parametrize(
    ("labels", "predicted"), [([0, 3], [0, 0]), ([0], [-1]), ([0, 1], [0])], ids=str
)
def test_classes_are_checked(labels: list[int], predicted: list[int]) -> None:
    """Numbers that name no class, and lists of two lengths."""
    with pytest.raises(ValueError, match=r"classes must|one length"):
        confusion_matrix(labels, predicted, 3)
