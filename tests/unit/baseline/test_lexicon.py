"""The word lists and what is made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.baseline.lexicon import comparative, gerund, lexicon, past, third_person
from claimscore.baseline.words import render, tokenise


def test_no_word_is_replaced_by_itself_or_by_its_opposite() -> None:
    lex = lexicon()
    for table in (
        *(lex.antonyms, lex.verb_antonyms, lex.adverb_antonyms, lex.adjective_synonyms),
        *(lex.noun_synonyms, lex.verb_synonyms, lex.adverb_synonyms, lex.phrase_synonyms),
    ):
        assert [word for word, other in table.items() if word == other] == []
    wrong = {w: s for w, s in lex.adjective_synonyms.items() if lex.antonyms.get(w) == s}
    assert wrong == {}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (third_person("try"), "tries"),
        (third_person("watch"), "watches"),
        (third_person("play"), "plays"),
        (past("try"), "tried"),
        (past("serve"), "served"),
        (past("plan", frozenset({"plan"})), "planned"),
        (gerund("lie"), "lying"),
        (gerund("serve"), "serving"),
        (gerund("see"), "seeing"),
        (comparative("big", "er"), "bigger"),
        (comparative("noisy", "est"), "noisiest"),
        (comparative("nice", "er"), "nicer"),
        (comparative("slow", "er"), "slower"),
        (comparative("expensive", "er"), None),
        (comparative("modern", "er"), None),
    ],
)
def test_regular_inflection(made: str | None, expected: str | None) -> None:
    """English spelling rules."""
    assert made == expected


@given(st.text(max_size=60))
def test_tokens_give_the_text_back(text: str) -> None:
    """Nothing but the space at the ends is lost."""
    assert render(tokenise(text)) == text.strip()
