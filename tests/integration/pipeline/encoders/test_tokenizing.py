"""Token rows: pairs joined from ids equal the tokenizer's own, cut or not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from claimscore.pipeline.encoders import tokenizing
from claimscore.pipeline.encoders.batching import longest_first
from claimscore.pipeline.encoders.distinct import distinct_pairs
from claimscore.pipeline.encoders.token_rows import (
    LongestFirst,
    PairRows,
    PairTemplate,
    WholeRows,
    cut_longest_first,
    ragged,
    take,
)
from claimscore.pipeline.encoders.tokenizing import (
    KnownTexts,
    PairTokenizer,
    TextTokenizer,
    alone,
    find_template,
    text_ids,
    tokenize_pair,
)
from tests.support.tiny_models import FAMILIES, TEXTS, save_tiny_encoder

Folders = Callable[..., Path]
LONG = "the hotel was not clean and the staff was rude! " * 9
PAIRS = [*itertools.product(TEXTS[:4], TEXTS[2:]), ("a", "a very " * 6)]
CUT = [(LONG, "a"), ("a", LONG), (LONG, LONG), (LONG, LONG + "a"), (LONG[9:], LONG[:200])]
ROWS = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Gives the folder of a tiny model; each is made once."""
    made: dict[str, Path] = {}

    def folder(family: str = "bert") -> Path:
        if family not in made:
            made[family] = save_tiny_encoder(tmp_path_factory.mktemp("tok") / family, family)
        return made[family]

    return folder


@given(ROWS, st.data())
@settings(deadline=None, max_examples=50)
def test_any_batch_can_be_taken_from_whole_rows(rows: list[list[int]], data: st.DataObject) -> None:
    """Rows come out as they went in, in the order asked for, repeated ones too."""
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    types = [[value % 2 for value in row] for row in rows]
    batch = WholeRows(ragged(rows), ragged(types)).batch(np.array(places))
    assert [part.tolist() for part in batch.split()] == [rows[i] for i in places]
    assert batch.types.tolist() == [kind for i in places for kind in types[i]]


@given(ROWS, ROWS, st.integers(0, 12))
@settings(deadline=None, max_examples=50)
def test_pairs_are_joined_from_cut_texts(
    first: list[list[int]], second: list[list[int]], most: int
) -> None:
    """Each row is special tokens around the first ids of two texts."""
    template = PairTemplate((101,), (102, 103), (104,), (0, 0, 0, 1, 1))
    texts = ragged([*first, *second])
    pairs = list(itertools.product(range(len(first)), range(len(second))))
    places = np.array([(i, len(first) + j) for i, j in pairs])
    kept = cut_longest_first(texts.lengths[places], most)
    batch = PairRows(template, texts, places, kept).batch(np.arange(len(pairs)))
    for (i, j), (n, m), row in zip(pairs, kept.tolist(), batch.split(), strict=True):
        assert row.tolist() == [101, *first[i][:n], 102, 103, *second[j][:m], 104]
        assert n + m == min(most, len(first[i]) + len(second[j]))


@given(ROWS, st.integers(1, 12), st.data())
@settings(deadline=None, max_examples=100)
def test_rows_put_together_many_at_a_time_are_the_same(
    rows: list[list[int]], block_tokens: int, data: st.DataObject
) -> None:
    """Longest first or in any other order, again or not: what the rows themselves give."""
    whole = WholeRows(ragged(rows), ragged([[1, *row][: len(row)] for row in rows]))
    found = LongestFirst(whole, block_tokens)
    order = longest_first(whole.lengths)
    ends = st.integers(0, len(rows))
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            places = order[slice(*sorted((data.draw(ends), data.draw(ends))))]
        else:
            places = np.array(data.draw(st.permutations(range(len(rows)))))
        for mine, theirs in zip(found.batch(places), whole.batch(places), strict=True):
            assert mine.tolist() == theirs.tolist()
    assert found.lengths.tolist() == whole.lengths.tolist()


