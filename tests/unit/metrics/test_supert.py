"""SUPERT's alignment by hand."""

import numpy as np
import pytest

from claimscore.metrics.supert import supert


def test_alignment_by_hand() -> None:
    """Lengths do not count: cosines of (1, 0), (1, 1) with (2, 0), (0, 3), (-1, 0)."""
    found = supert(np.array([[1, 0], [1, 1]]), np.array([[2.0, 0], [0, 3], [-1, 0]]))
    half = 2**-0.5
    assert found is not None
    assert found.recall == pytest.approx((1 + half - half) / 3)
    assert found.precision == pytest.approx((1 + half) / 2)
    both = found.recall + found.precision
    assert found.f1 == pytest.approx(2 * found.recall * found.precision / both)


def test_a_text_without_words_has_no_alignment() -> None:
    assert supert(np.zeros((0, 2)), np.ones((1, 2))) is None
    assert supert(np.ones((1, 2)), np.zeros((0, 2))) is None


def test_the_same_text_is_one() -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 8))
    assert supert(vectors, 3 * vectors) == pytest.approx((1, 1, 1))
