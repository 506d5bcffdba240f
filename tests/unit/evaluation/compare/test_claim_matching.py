"""Claims that are the same, were reworded, appeared or vanished; how alike texts are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.evaluation.compare.claim_matching import (
    UNIT_SCHEMA,
    EmbeddingSimilarity,
    TrigramSimilarity,
    match_units,
    normalised,
)
from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError

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


def matched(a: Sequence[str], b: Sequence[str], similarity: Any = None) -> list[tuple[Any, ...]]:
    units = (frame({("r", "a"): texts}) for texts in (a, b))
    rows = match_units(*units, similarity or TrigramSimilarity())
    return rows.select("kind", "a", "b").rows()


POOL, VERY = "The pool is warm.", "The pool is very warm."


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (["x"], ["x"], [("same", "x", "x")]),
        ([POOL], ["the pool is warm"], [("normalised", POOL, "the pool is warm")]),
        ([POOL], [VERY], [("changed", POOL, VERY)]),
        ([POOL], ["Costs ten."], [("vanished", POOL, None), ("appeared", None, "Costs ten.")]),
        (["x", "x"], ["x"], [("same", "x", "x"), ("vanished", "x", None)]),
        # the most alike first
        ([VERY, POOL], ["pool, warm"], [("changed", POOL, "pool, warm"), ("vanished", VERY, None)]),
        (["!"], ["?"], [("vanished", "!", None), ("appeared", None, "?")]),
    ],
)
def test_claims_of_one_side(a: list[str], b: list[str], expected: list[tuple[str, ...]]):
    assert sorted(matched(a, b), key=str) == sorted(expected, key=str)


@given(UNITS, UNITS)
@settings(max_examples=25)
def test_every_claim_is_matched_once_within_its_side(a: Units, b: Units):
    rows = match_units(frame(a), frame(b), TrigramSimilarity())
    for name, units in (("a", a), ("b", b)):
        places = rows.drop_nulls(f"{name}_position").select("id", "side", f"{name}_position", name)
        assert sorted(places.rows()) == sorted(frame(units).rows())


@given(UNITS, UNITS)
@settings(max_examples=25)
def test_exchanging_the_sides_gives_the_same_pairs(a: Units, b: Units):
    names = ("id", "side", "kind", "a_position", "b_position")
    swapped = ("id", "side", "kind", "b_position", "a_position")
    turned = {"vanished": "appeared", "appeared": "vanished"}
    one = match_units(frame(a), frame(b), TrigramSimilarity()).select(names).rows()
    other = match_units(frame(b), frame(a), TrigramSimilarity()).select(swapped).rows()
    other = [(*row[:2], turned.get(row[2], row[2]), *row[3:]) for row in other]
    assert set(one) == set(other)


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
        return np.array([[text.count(c) for c in "abc"] for text in texts], dtype=np.float32)


def similarities(similarity: Any, a: Sequence[str], b: Sequence[str]) -> dict[Any, float]:
    """Of every pair."""
    pairs = [(i, j) for i in range(len(a)) for j in range(len(b))]
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return dict(zip(pairs, similarity.of_pairs(a, b, rows, columns).tolist(), strict=True))


TEXTS = st.lists(st.text("abcé, B😀", max_size=8), max_size=6)


@given(TEXTS, TEXTS)
def test_trigrams_are_dices_coefficient(a: list[str], b: list[str]):
    def dice(a: str, b: str) -> float:
        one, other = (
            {f" {normalised(text)} "[place : place + 3] for place in range(len(normalised(text)))}
            for text in (a, b)
        )
        return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0

    found = similarities(TrigramSimilarity(), a, b)
    assert found == {(i, j): dice(x, y) for i, x in enumerate(a) for j, y in enumerate(b)}


def test_the_threshold_is_kept():
    assert [kind for kind, *_ in matched([POOL], [VERY])] == ["changed"]
    assert [kind for kind, *_ in matched([POOL], [VERY], TrigramSimilarity(0.99))] == [
        *("vanished", "appeared")
    ]


def test_cosines_of_an_encoder():
    """Each text is asked for once, blank ones are not; one that it cannot read is like none."""
    model = Letters()
    found = similarities(EmbeddingSimilarity(model), ["aab", " ", "a?"], ["aab", "b"])
    assert found == pytest.approx(
        {(0, 0): 1.0, (0, 1): 1 / 5**0.5, (1, 0): 0, (1, 1): 0, (2, 0): 0, (2, 1): 0}
    )
    assert model.calls == [["aab", "a?", "b"], ["aab", "b"]]
    assert matched([], ["a"], EmbeddingSimilarity(model)) == [("appeared", None, "a")]
    assert len(model.calls) == 2
