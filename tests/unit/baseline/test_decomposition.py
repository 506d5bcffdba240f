"""Decomposition: what is split, what is left whole, and what never happens."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.baseline.decomposition import decompose, decompose_text
from claimscore.baseline.words import is_content, tokenise
from tests.support.cut_sentences import cut_sentences

#: A sentence, and its claims below it.
SPLITS = cut_sentences("""
The food was delicious but the portions were tiny.
    The food was delicious. | The portions were tiny.
The garage is dark, narrow and expensive.
    The garage is dark. | The garage is narrow. | The garage is expensive.
The room is clean but small and noisy.
    The room is clean. | The room is small. | The room is noisy.
The phone is not cheap but reliable.
    The phone is not cheap. | The phone is reliable.
The phone isn't light and cheap.
    The phone isn't light. | The phone isn't cheap.
The chalet is warm and even had a sauna.
    The chalet is warm. | The chalet even had a sauna.
They can rest in the garden and use the sauna.
    They can rest in the garden. | They can use the sauna.
The lake is close to the campus and the old library.
    The lake is close to the campus. | The lake is close to the old library.
It is easy to drive to the old port as well as cafes and markets.
    It is easy to drive to the old port. | It is easy to drive to cafes and markets.
The suite has a stove, a sofa and a small desk.
    The suite has a stove. | The suite has a sofa. | The suite has a small desk.
Our room had a balcony, which was covered in dust.
    Our room had a balcony. | The balcony was covered in dust.
The receptionist, who spoke four languages, booked us a taxi.
    The receptionist booked us a taxi. | The receptionist spoke four languages.
The villa has three terraces, which is a luxury.
    The villa has three terraces. | This is a luxury.
This is a café situated near the river.
    This is a café. | The café is situated near the river.
The lodge's free shuttle was late.
    The lodge offers a free shuttle. | The shuttle was late.
Although the lobby looks dated, the bedrooms have been renovated.
    The lobby looks dated. | The bedrooms have been renovated.
Although small, the kitchen was well equipped.
    The kitchen was small. | The kitchen was well equipped.
Lower floors are cheap as they can be loud.
    Lower floors are cheap. | They can be loud.
The trail is great for runners and for families.
    The trail is great for runners. | The trail is great for families.
The inn has a garden with a pond and a barn.
    The inn has a garden with a pond. | The inn has a barn.
They serve cakes and offer tours.
    They serve cakes. | They offer tours.
It will be repaired and cleaned.
    It will be repaired. | It will be cleaned.
The tower was tall, which is great, and the guide spoke well.
    The tower was tall. | This is great. | The guide spoke well.
Nice place but the bar was loud.
    Nice place. | The bar was loud.
Overall, we slept well.
    We slept well.
Also the tea was cold.
    The tea was cold.
However, it was late.
    It was late.
It's noisy; the staff are rude.
    It's noisy. | The staff are rude.
The bus was late, it was also full.
    The bus was late. | It was also full.
The camera is not only fast but also accurate.
    The camera is fast. | The camera is accurate.
The guide was both funny and kind.
    The guide was funny. | The guide was kind.
GREAT PHONE, TERRIBLE BATTERY!
    GREAT PHONE. | TERRIBLE BATTERY.
THE BED WAS SOFT AND WARM.
    THE BED WAS SOFT. | THE BED WAS WARM.
The rooms (clean and warm) were dry and had a view.
    The rooms (clean and warm) were dry. | The rooms (clean and warm) had a view.
the lift is broken
    The lift is broken.
the lift is broken!
    The lift is broken!