def test_ranges_are_taken_one_after_another() -> None:
    """Empty ranges take nothing."""
    assert take(np.array([5, 0, 2]), np.array([2, 0, 3])).tolist() == [5, 6, 2, 3, 4]


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_are_tokenised_once_where_that_is_equal(tiny: Folders, family: str) -> None:
    """Joined rows equal the tokenizer's own pairs, cut ones included."""
    tokenizer = AutoTokenizer.from_pretrained(tiny(family))
    tokens = PairTokenizer(tokenizer, 64)
    assert tokens.template is not None
    assert tokens.cuts_by_ids
    pairs = [*PAIRS, *CUT, ("", "a"), ("a", "")]
    encoded = tokens.encode(distinct_pairs(pairs))
    assert isinstance(encoded.rows, LongestFirst)
    batch = encoded.rows.batch(np.arange(len(pairs)))
    types = batch._replace(ids=batch.types).split()
    for i, (pair, ids, kinds) in enumerate(zip(pairs, batch.split(), types, strict=True)):
        row = tokenize_pair(tokenizer, pair, truncation="longest_first", max_length=64)
        assert (ids.tolist(), kinds.tolist()) == (row.ids, row.types)
        assert encoded.lengths[i] == len(row.ids)
    assert np.flatnonzero(encoded.truncated).tolist() == list(
        range(len(PAIRS), len(PAIRS) + len(CUT))
    )


def test_earlier_truncation_of_the_tokenizer_is_not_inherited(tiny: Folders) -> None:
    """A tokenizer remembers the options of its last call."""
    tokenizer = AutoTokenizer.from_pretrained(tiny())
    tokenizer(["clean " * 30], truncation=True, max_length=8, padding="max_length")
    assert text_ids(tokenizer, ["clean " * 30, "a"]).lengths.tolist() == [30, 1]


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
def test_pairs_are_tokenised_whole_where_joining_is_not_equal(tiny: Folders, special: bool) -> None:
    """The probes notice; rows are then the tokenizer's own."""
    tokenizer = Contextual(AutoTokenizer.from_pretrained(tiny()), special=special)
    assert find_template(tokenizer) is None
    encoded = PairTokenizer(tokenizer, 64).encode(distinct_pairs([("a", "b"), (LONG, "b")]))
    row = tokenize_pair(tokenizer, ("a", "b"))
    batch = encoded.rows.batch(np.array([0]))
    assert (batch.ids.tolist(), batch.types.tolist()) == (row.ids, row.types)
    assert encoded.lengths.tolist()[1] == 64
    assert encoded.truncated.tolist() == [False, True]


def test_another_way_of_cutting_is_the_tokenizers_own(tiny: Folders) -> None:
    """One that cuts on the left is noticed, and asked itself."""
    tokenizer = AutoTokenizer.from_pretrained(tiny())
    tokenizer.truncation_side = "left"
    tokens = PairTokenizer(tokenizer, 64)
    assert tokens.template is not None
    assert not tokens.cuts_by_ids
    pairs = [(LONG, "a very expensive"), ("a", "b")]
    encoded = tokens.encode(distinct_pairs(pairs))
    for i, (pair, ids) in enumerate(
        zip(pairs, encoded.rows.batch(np.arange(2)).split(), strict=True)
    ):
        own = tokenize_pair(tokenizer, pair, truncation="longest_first", max_length=64)
        assert (ids.tolist(), len(own.ids)) == (own.ids, encoded.lengths[i])


def test_single_texts_are_the_tokenizers_own(tiny: Folders) -> None:
    """Special tokens included and marked; long ones cut and counted."""
    tokenizer = AutoTokenizer.from_pretrained(tiny())
    texts = [*TEXTS, LONG, "\u200b"]
    encoded = TextTokenizer(tokenizer, 64).encode(texts)
    for i, (text, ids) in enumerate(
        zip(texts, encoded.rows.batch(np.arange(len(texts))).split(), strict=True)
    ):
        own = tokenizer(text, truncation=True, max_length=64, return_special_tokens_mask=True)
        assert ids.tolist() == own["input_ids"]
        assert encoded.own(i).tolist() == [1 - mark for mark in own["special_tokens_mask"]]
    assert encoded.truncated.tolist() == [False] * len(TEXTS) + [True, False]
    assert not encoded.own(len(texts) - 1).any()


# Texts are tokenised once, and one thread at a time is in a tokenizer

WORDS = ["the", "hotel", "was", "not", "clean", "and", "staff", "rude", "very", "expensive"]


