"""Negating one claim, and joining negated claims."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.baseline.decomposition import decompose
from claimscore.baseline.negation import negate, rejoin

NEGATIONS = [
    pytest.param("The bread is fresh.", "The bread is stale.", id="antonym"),
    pytest.param("The tea was really good.", "The tea was really bad.", id="antonym-with-degree"),
    pytest.param("We had a great view.", "We had a terrible view.", id="antonym-of-object"),
    pytest.param("It is an easy course.", "It is a hard course.", id="article"),
    pytest.param("Prices are cheaper here.", "Prices are pricier here.", id="comparative"),
    pytest.param(
        "The lodge is very close to the lake.",
        "The lodge is very far away from the lake.",
        id="close",
    ),
    pytest.param("It is far from town.", "It is close to town.", id="far"),
    pytest.param("No problem.", "A problem.", id="no-fragment"),
    pytest.param(
        "There are no good restaurants nearby.",
        "There are good restaurants nearby.",
        id="there-are-no",
    ),
    pytest.param("It is no longer open.", "It is still open.", id="no-longer"),
    pytest.param("They hardly slept.", "They slept.", id="hardly"),
    pytest.param("Do not touch it.", "Touch it.", id="do-not-command"),
    pytest.param("Not a good place.", "A good place.", id="not-fragment"),
    pytest.param("Is it clean?", "Is it not clean?", id="question"),
    pytest.param(
        "If it rains, take a taxi.", "If it rains, do not take a taxi.", id="condition-and-command"
    ),
    pytest.param(
        "The tiles in the hall impress.", "The tiles in the hall do not impress.", id="late-verb"
    ),
    pytest.param("Nothing works.", "Everything works.", id="nothing"),
    pytest.param("There are birds.", "There are no birds.", id="there-are"),
    pytest.param("It is near the port.", "It is far away from the port.", id="near"),
    pytest.param("She is not yet ready.", "She is already ready.", id="not-yet"),
    pytest.param("We did not see anyone.", "We saw someone.", id="anyone"),
    pytest.param("Everyone was kind.", "No one was kind.", id="everyone"),
    pytest.param("All the doors lock.", "Not all the doors lock.", id="all"),
    pytest.param("The waiters always smile.", "The waiters never smile.", id="always"),
    pytest.param("Some lectures are dull.", "No lectures are dull.", id="some"),
    pytest.param("Most pupils passed.", "Few pupils passed.", id="most"),
    pytest.param("There is a lift.", "There is no lift.", id="there-is"),
    pytest.param("There are plenty of shops.", "There are no shops.", id="plenty-of"),
    pytest.param("We loved the film.", "We hated the film.", id="verb-antonym"),
    pytest.param("This is a hostel.", "This is not a hostel.", id="not"),
    pytest.param("The villa has a cellar.", "The villa does not have a cellar.", id="does-not"),
    pytest.param("The guests stayed.", "The guests did not stay.", id="did-not"),
    pytest.param("They serve tea.", "They do not serve tea.", id="do-not"),
    pytest.param("You can hear the road.", "You cannot hear the road.", id="cannot"),
    pytest.param("It has been painted.", "It has not been painted.", id="perfect"),
    pytest.param("We saw some birds.", "We did not see any birds.", id="some-any"),
    pytest.param("The bed is big enough.", "The bed is not big enough.", id="enough"),
    pytest.param(
        "The bathroom smells.", "The bathroom does not smell.", id="verb-that-could-be-a-noun"
    ),
    pytest.param("Bring a coat.", "Do not bring a coat.", id="command"),
    pytest.param("Free parking.", "No free parking.", id="fragment"),
    pytest.param("THE BAR IS OPEN.", "THE BAR IS CLOSED.", id="capitals"),
    pytest.param("It isn't clean.", "It is clean.", id="isn't"),
    pytest.param("It can't be moved.", "It can be moved.", id="can't"),
    pytest.param("They won't help.", "They will help.", id="won't"),
    pytest.param("The phone did not work.", "The phone worked.", id="did-not-work"),
    pytest.param("The villa doesn't have a stove.", "The villa has a stove.", id="doesn't-have"),
    pytest.param("No one smiled.", "Everyone smiled.", id="no-one"),
    pytest.param("We never waited.", "We always waited.", id="never"),
    pytest.param("There is no oven.", "There is an oven.", id="there-is-no"),
    pytest.param(
        "The soup was neither hot nor fresh.", "The soup was both hot and fresh.", id="neither"
    ),
    pytest.param(
        "The guide, who was young, helped us.",
        "The guide, who was young, did not help us.",
        id="main-clause-not-relative",
    ),
]


@pytest.mark.parametrize(("claim", "negation"), NEGATIONS)
def test_a_claim_is_negated_as_a_person_would(claim: str, negation: str) -> None:
    """By antonym, complement or "not", in this order; double negations go."""
    assert negate(claim) == negation


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=300, deadline=None)
def test_the_negation_differs_from_the_claim(claim: str) -> None:
    """Any text with a word gets another text, the same each time."""
    negation = negate(claim)
    assert negation == negate(claim)
    if any(char.isalnum() for char in claim):
        assert negation.strip() != claim.strip()


_CLAIMS = st.builds(
    "{} {} {}.".format,
    st.sampled_from(["The hotel", "It", "Our room", "The staff", "Rooms", "Everyone"]),
    st.sampled_from(["is", "was not", "has", "doesn't have", "offers", "can be", "never had"]),
    st.sampled_from(["clean", "a pool", "no view", "very good", "any light", "close to town"]),
)


@given(_CLAIMS)
def test_the_negation_of_a_built_claim_differs_and_keeps_the_full_stop(claim: str) -> None:
    """Also where the parts do not fit together."""
    negation = negate(claim)
    assert negation != claim
    assert negation.endswith(".")
    assert negation[0].isupper()


def test_claims_are_joined_into_one_sentence() -> None:
    """Names keep their capital, other words lose it; one claim stays alone."""
    claims = ["The room is not clean.", "It is far.", "Paris is near."]
    assert rejoin(claims) == "The room is not clean, and it is far, and Paris is near."
    assert rejoin(claims[:1]) == claims[0]
    assert rejoin([]) == ""
    assert rejoin(["", "It is far."]) == "It is far."


def test_a_joined_sentence_can_be_decomposed_again() -> None:
    """The negated set is decomposed like any other."""
    claims = ["The bread was stale.", "The staff were rude.", "There is no lift."]
    assert decompose(rejoin(claims)) == claims


@given(st.lists(st.sampled_from(["The bar is shut.", "I left!", "It's hot", "Rome is old."])))
def test_joining_keeps_every_word(claims: list[str]) -> None:
    """Nothing is dropped for style."""
    joined = rejoin(claims).lower()
    assert all(claim.lower().rstrip(".!") in joined for claim in claims)


def test_a_very_long_claim_is_negated_in_linear_time() -> None:
    """100 kB take less than two seconds of processor time."""
    start = time.process_time()
    negate("the room of " * 8_000 + "the hotel was clean.")
    assert time.process_time() - start < 2.0
