"""Distinct pairs: the same as a set would find, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.encoders.pairs import distinct_pairs

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
