"""FactSim's tuples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.baseline.facts import facts

PAPER = [
    ("The car is not good, it is not fast at all", [("car", "bad"), ("car", "slow")]),
    ("The car is good, it is very fast", [("car", "good"), ("car", "fast")]),
    ("The car is bad, it is slow", [("car", "bad"), ("car", "slow")]),
    ("The car is great, it is quick", [("car", "great"), ("car", "quick")]),
    ("The car is fast", [("car", "fast")]),
    ("The car is not slow", [("car", "fast")]),
    ("The car is quick", [("car", "quick")]),
    ("The car is pretty fast around the corners", [("car", "fast")]),
    ("The car is slow", [("car", "slow")]),
    ("The car is not fast", [("car", "slow")]),
    ("The car is sluggish", [("car", "sluggish")]),
    ("The car is pretty slow around the corners", [("car", "slow")]),
]


@pytest.mark.parametrize(("text", "tuples"), PAPER)
def test_the_papers_examples_come_out_exactly(text: str, tuples: list[tuple[str, str]]) -> None:
    """Tables 1 and 2 of the FactSim paper."""
    assert facts([text]) == [tuples]


@pytest.mark.parametrize(
    ("text", "tuples"),
    [
        ("We ate great pasta.", [("pasta", "great")]),
        (
            "The inn has a warm lounge and offers a spacious attic.",
            [("lounge", "warm"), ("attic", "spacious")],
        ),
        ("The tutors were not patient.", [("tutors", "impatient")]),
        ("The plot was not quirky.", [("plot", "unquirky")]),
        ("We loved the sauna. It is hot.", [("sauna", "loved"), ("sauna", "hot")]),
        ("There is no lift.", [("lift", "missing")]),
        ("The soup and the bread were great.", [("soup", "great"), ("bread", "great")]),
        ("The cook's soup was cold.", [("soup", "cold")]),
        ("The staff at the desk were rude.", [("staff", "rude")]),
        ("The radio doesn't work.", [("radio", "broken")]),
        ("The pool was warm and the bar was shut.", [("pool", "warm"), ("bar", "shut")]),
        ("It is sturdy.", [("product", "sturdy")]),
        ("It's a kettle that isn't noisy.", [("kettle", "quiet")]),
        ("We found the room clean but not quiet.", [("room", "clean"), ("room", "noisy")]),
        ("The staff could not have been more helpful.", [("staff", "helpful")]),
        ("Fast, but noisy in the morning.", [("product", "fast"), ("product", "noisy")]),
        ("The soup is not the best.", []),
        ("It was not only cheap but also good.", [("product", "cheap"), ("product", "good")]),
        ("We never had a better pizza.", [("pizza", "better")]),
        ("They had rooms without curtains.", [("curtains", "missing")]),
        ("There was no hot soup.", [("soup", "missing")]),
        ("The bar is without a decent stool.", [("stool", "missing")]),
        ("The chairs here are soft.", [("chairs", "soft")]),
        ("The back door staff were rude.", [("staff", "rude")]),
        ("The tent is a good choice.", [("tent", "good")]),
        ("The sofa is old. It's a nice thing.", [("sofa", "old"), ("sofa", "nice")]),
        ("The cabin is a short walk away.", []),
        ("The tiles could be cleaner.", [("tiles", "dirtier")]),
        ("The tea was nothing special.", [("tea", "unremarkable")]),
        ("The stove was hardly warm.", [("stove", "cool")]),
        ("The kiosk was neither cheap nor clean.", [("kiosk", "expensive"), ("kiosk", "dirty")]),
        ("The lid is not too large.", []),
        ("The boots are well made.", [("boots", "well-made")]),
        ("The farm is perfectly situated.", [("farm", "perfect")]),
        ("The oven is worth the price.", [("oven", "worthwhile")]),
        ("If you want a cheap tent, go there.", []),
        ("It is hard to find clean plates.", [("plates", "clean")]),
        ("My wife was happy.", []),
        ("Very pleased!", []),
        ("Is the pool warm?", []),
        ("I don't think that the glue is strong.", []),
        ("No patch helped.", []),
        ("The room was not large and a bit cold.", [("room", "tiny"), ("room", "cold")]),
        ("The bar was great!The soup isn’t hot.", [("bar", "great"), ("soup", "cold")]),
        (
            "The lamp is bright. The knobs are loose. It works.",
            [("lamp", "bright"), ("knobs", "loose"), ("lamp", "working")],
        ),
        ("We arrived on Monday.", []),
        ("", []),
    ],
)
def test_subjects_and_descriptions_of_one_word(text: str, tuples: list[tuple[str, str]]) -> None:
    assert facts([text]) == [tuples]


def test_texts_together_get_the_facts_of_each_alone() -> None:
    texts = [text for text, _ in PAPER]
    assert facts(texts) == [facts([text])[0] for text in texts]


@given(st.text(max_size=80))
def test_tuples_are_lower_case_words(text: str) -> None:
    for subject, description in facts([text])[0]:
        assert (subject, description) == (subject.lower(), description.lower())
        assert [len(word.split()) for word in (subject, description)] == [1, 1]
