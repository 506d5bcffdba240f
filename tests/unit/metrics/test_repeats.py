"""Which claims of a side count, and how many repeat others."""

from __future__ import annotations

import pytest

from claimscore.metrics.repeats import counted


@pytest.mark.parametrize(
    ("texts", "places"),
    [
        pytest.param([], [], id="no claims"),
        pytest.param(["It rains.", " it  RAINS", "“It rains!”"], [0], id="case, spaces, marks"),
        pytest.param(["The pool is small.", "Pool is small"], [0], id="articles"),
        pytest.param(["It costs $5.", "It costs 5%.", "It costs 5."], [0, 1, 2], id="symbols"),
        pytest.param(["लड़का", "लड़की"], [0, 1], id="vowel signs"),
        pytest.param(["!!", "?", "!!"], [0, 1], id="nothing but punctuation"),
        pytest.param(["It rains.", "It rains not."], [0, 1], id="another word"),
    ],
)
def test_the_first_of_each_claim_counts_once(texts: list[str], places: list[int]) -> None:
    once, each = counted(texts, "once"), counted(texts, "each")
    assert once.places == places
    assert each.places == list(range(len(texts)))
    assert once.n_repeats == each.n_repeats == len(texts) - len(places)


def test_values_of_the_claims_that_count_are_laid_on_all() -> None:
    assert counted(["Up.", "up", "Down."], "once").by_claim([1, 2]) == [1, None, 2]
