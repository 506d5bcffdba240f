"""Mover's similarities and MoverScore: against a linear program and by hand."""

import importlib.util
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from claimscore.errors import ConfigError
from claimscore.metrics import movers
from claimscore.metrics.movers import (
    Bag,
    mover_distance,
    mover_score,
    mover_similarities,
    power_means,
)

needs_ot = pytest.mark.skipif(
    importlib.util.find_spec("ot") is None, reason="the extra movers is not installed"
)
E1, E2, E3 = np.eye(3)

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 6)


def bag(rng: np.random.Generator, n: int) -> Bag:
    weights = rng.random(n) + 0.01
    return Bag(rng.normal(size=(n, 3)), weights / weights.sum())


def by_linear_program(a: Bag, b: Bag, squared: bool) -> float:
    """The same problem as Kusner et al. write it, solved by another library."""
    costs = np.linalg.norm(a.vectors[:, None] - b.vectors[None], axis=-1)
    costs = costs**2 if squared else costs
    m, n = costs.shape
    rows = np.kron(np.eye(m), np.ones(n))
    columns = np.kron(np.ones(m), np.eye(n))
    sums = np.concatenate([a.weights, b.weights])
    return linprog(costs.ravel(), A_eq=np.concatenate([rows, columns]), b_eq=sums).fun


@needs_ot
@settings(deadline=None, max_examples=25)
@given(seeds, sizes, sizes, st.booleans())
def test_distance_equals_a_linear_program(seed, m, n, squared):
    rng = np.random.default_rng(seed)
    a, b = bag(rng, m), bag(rng, n)
    assert mover_distance(a, b, squared=squared) == pytest.approx(
        by_linear_program(a, b, squared), abs=1e-7
    )


@needs_ot
def test_similarities_by_hand():
    """Words e1 e1 | e2 against e1: half of the sentence weight stays, a third of it moves √2."""
    a, b = [np.array([E1, E1]), np.array([E2])], [np.array([E1])]
    found = mover_similarities(a, b)
    third = math.exp(-math.sqrt(2) / 3)
    assert found == pytest.approx((third, third, third))
    mixed = mover_similarities([np.array([E1, E2])], b)
    half = (E1 + E2) / 2
    words = math.sqrt(2) / 2
    sentence = float(np.linalg.norm(half - E1))
    assert mixed == pytest.approx(
        (math.exp(-words), math.exp(-sentence), math.exp(-(words + sentence) / 2))
    )


@needs_ot
@settings(deadline=None, max_examples=25)
@given(seeds, st.lists(st.integers(0, 4), max_size=3), st.lists(st.integers(0, 4), max_size=3))
def test_similarities_are_symmetric_and_in_their_range(seed, lengths_a, lengths_b):
    rng = np.random.default_rng(seed)
    a, b = ([rng.normal(size=(n, 3)) for n in lengths] for lengths in (lengths_a, lengths_b))
    found = mover_similarities(a, b)
    if not (sum(lengths_a) and sum(lengths_b)):
        assert found is None
        return
    assert all(0 < value <= 1 for value in found)
    assert mover_similarities(b, a) == pytest.approx(found, abs=1e-7)
    assert mover_similarities([s for s in a if len(s)], b) == found
    assert mover_similarities(a, a) == pytest.approx((1, 1, 1), abs=1e-6)


def test_power_means():
    layers = np.array([[[1.0, 4.0]], [[3.0, 0.0]]])
    assert power_means(layers).tolist() == [[1.0, 0.0, 2.0, 2.0, 3.0, 4.0]]


@needs_ot
def test_mover_score_by_hand():
    """One token against an orthogonal one: √2 away in the paper, 2 in the code."""
    a, b = np.array([E1]), np.array([E2])
    assert mover_score(a, b, n=1, variant="paper") == pytest.approx(1 - math.sqrt(2))
    assert mover_score(a, b, n=1, variant="code") == pytest.approx(-1)
    # e1 e2 e3 has the two-grams (e1+e2)/√2 and (e2+e3)/√2; e2 alone is its own n-gram.
    two = np.array([E1, E2, E3])
    cosine = 1 / math.sqrt(2)
    assert mover_score(two, b, n=2, variant="code") == pytest.approx(1 - (2 - 2 * cosine))


@needs_ot
@settings(deadline=None, max_examples=25)
@given(seeds, sizes, sizes, st.sampled_from([1, 2, 3]), st.sampled_from(["paper", "code"]))
def test_mover_score_is_symmetric_and_knows_no_length(seed, m, n, width, variant):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(m, 4)), rng.normal(size=(n, 4))
    found = mover_score(a, b, n=width, variant=variant)
    assert -3 - 1e-9 <= found <= 1
    assert mover_score(b, a, n=width, variant=variant) == pytest.approx(found, abs=1e-7)
    assert mover_score(a, a, n=width, variant=variant) == pytest.approx(1, abs=1e-6)
    assume(width == 1)
    assert mover_score(3 * a, b, n=1, variant=variant) == pytest.approx(found, abs=1e-7)


def test_mover_score_of_nothing():
    assert mover_score(np.zeros((0, 3)), np.array([E1]), n=1, variant="code") is None
    with pytest.raises(ValueError, match="paper, code"):
        mover_score(np.array([E1]), np.array([E1]), n=1, variant="v2")


def test_without_the_library(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"claimscore\[movers\]"):
        movers.check_transport()


@needs_ot
def test_an_optimum_that_is_not_found_is_no_number(monkeypatch):
    import ot

    monkeypatch.setattr(ot, "emd2", lambda *a, **k: (0.5, {"warning": "numItermax reached"}))
    with pytest.raises(ArithmeticError, match="numItermax"):
        mover_distance(Bag(np.array([E1]), np.ones(1)), Bag(np.array([E2]), np.ones(1)))
