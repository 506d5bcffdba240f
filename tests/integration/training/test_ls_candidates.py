"""Damaged summaries: what is changed, and what stays."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from claimscore.training.ls_score import (
    add_sentence,
    delete_pieces,
    disorder_sentences,
    disorder_words,
)

SEEDS = st.integers(0, 10_000)
PIECES = st.lists(st.sampled_from(["the", "hotel", "##s", "clean", "##ing", "."]), max_size=40)
SENTENCES = st.lists(
    st.text(alphabet="abc .,!", min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=6
)


@given(PIECES, SEEDS)
def test_deletion_leaves_the_others_in_order(pieces, seed):
    """int(0.2·n) pieces are gone, and at most as many that stood before a `##` piece."""
    left = delete_pieces(pieces, random.Random(seed))
    drawn = int(0.2 * len(pieces))
    assert len(pieces) - 2 * drawn <= len(left) <= len(pieces) - drawn
    remaining = iter(pieces)
    assert all(piece in remaining for piece in left)


def test_the_piece_before_a_continuation_goes_too():
    pieces = ["hotel", "##s", "a", "b", "c"]
    results = {tuple(delete_pieces(pieces, random.Random(seed))) for seed in range(50)}
    assert ("a", "b", "c") in results
    assert ("hotel", "a", "b", "c") not in results


@given(SENTENCES, SEEDS)
def test_disorder_keeps_the_words_of_each_sentence(sentences, seed):
    changed = disorder_words(sentences, random.Random(seed))
    assert len(changed) == len(sentences)
    for before, after in zip(sentences, changed, strict=True):
        same = disorder_words([before], random.Random(0), share=0.0)[0]
        assert Counter(after) == Counter(same)
        moved = sum(a != b for a, b in zip(same, after, strict=True))
        assert moved <= 2 * 2 * int(0.2 * len(same))


def test_short_sentences_stay():
    """Fewer than five words: int(0.2·n) is 0, and nothing hangs; nor for marks alone."""
    assert disorder_words(["Too short.", "!!!!!!!!!!"], random.Random(0)) == [
        ["Too", "short", "."],
        ["!"] * 10,
    ]


@given(SENTENCES, SEEDS)
def test_sentences_change_places(sentences, seed):
    changed = disorder_sentences(sentences, random.Random(seed))
    assert Counter(changed) == Counter(sentences)
    assert (changed != sentences) is (len(set(sentences)) > 1)


@given(SENTENCES, SENTENCES, SEEDS)
def test_one_sentence_of_the_document_is_added(sentences, document, seed):
    changed = add_sentence(sentences, document, random.Random(seed))
    if len(document) <= len(sentences):
        assert changed == sentences
        return
    assert len(changed) == len(sentences) + 1
    fits = [i for i in range(len(changed)) if changed[:i] + changed[i + 1 :] == sentences]
    assert any(changed[i] in document for i in fits)


def test_what_the_summary_says_already_is_not_added():
    document = ["The hotel was clean.", "Breakfast was cold.", "We will not come back."]
    added = {
        sentence
        for seed in range(30)
        for sentence in add_sentence(["The hotel was very clean."], document, random.Random(seed))
    }
    assert added == {"The hotel was very clean.", *document[1:]}
