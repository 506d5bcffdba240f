"""Distinct items and pairs: the same as a set would find, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.encoders.distinct import distinct, distinct_pairs

TEXTS = st.text("ab", max_size=2)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=30))
def test_pairs_and_texts_stand_once_in_their_order(pairs: list[tuple[str, str]]) -> None:
    """Pairs are those of a dictionary; places name their texts; the inverse is the input again."""
    found = distinct_pairs(pairs)
    assert found.pairs.items == list(dict.fromkeys(pairs))
    assert found.texts == list(dict.fromkeys(text for pair in pairs for text in pair))
    named = [(found.texts[i], found.texts[j]) for i, j in found.places.tolist()]
    assert named == found.pairs.items
    assert [found.pairs.items[i] for i in found.pairs.inverse] == pairs


@given(st.lists(st.sampled_from("abcde"), max_size=30))
def test_distinct_keeps_each_item_once_and_gives_the_input_back(items: list[str]) -> None:
    """Nothing is computed twice and nothing is lost."""
    unique = distinct(items)
    assert unique.items == list(dict.fromkeys(items))
    assert [unique.items[i] for i in unique.inverse] == items
    assert unique.counts.tolist() == [items.count(item) for item in unique.items]


def test_positions_are_the_places_in_the_input() -> None:
    """A distinct item knows all the inputs that it stands for."""
    assert distinct(["x", "y", "x"]).positions(0) == (0, 2)
    assert distinct(["x", "y", "x"]).positions(1, 0) == (0, 1, 2)