""")


def content_words(text: str) -> frozenset[str]:
    """The words that no claim of a sentence may lose together."""
    return frozenset(token.low for token in tokenise(text) if is_content(token))


@pytest.mark.parametrize(("sentence", "claims"), SPLITS.items())
def test_a_sentence_is_split_into_its_claims(sentence: str, claims: list[str]) -> None:
    """Each construction gives the claims that a careful reader would write."""
    assert decompose(sentence) == claims


@pytest.mark.parametrize(
    "sentence",
    [
        pytest.param("The screen is bright.", id="single"),
        pytest.param("Great location!", id="fragment"),
        pytest.param("Is the bar open and lively?", id="question"),
        pytest.param("The café lies between the river and the market.", id="between"),
        pytest.param("The soup was neither hot nor fresh.", id="neither"),
        pytest.param("A clean and elegant room.", id="adjectives-of-one-noun"),
        pytest.param("It is a clean and elegant flat.", id="adjectives-before-a-noun"),
        pytest.param("The cook and the waiter were kind.", id="joint-subject"),
        pytest.param("If it rains and you are cold, take a taxi.", id="condition"),
        pytest.param("He said the soup was vegan and the bread was fresh.", id="reported"),
        pytest.param("The staff helped us as much as they could.", id="as-much-as"),
        pytest.param("Zimmer sauber und ruhig.", id="another-language"),
        pytest.param("The lamp can't be dimmed but cheap.", id="no-verb-without-its-not"),
        pytest.param("It was “old but charming” to us.", id="quotation"),
        "Dr. Smith never taught physics.",
        "Mr. Jones met Mrs. Lee on Jan. 5.",
        "Prof. Xu et al. (2020) agree.",
    ],
)
def test_what_is_single_or_unclear_stays_whole(sentence: str) -> None:
    """A doubtful split is not made."""
    assert decompose(sentence) == [sentence]


@pytest.mark.parametrize("text", ["", "  \n", "...", "?!", "—"])
def test_a_text_without_words_has_no_claims(text: str) -> None:
    """Marks alone are no claim."""
    assert decompose(text) == []


def test_table_4_of_the_paper_comes_out_in_substance() -> None:
    """The kinds of sentence of CASPR's only published decomposition, in words of our own."""
    claims = decompose_text(
        "This is a hostel located in a quiet street. It is perfect to walk to the old harbour as "
        "well as bars and theatres. Suites on the upper floors are excellent as they can provide "
        "a wide view. The suite itself is of a high quality and even had a big bath, which is "
        "wonderfully deep. The hostel's complimentary dinner was really good."
    )
    assert claims == [
        "This is a hostel.",
        "The hostel is located in a quiet street.",
        "It is perfect to walk to the old harbour.",
        "It is perfect to walk to bars and theatres.",
        "Suites on the upper floors are excellent.",
        "They can provide a wide view.",
        "The suite itself is of a high quality.",
        "The suite itself even had a big bath.",
        "The big bath is wonderfully deep.",
        "The hostel offers a complimentary dinner.",
        "The dinner was really good.",
    ]


_VOCABULARY = (
    "the a hotel room staff pool bar clean small noisy great not n't is was are were has "
    "had and but , ; which who it they we this as well so because although while also "
    "however overall very beach airport close to of in with loved offers located free 's "
    "12 $3.50 ( ) \" both either if can be never no there breakfast's Paris I café rooms"
)
_WORDS = st.sampled_from(_VOCABULARY.split())
_SENTENCES = st.lists(_WORDS, max_size=30).map(" ".join)


@given(st.one_of(_SENTENCES, st.text(max_size=80)))
@settings(max_examples=250, deadline=None)
def test_no_content_is_lost_and_no_claim_is_empty(sentence: str) -> None:
    """Every content word occurs in a claim; every claim has a word in it."""
    claims = decompose(sentence)
    said = content_words(" ".join(claims))
    assert content_words(sentence) <= said
    assert all(any(char.isalnum() for char in claim) for claim in claims)
    assert claims == decompose(sentence)


@given(_SENTENCES)
@settings(max_examples=250, deadline=None)
def test_a_claim_is_decomposed_into_itself(sentence: str) -> None:
    """Claims are single: taking one apart again changes nothing."""
    for claim in decompose(sentence):
        assert decompose(claim) == [claim]


@pytest.mark.parametrize(
    "part",
    ["the room was clean and ", "clean, quiet, ", "word ", "and ", "a pool which is ", "x", '"('],
)
def test_a_very_long_sentence_takes_linear_time(part: str) -> None:
    """100 kB of anything take a fraction of a second; the bound allows for a busy machine."""
    decompose("Warm up.")
    start = time.process_time()
    decompose(part * (100_000 // len(part)))
    assert time.process_time() - start < 2.0
