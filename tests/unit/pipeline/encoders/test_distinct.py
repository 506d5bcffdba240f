"""Distinct items and pairs: the same as a set would find, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.encoders.distinct import distinct, distinct_pairs

TEXTS = st.text("ab", max_size=2)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=30))
def test_pairs_and_texts_stand_once_in_their_order(pairs: list[tuple[str, str]]) -> None:
    found = distinct_pairs(pairs)
    assert found.pairs.items == list(dict.fromkeys(pairs))
    assert found.texts == list(dict.fromkeys(text for pair in pairs for text in pair))
    named = [(found.texts[i], found.texts[j]) for i, j in found.places.tolist()]
    assert named == found.pairs.items
    assert [found.pairs.items[i] for i in found.pairs.inverse] == pairs


@given(st.lists(st.sampled_from("abcde"), max_size=30))
def test_distinct_keeps_each_item_once_and_gives_the_input_back(items: list[str]) -> None:
    unique = distinct(items)
    assert unique.items == list(dict.fromkeys(items))
    assert [unique.items[i] for i in unique.inverse] == items
    assert unique.counts.tolist() == [items.count(item) for item in unique.items]
    for place, item in enumerate(unique.items):
        assert [items[i] for i in unique.positions(place)] == [item] * items.count(item)
    assert unique.positions(*range(len(unique.items))) == tuple(range(len(items)))
