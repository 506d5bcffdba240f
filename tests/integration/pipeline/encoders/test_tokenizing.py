"""Token rows: pairs joined from ids equal the tokenizer's own, cut or not."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.distinct import distinct_pairs
from claimscore.pipeline.encoders.tokenizing import (
    EncodedRows,
    PairTokenizer,
    TextTokenizer,
    WholeRows,
    find_template,
    ragged,
    text_ids,
    tokenize_pair,
)
from tests.support.tiny_models import LONG, Folders

ROWS = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=8)


@pytest.fixture
def tokenizer(tiny: Folders) -> Any:
    return AutoTokenizer.from_pretrained(tiny("bert"))


def pairs_of(tokenizer: Any, limit: int) -> PairTokenizer:
    return PairTokenizer(tokenizer, limit, find_template(tokenizer, "tiny"))


def ids_and_types(encoded: EncodedRows) -> list[tuple[list[int], list[int]]]:
    batch = encoded.rows.batch(np.arange(len(encoded.lengths)))
    types = batch._replace(ids=batch.types).split()
    return [(ids.tolist(), kinds.tolist()) for ids, kinds in zip(batch.split(), types, strict=True)]


def stock_rows(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> list[tuple[Any, Any]]:
    """The tokenizer's own rows of pairs, one at a time, cut to 64."""
    options: dict[str, Any] = {"truncation": "longest_first", "max_length": 64}
    return [tuple(tokenize_pair(tokenizer, pair, **options)) for pair in pairs]


@given(ROWS, st.data())
def test_rows_put_together_many_at_a_time_are_the_same(
    rows: list[list[int]], data: st.DataObject
) -> None:
    """In any order, also repeated: what the rows themselves give."""
    types = [[1, *row][: len(row)] for row in rows]
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    batch = WholeRows(ragged(rows), ragged(types)).batch(np.array(places))
    assert [part.tolist() for part in batch.split()] == [rows[i] for i in places]
    assert batch.types.tolist() == [kind for i in places for kind in types[i]]


class Contextual:
    """A tokenizer whose second text depends on the first: texts cannot be tokenised alone."""

    def __init__(self, tokenizer: Any, *, special: bool) -> None:
        self.tokenizer = tokenizer
        self.special = special

    def __call__(self, first: Any, second: Any = None, **options: Any) -> Any:
        if second is None:
            return self.tokenizer(first, **options)
        if isinstance(second, list):
            return self.tokenizer(first, [f"x {text}" for text in second], **options)
        return self.tokenizer(first, f"x {second}", add_special_tokens=self.special, **options)


@pytest.mark.parametrize("special", [True, False])
def test_a_tokenizer_of_pairs_that_are_not_joined_texts_is_refused(
    tokenizer: Any, special: bool
) -> None:
    with pytest.raises(ConfigError, match="odd: its tokenizer reads two texts together otherwise"):
        find_template(Contextual(tokenizer, special=special), "odd")


@pytest.mark.parametrize("side", ["left", "right"])
def test_long_pairs_are_cut_where_the_tokenizer_cuts_them(tokenizer: Any, side: str) -> None:
    tokenizer.truncation_side = side
    pairs = [(LONG, "a very expensive"), ("a", "b"), ("a", LONG), (LONG, f"{LONG} b")]
    encoded = pairs_of(tokenizer, 64).encode(distinct_pairs(pairs))
    assert ids_and_types(encoded) == stock_rows(tokenizer, pairs)
    assert encoded.truncated.tolist() == [True, False, True, True]


def test_threads_share_a_tokenizer(tokenizer: Any) -> None:
    """Pairs, single texts and cuts at once: each gets what it gets alone.

    Without the lock, ids come back cut to another thread's limit or the tokenizer refuses.
    """
    texts = [f"{LONG[: 9 * n]} {n}" for n in range(60)]
    pairs = distinct_pairs(list(zip(texts, reversed(texts), strict=True)))

    def whole() -> Any:
        return text_ids(tokenizer, texts).flat.tobytes()

    def cut() -> Any:
        return TextTokenizer(tokenizer, 24).encode(texts).ids.flat.tobytes()

    def joined() -> Any:
        return pairs_of(tokenizer, 48).encode(pairs).rows.batch(np.arange(60)).ids.tobytes()

    jobs = [whole, cut, joined] * 12
    expected = [job() for job in jobs[:3]]
    with ThreadPoolExecutor(6) as pool:
        found = [future.result() for future in [pool.submit(job) for job in jobs]]
    assert found == expected * 12
