"""How alike texts are, and that pairs stay within their group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.evaluation.compare.claim_matching import (
    EmbeddingSimilarity,
    TextGroups,
    TrigramSimilarity,
    normalised,
)
from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError

TEXTS = st.lists(st.text("abcé, B😀", max_size=8), max_size=6)


class Letters:
    """An encoder whose vector counts the letters a, b and c; it cannot read `?`."""

    info = ModelInfo("letters", "1", "float32")

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def embed(self, texts: Sequence[str], *, on_batch: Any = None) -> np.ndarray:
        self.calls.append(list(texts))
        rejected = tuple(place for place, text in enumerate(texts) if "?" in text)
        if rejected:
            raise RejectedItemsError("no tokens", "no_tokens", rejected)
        assert all(text.strip() for text in texts)
        if on_batch is not None:
            on_batch(len(texts))
        return np.array([[text.count(c) for c in "abc"] for text in texts], dtype=np.float32)


def group(*texts: str, groups: Sequence[int] | None = None) -> TextGroups:
    numbers = groups if groups is not None else [0] * len(texts)
    return TextGroups(texts, np.array(numbers, dtype=np.int64))


def found(similarity: Any, a: TextGroups, b: TextGroups) -> dict[tuple[int, int], float]:
    alike = similarity.alike(a, b)
    pairs = zip(alike.a.tolist(), alike.b.tolist(), strict=True)
    return dict(zip(pairs, alike.similarity.tolist(), strict=True))


def dice(a: str, b: str) -> float:
    """The definition, letter by letter."""
    one, other = (
        {f" {normalised(text)} "[place : place + 3] for place in range(len(normalised(text)))}
        for text in (a, b)
    )
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0


@given(TEXTS, TEXTS, st.integers(1, 3))
@settings(max_examples=60)
def test_trigrams_are_dices_coefficient_within_groups(a: list[str], b: list[str], n: int):
    """Every pair of a group, as the definition has it; none of two groups."""
    groups_a, groups_b = ([place % n for place in range(len(texts))] for texts in (a, b))
    alike = found(TrigramSimilarity(1e-9), group(*a, groups=groups_a), group(*b, groups=groups_b))
    expected = {
        (i, j): dice(one, other)
        for i, one in enumerate(a)
        for j, other in enumerate(b)
        if groups_a[i] == groups_b[j] and dice(one, other)
    }
    assert alike == {pair: pytest.approx(value) for pair, value in expected.items()}


def test_the_threshold_is_kept():
    """What is less alike is no pair."""
    a, b = group("The rooms are clean.", "No pool."), group("The rooms were clean.", "A garden.")
    assert list(found(TrigramSimilarity(), a, b)) == [(0, 0)]
    assert not found(TrigramSimilarity(0.99), a, b)


def test_cosines_of_an_encoder_within_groups():
    """Each text once, however often it stands; blank ones are not asked for."""
    model = Letters()
    a = group("aab", " ", "c", groups=[0, 0, 1])
    b = group("aab", "b", "cc", groups=[0, 0, 1])
    alike = found(EmbeddingSimilarity(model, 0.3), a, b)
    assert alike == {
        (0, 0): pytest.approx(1.0),
        (0, 1): pytest.approx(1 / 5**0.5),
        (2, 2): pytest.approx(1.0),
    }
    assert model.calls == [["aab", "c", "b", "cc"]]


def test_a_text_that_the_encoder_cannot_read_has_no_pair():
    """The others have."""
    alike = found(EmbeddingSimilarity(Letters(), 0.9), group("a?", "b"), group("a", "b"))
    assert alike == {(1, 1): pytest.approx(1.0)}


def test_nothing_to_compare():
    """No text on a side gives no pair, and asks no model."""
    model = Letters()
    for similarity in (TrigramSimilarity(), EmbeddingSimilarity(model)):
        assert not found(similarity, group(), group("a"))
        assert not found(similarity, group(" ", ""), group("  "))
    assert model.calls == []