@pytest.fixture(scope="module")
def tokenizer(tiny: Folders) -> Any:
    return AutoTokenizer.from_pretrained(tiny("bert"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were really tokenised."""
    texts: list[str] = []

    def counted(tokenizer: Any, given: Sequence[str]) -> Any:
        texts.extend(given)
        return text_ids(tokenizer, given)

    monkeypatch.setattr(tokenizing, "text_ids", counted)
    return texts


def sentences(n: int, seed: int = 0) -> list[str]:
    """Distinct texts of 1 to 90 words."""
    rng = np.random.default_rng(seed)
    return [f"{' '.join(rng.choice(WORDS, rng.integers(1, 90)))} {i}" for i in range(n)]


def test_known_texts_are_not_tokenised_again(tokenizer: Any, asked: list[str]) -> None:
    """New and known ones come back in the order asked for, as the tokenizer has them."""
    known, texts = KnownTexts(tokenizer), ["", *sentences(9)]
    known.ids(texts[:6])
    found = known.ids(texts[::-1])
    assert asked == [*texts[:6], *texts[:5:-1]]
    expected = text_ids(tokenizer, texts[::-1])
    assert found.flat.tolist() == expected.flat.tolist()
    assert found.lengths.tolist() == expected.lengths.tolist()
    assert len(known.ids([]).flat) == 0


def test_what_was_not_used_for_longest_is_forgotten(tokenizer: Any, asked: list[str]) -> None:
    """The bound holds, and a call larger than it is answered all the same."""
    texts = [f"clean {i}" for i in range(40)]
    known = KnownTexts(tokenizer, most_bytes=10 * 300)
    known.ids(texts[:9])
    known.ids(texts[:1])
    known.ids(texts[9:13])
    known.ids(texts[:1])
    assert asked == texts[:13], "the first was used again, so it was kept"
    known.ids(texts[1:2])
    assert asked == [*texts[:13], texts[1]]
    assert known.ids(texts).flat.tolist() == text_ids(tokenizer, texts).flat.tolist()
    assert 0 < known._n_bytes <= 10 * 300
    assert known._n_bytes == sum(256 + len(t) + len(row) for t, row in known._known.items())


def test_asking_what_is_cut_tokenises_nothing_again(tokenizer: Any, asked: list[str]) -> None:
    """The store asks it of every pair that it keeps."""
    pairs = distinct_pairs([("clean " * 30, "a"), ("a", "b")])
    tokens = PairTokenizer(tokenizer, 16)
    asked.clear()
    tokens.encode(pairs)
    assert tokens.truncates(pairs).tolist() == [True, False]
    assert asked.count("a") == 1
    single = TextTokenizer(tokenizer, 16)
    single.encode(pairs.texts)
    single._tokenizer = None
    assert single.truncates(pairs.texts).tolist() == [True, False, False]


def test_a_failure_leaves_nothing_half_known(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer that raises is asked again."""
    known = KnownTexts(tokenizer)

    def fails(tokenizer: Any, texts: Sequence[str]) -> Any:
        raise ValueError("no")

    with monkeypatch.context() as patch:
        patch.setattr(tokenizing, "text_ids", fails)
        with pytest.raises(ValueError, match="no"):
            known.ids(["a", "b"])
    assert known.ids(["b"]).flat.tolist() == text_ids(tokenizer, ["b"]).flat.tolist()


def test_each_tokenizer_has_one_lock(tokenizer: Any) -> None:
    """Whoever asks; another has another."""
    other = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    assert alone(tokenizer) is alone(tokenizer)
    assert alone(tokenizer) is not alone(other)


def test_threads_share_a_tokenizer(tokenizer: Any) -> None:
    """Pairs, single texts and cuts at once: each gets what it gets alone.

    Without the lock, ids come back cut to another thread's limit or the tokenizer refuses.
    """
    texts = sentences(60)
    pairs = distinct_pairs(list(zip(texts, reversed(texts), strict=True)))
    alone_ids = text_ids(tokenizer, texts)

    def whole() -> Any:
        return text_ids(tokenizer, texts).flat.tobytes()

    def cut() -> Any:
        return TextTokenizer(tokenizer, 24).encode(texts).ids.flat.tobytes()

    def joined() -> Any:
        return PairTokenizer(tokenizer, 48).encode(pairs).rows.batch(np.arange(60)).ids.tobytes()

    jobs = [whole, cut, joined] * 12
    expected = [job() for job in jobs[:3]]
    assert expected[0] == alone_ids.flat.tobytes()
    with ThreadPoolExecutor(6) as pool:
        found = [future.result() for future in [pool.submit(job) for job in jobs]]
    assert found == expected * 12
