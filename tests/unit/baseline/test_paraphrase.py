"""Paraphrases: other words, the same meaning."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.baseline.paraphrase import paraphrase
from claimscore.baseline.words import NEGATIONS, tokenise


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        pytest.param("The inn is located in Rome.", "The inn is situated in Rome.", id="phrase"),
        pytest.param("It is situated in Rome.", "It is located in Rome.", id="phrase-back"),
        pytest.param("The staff was polite.", "The personnel was courteous.", id="noun-adjective"),
        pytest.param("They offer tea.", "They provide tea.", id="verb"),
        pytest.param("Cafe Ola offers tea.", "Cafe Ola provides tea.", id="inflected-verb"),
        pytest.param("The biggest room.", "The largest room.", id="superlative"),
        pytest.param("An excellent pie.", "A superb pie.", id="article"),
        pytest.param("THE KEY WAS TINY.", "THE KEY WAS MINUSCULE.", id="capitals"),
        pytest.param("Overall, it was ok.", "It was ok overall.", id="frame"),
        pytest.param("It's ok.", "It is ok.", id="contraction"),
        pytest.param("It was ok.", "It was ok.", id="nothing-to-do"),
        pytest.param("The Great Bear is open.", "The Great Bear is open.", id="name"),
        pytest.param('He said "great" twice.', 'He said "great" twice.', id="quotation"),
        pytest.param("It is pretty late.", "It is pretty late.", id="pretty-as-a-degree"),
        pytest.param("", "", id="empty"),
    ],
)
def test_words_are_replaced_where_the_meaning_allows(sentence: str, expected: str) -> None:
    """Case, inflection and articles follow."""
    assert paraphrase(sentence) == expected


_VOCABULARY = (
    "the an hotel staff is are not n't never no 12 3.5% $40 great nice quick close to "
    "located in it 's offers a lot of because overall , . biggest problem rooms very isn't"
)
_WORDS = st.sampled_from(_VOCABULARY.split())


@given(st.one_of(st.lists(_WORDS, max_size=25).map(" ".join), st.text(max_size=80)))
@settings(max_examples=200, deadline=None)
def test_negations_and_numbers_stay(sentence: str) -> None:
    """The same negations and the same numbers, in the same order."""
    changed = paraphrase(sentence)
    assert _kept(changed) == _kept(sentence)
    assert changed == paraphrase(sentence)


def _kept(text: str) -> list[str]:
    negations = [token.low for token in tokenise(text) if token.low in NEGATIONS]
    return [*negations, *re.findall(r"\d+", text)]
