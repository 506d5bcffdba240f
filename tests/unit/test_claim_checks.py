"""Checks of claims: each by answers that provoke it, and what they do not depend on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.claim_checks import CHECKS, Examples, Finding, mark, summarized, word_checks
from claimscore.prompts import load_prompt

SENTENCE = "Spain beat Italy in Rome, and the coach smiled."
COPIED = "The garage is not free."
REPAIRED = "He repaired it."
UNCOVERED = (None, "uncovered_words", 1)
EXAMPLES = Examples([("1. Bread is warm. 2. The garage is not free at night.", ["Bread is warm."])])


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        (["Spain beat Italy in Rome.", "The coach smiled."], []),
        (["Spain beat Italy in Rome.", "the coach smiled", "Coach smiled!"], [(2, "repeat", 1)]),
        (["Spain beat Italy.", "Italy beat Spain.", "The coach smiled in Rome."], []),
        ([SENTENCE, "Bread is warm."], [(1, "example_copy", 1), (1, "little_overlap", 0)]),
        ([SENTENCE, "The garage is not free"], [(1, "example_copy", 1), (1, "little_overlap", 0)]),
        ([SENTENCE, "Spain won a match"], [(1, "little_overlap", 1 / 3)]),
        ([SENTENCE, "He smiled."], [(1, "dangling_pronoun", None)]),
        ([SENTENCE, "He did."], [(1, "dangling_pronoun", None)]),
        (["Spain beat Italy."], [(None, "uncovered_words", 0.5)]),
        ([], [(None, "no_claims", 6)]),
    ],
)
def test_each_check_finds_what_is_wrong(claims, found):
    assert list(word_checks(SENTENCE, claims, EXAMPLES)) == [Finding(*row) for row in found]


@pytest.mark.parametrize(
    ("claims", "n_ambiguous", "found"),
    [
        (["Mr Rossi repaired the tower."], 0, []),
        (["Ann repaired cold roofs in Rossi."], 0, [(0, "little_overlap", 2 / 5)]),
        (["He fixed it."], 1, [(0, "little_overlap", 0), (0, "ambiguous", None), UNCOVERED]),
        ([REPAIRED], 1, [(0, "ambiguous", None)]),
        ([REPAIRED], 0, [(0, "dangling_pronoun", None)]),
        (["Rossi repaired it.", "Bread is warm."], 0, [(1, "little_overlap", 0)]),
    ],
)
def test_words_of_the_context_are_no_foreign_ones(claims, n_ambiguous, found):
    """But a claim without a word of its sentence is a claim of the context. Ambiguous claims cover
    words of the sentence, and may begin with a pronoun."""
    context = "Rossi was mayor. Bread is warm. The tower fell."
    rows = word_checks(REPAIRED, claims, EXAMPLES, n_ambiguous=n_ambiguous, context=context)
    assert list(rows) == [Finding(*row) for row in found]


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        (COPIED, COPIED),
        ("At night the garage is not free.", COPIED),
        ("车库不免费。", "车库不免费。"),
    ],
)
def test_what_the_sentence_says_is_no_copy(text, claim):
    examples = Examples([("x", [COPIED, "车库收费。"])])
    assert list(word_checks(text, [claim], examples)) == []


@pytest.mark.parametrize(
    ("version", "claim"),
    [("v1", "The battery does not last a full day."), ("v2", "The fresh bread was still warm.")],
)
def test_examples_of_released_prompts_are_recognised(version, claim):
    examples = load_prompt("decompose", version, None).example_answers()
    known = Examples(
        (text, (c for a in answers for c in a["claims"])) for text, answers in examples
    )
    found = [row.check for row in word_checks("Rome is old.", ["Rome is old.", claim], known)]
    assert "example_copy" in found


_CLAIMS = st.lists(st.text(alphabet="ab é.,it1 ", max_size=8), max_size=6)


@given(_CLAIMS, st.text(alphabet="ab é.,it1 ", max_size=20), st.randoms())
def test_findings_depend_on_the_claim_and_not_on_its_place(claims, text, random):
    def found(order):
        rows = list(word_checks(text, order, EXAMPLES))
        assert all(row.value is None or row.value >= 0 for row in rows)
        return sorted(
            (row.check, "" if row.claim_index is None else order[row.claim_index], row.value or 0)
            for row in rows
            if row.check != "repeat"
        ), sum(row.check == "repeat" for row in rows)

    shuffled = random.sample(claims, len(claims))
    assert found(shuffled) == found(claims)


def test_warnings_say_how_many_and_what_to_do():
    counts = summarized({"repeat": 51, "example_copy": 2, "no_claims": 3}, 141, 34)
    assert counts["found"] == {"repeat": 51, "example_copy": 2, "no_claims": 3}
    (warning,) = counts["warnings"]
    assert warning.startswith("51 of 141 claims repeat another claim of their sentence: ")
    assert "try another model or prompt" in warning
    assert "51 repeated" in counts["text"]
    assert summarized({}, 0, 0)["text"] == "0 from 0 sentences: nothing to check"
    assert summarized({}, 2, 1)["text"] == "2 from 1 sentence: nothing looks wrong"


@pytest.mark.parametrize("check", CHECKS)
def test_findings_stand_in_words(check):
    assert "{" not in mark(check, None if check == "dangling_pronoun" else 0.25)
