"""Negating one claim, and joining negated claims."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.baseline.decomposition import decompose
from claimscore.baseline.negation import negate, rejoin

#: A claim, and its negation.
NEGATIONS = """
The bread is fresh. -> The bread is stale.
The tea was really good. -> The tea was really bad.
We had a great view. -> We had a terrible view.
It is an easy course. -> It is a hard course.
Prices are cheaper here. -> Prices are pricier here.
The lodge is very close to the lake. -> The lodge is very far away from the lake.
It is far from town. -> It is close to town.
No problem. -> A problem.
There are no good restaurants nearby. -> There are good restaurants nearby.
It is no longer open. -> It is still open.
They hardly slept. -> They slept.
Do not touch it. -> Touch it.
Not a good place. -> A good place.
Is it clean? -> Is it not clean?
If it rains, take a taxi. -> If it rains, do not take a taxi.
The tiles in the hall impress. -> The tiles in the hall do not impress.
Nothing works. -> Everything works.
There are birds. -> There are no birds.
It is near the port. -> It is far away from the port.
She is not yet ready. -> She is already ready.
We did not see anyone. -> We saw someone.
Everyone was kind. -> No one was kind.
All the doors lock. -> Not all the doors lock.
The waiters always smile. -> The waiters never smile.
Some lectures are dull. -> No lectures are dull.
Most pupils passed. -> Few pupils passed.
There is a lift. -> There is no lift.
There are plenty of shops. -> There are no shops.
We loved the film. -> We hated the film.
This is a hostel. -> This is not a hostel.
The villa has a cellar. -> The villa does not have a cellar.
The guests stayed. -> The guests did not stay.
They serve tea. -> They do not serve tea.
You can hear the road. -> You cannot hear the road.
It has been painted. -> It has not been painted.
We saw some birds. -> We did not see any birds.
The bed is big enough. -> The bed is not big enough.
The bathroom smells. -> The bathroom does not smell.
Bring a coat. -> Do not bring a coat.
Free parking. -> No free parking.
THE BAR IS OPEN. -> THE BAR IS CLOSED.
It isn't clean. -> It is clean.
It can't be moved. -> It can be moved.
They won't help. -> They will help.
The phone did not work. -> The phone worked.
The villa doesn't have a stove. -> The villa has a stove.
No one smiled. -> Everyone smiled.
We never waited. -> We always waited.
There is no oven. -> There is an oven.
The soup was neither hot nor fresh. -> The soup was both hot and fresh.
The guide, who was young, helped us. -> The guide, who was young, did not help us.
"""


@pytest.mark.parametrize("case", NEGATIONS.strip().splitlines())
def test_a_claim_is_negated_as_a_person_would(case: str) -> None:
    """By antonym, complement or "not", in this order; double negations go."""
    claim, _, negation = case.partition(" -> ")
    assert negate(claim) == negation


_CLAIMS = st.builds(
    "{} {} {}.".format,
    st.sampled_from(["The hotel", "It", "Our room", "The staff", "Rooms", "Everyone"]),
    st.sampled_from(["is", "was not", "has", "doesn't have", "offers", "can be", "never had"]),
    st.sampled_from(["clean", "a pool", "no view", "very good", "any light", "close to town"]),
)


@given(_CLAIMS | st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=300, deadline=None)
def test_the_negation_differs_from_the_claim(claim: str) -> None:
    """Any text with a word gets another text, the same each time."""
    negation = negate(claim)
    assert negation == negate(claim)
    if any(char.isalnum() for char in claim):
        assert negation.strip() != claim.strip()


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
