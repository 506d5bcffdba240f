"""Claims that are the same, were reworded, are gone or new."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.evaluation.claim_changes import changes

POOL, VERY = "The pool is warm.", "The pool is very warm."
TEXTS = st.lists(
    st.sampled_from(["a b", "A, b!", "a b c", "abcd", "abce", "q", "...", ""]), max_size=6
)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (["x"], ["x"], [("same", "x", "x")]),
        ([POOL], ["the pool is warm"], [("reworded", POOL, "the pool is warm")]),
        ([POOL], [VERY], [("reworded", POOL, VERY)]),
        ([POOL], ["Costs ten."], [("gone", POOL, None), ("new", None, "Costs ten.")]),
        (["x", "x"], ["x"], [("same", "x", "x"), ("gone", "x", None)]),
        # the most alike first
        ([VERY, POOL], ["pool, warm"], [("gone", VERY, None), ("reworded", POOL, "pool, warm")]),
        (["!"], ["?"], [("gone", "!", None), ("new", None, "?")]),
        (["abcd"], ["abce"], [("reworded", "abcd", "abce")]),
        (["abc"], ["abd"], [("gone", "abc", None), ("new", None, "abd")]),
    ],
)
def test_claims_of_one_side(a: list[str], b: list[str], expected: list[tuple[str, ...]]):
    """Dice's coefficient of trigrams: of " abcd ", " abce " 2·2/8, of " abc ", " abd " 2·1/6."""
    assert changes(a, b) == expected


@given(TEXTS, TEXTS)
def test_every_claim_is_matched_once(a: list[str], b: list[str]):
    rows = changes(a, b)
    assert [row.a for row in rows if row.a is not None] == a
    assert sorted(row.b for row in rows if row.b is not None) == sorted(b)
    assert all((row.kind == "same") == (row.a == row.b) for row in rows if row.a and row.b)


@given(TEXTS, TEXTS)
def test_exchanging_the_sides_gives_the_same_pairs(a: list[str], b: list[str]):
    turned = {"gone": "new", "new": "gone"}
    other = [(turned.get(kind, kind), one, two) for kind, two, one in changes(b, a)]
    assert sorted(changes(a, b), key=str) == sorted(other, key=str)
