"""Claims that are the same, were reworded, appeared or vanished, on tables made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.evaluation.compare.claim_matching import (
    MATCH_SCHEMA,
    UNIT_SCHEMA,
    TrigramSimilarity,
    match_units,
)

Units = Mapping[tuple[str, str], Sequence[str]]

UNITS = st.dictionaries(
    st.tuples(st.sampled_from("xy"), st.sampled_from("ab")),
    st.lists(
        st.sampled_from(["a b", "A, b!", "a b c", "abcd", "abce", "q", "...", ""]), max_size=5
    ),
    max_size=4,
)


def frame(units: Units) -> pl.DataFrame:
    rows = [
        (record, side, place, text)
        for (record, side), texts in units.items()
        for place, text in enumerate(texts)
    ]
    return pl.DataFrame(rows, schema=UNIT_SCHEMA, orient="row")


def matched(a: Units, b: Units) -> list[tuple[str | None, ...]]:
    rows = match_units(frame(a), frame(b), TrigramSimilarity())
    assert rows.schema == pl.Schema(MATCH_SCHEMA)
    return rows.select("kind", "a", "b").rows()


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param(["x"], ["x"], [("same", "x", "x")], id="same"),
        pytest.param(
            ["The pool is warm."],
            ["the pool is warm"],
            [("normalised", "The pool is warm.", "the pool is warm")],
            id="case and punctuation",
        ),
        pytest.param(
            ["The pool is warm."],
            ["The pool is very warm."],
            [("changed", "The pool is warm.", "The pool is very warm.")],
            id="reworded",
        ),
        pytest.param(
            ["The pool is warm."],
            ["Parking costs ten dollars."],
            [
                ("vanished", "The pool is warm.", None),
                ("appeared", None, "Parking costs ten dollars."),
            ],
            id="vanished and appeared",
        ),
        pytest.param(["x", "x"], ["x"], [("same", "x", "x"), ("vanished", "x", None)], id="twice"),
        pytest.param(
            ["one two three four", "one two three"],
            ["one two three fours"],
            [
                ("changed", "one two three four", "one two three fours"),
                ("vanished", "one two three", None),
            ],
            id="the most alike first",
        ),
        pytest.param(
            ["!"], ["?"], [("vanished", "!", None), ("appeared", None, "?")], id="no word"
        ),
    ],
)
def test_claims_of_one_side(a: list[str], b: list[str], expected: list[tuple[str, ...]]):
    """The kind of every claim, in the order of the first run."""
    assert matched({("r", "a"): a}, {("r", "a"): b}) == expected


def test_claims_are_matched_within_their_side_and_record():
    """The same words elsewhere are no match."""
    a = {("r", "a"): ["x y z"], ("s", "a"): ["p q r"]}
    b = {("r", "b"): ["x y z"], ("s", "b"): ["x y z"]}
    assert {kind for kind, *_ in matched(a, b)} == {"vanished", "appeared"}


@given(UNITS, UNITS)
@settings(max_examples=25)
def test_every_claim_is_matched_once(a: Units, b: Units):
    """All positions of both sides, each in one row."""
    rows = match_units(frame(a), frame(b), TrigramSimilarity())
    for name, units in (("a", a), ("b", b)):
        places = rows.drop_nulls(f"{name}_position").select("id", "side", f"{name}_position", name)
        assert sorted(places.rows()) == sorted(frame(units).rows())


@given(UNITS, UNITS)
@settings(max_examples=25)
def test_exchanging_the_sides_gives_the_same_pairs(a: Units, b: Units):
    """Vanished becomes appeared, and nothing else changes."""
    names = ("id", "side", "kind", "a_position", "b_position")
    swapped = ("id", "side", "kind", "b_position", "a_position")
    turned = {"vanished": "appeared", "appeared": "vanished"}
    one = match_units(frame(a), frame(b), TrigramSimilarity()).select(names).rows()
    other = match_units(frame(b), frame(a), TrigramSimilarity()).select(swapped).rows()
    other = [(*row[:2], turned.get(row[2], row[2]), *row[3:]) for row in other]
    assert set(one) == set(other)
