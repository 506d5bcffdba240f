"""The word lists and what is made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.baseline.grammar import is_adjective, is_noun, main_verb
from claimscore.baseline.lexicon import comparative, gerund, lexicon, past, third_person
from claimscore.baseline.words import render, tokenise


def test_no_word_is_its_own_antonym_or_synonym() -> None:
    """A replacement must change something."""
    lex = lexicon()
    for table in (
        *(lex.antonyms, lex.verb_antonyms, lex.adverb_antonyms, lex.adjective_synonyms),
        *(lex.noun_synonyms, lex.verb_synonyms, lex.adverb_synonyms, lex.phrase_synonyms),
    ):
        assert [word for word, other in table.items() if word == other] == []


def test_no_synonym_is_the_antonym() -> None:
    """A paraphrase must not say the opposite."""
    lex = lexicon()
    wrong = {w: s for w, s in lex.adjective_synonyms.items() if lex.antonyms.get(w) == s}
    assert wrong == {}


def test_the_lists_have_hundreds_of_entries() -> None:
    """A guard against a file that is read half."""
    lex = lexicon()
    assert len(lex.antonyms) > 500
    assert len(lex.adjective_synonyms) + len(lex.noun_synonyms) > 200
    assert len({form.base for forms in lex.verb_forms.values() for form in forms}) > 300


def test_lists_are_lower_case_words() -> None:
    """Rules look up lower-case tokens."""
    lex = lexicon()
    words = [*lex.adjectives, *lex.nouns, *lex.verb_forms, *lex.antonyms]
    assert [word for word in words if word != word.lower() or not word] == []


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


def test_irregular_forms_come_from_the_list() -> None:
    """And unknown verbs are inflected by rule."""
    assert lexicon().verb("have", "third") == "has"
    assert lexicon().verb("give", "participle") == "given"
    assert lexicon().verb("blog", "third") == "blogs"


@given(st.text(max_size=60))
def test_tokens_give_the_text_back(text: str) -> None:
    """Nothing but the space at the ends is lost."""
    assert render(tokenise(text)) == text.strip()


@pytest.mark.parametrize(
    ("sentence", "verb"),
    [
        ("The staff that we met were kind.", "were"),
        ("Although it's old, the rooms look clean.", "look"),
        ("The hotel offered a pool.", "offered"),
        ("The food offered was great.", "was"),
        ("Hotel near the beach.", None),
        ("Rooms feel dated.", "feel"),
        ("Great views of the sea.", None),
        ("I can't complain.", "ca"),
    ],
)
def test_the_main_verb_is_found(sentence: str, verb: str | None) -> None:
    """Not the verb of a relative clause, nor a participle."""
    tokens = tokenise(sentence)
    at = main_verb(tokens)
    assert (None if at is None else tokens[at].low) == verb


def test_unknown_words_are_read_by_their_ending() -> None:
    """-ful and -ous describe; what nothing is known of can be a noun."""
    assert is_adjective("tasteful")
    assert is_adjective("kid-friendly")
    assert not is_adjective("zorbl")
    assert is_noun("zorbl")
    assert not is_noun("")
