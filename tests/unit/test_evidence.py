"""What of a text bears on a claim."""

import pytest

from claimscore.evidence import LONG, copies, excerpt, premises, ranked, shared_words

TEXT = ["The pool is warm.", "The bar is shut.", "A warm pool!", "Rooms are big.", "It is quiet."]


def test_rare_words_tell_more() -> None:
    near = shared_words(TEXT, ["a warm pool", "a big bar"])
    assert near.shape == (5, 2)
    assert near[0, 0] == near[2, 0] > 0
    assert near[1, 1] == near[3, 1] > near[0, 0] / 2
    assert ranked(near[:, 0]) == [0, 2, 1, 3, 4]
    assert shared_words(TEXT, []).shape == (5, 0)


@pytest.mark.parametrize(
    ("sentences", "claims", "places"),
    [
        (["It is warm .", "It is big ."], ["It is big", "It is small."], {0: 1}),
        (["they beat the us ."], ["They beat the US.", "They lost."], {0: 0}),
        (["They beat the US."], ["they beat the us"], {0: 0}),
        (["They beat the US."], ["They beat the us.", "Then Bob sang."], {}),
        (["They beat us.", "They beat us."], ["They beat us."], {0: 0}),
        (["..."], ["!"], {}),
    ],
)
def test_copies(sentences: list[str], claims: list[str], places: dict[int, int]) -> None:
    """But for typing and final marks; case only where one side has none, first letters aside."""
    assert copies(sentences, claims) == places


@pytest.mark.parametrize(
    ("options", "spans"),
    [
        ({"alone": True, "joined": False}, "0 1 2 3 4 5 6"),
        ({"alone": False, "joined": True}, "01 2 345 6"),
        ({"alone": True, "joined": True}, "0 1 2 3 4 5 6 01 345"),
        ({"alone": True, "joined": False, "order": [6, 5, 2, 1, 0, 3, 4]}, "0 1 2 5 6"),
        ({"alone": True, "joined": True, "order": [6, 5, 2, 1, 0, 3, 4]}, "0 1 2 5 6 0156"),
        ({"alone": False, "joined": True, "order": [6, 5, 2, 1, 0, 3, 4]}, "01456"),
        ({"alone": False, "joined": True, "order": [2, 5, 6, 1, 0, 3, 4]}, "2"),
    ],
)
def test_premises(options: dict[str, object], spans: str) -> None:
    """Sentence 2 is as long as a window; 3 does not fit beside the best."""
    sizes = [3, 4, 12, 9, 1, 2, 2]
    made = premises(sizes, 12, **options)  # type: ignore[arg-type] # of each its own
    assert " ".join("".join(map(str, span)) for span in made) == spans


def test_a_short_text_is_read_whole() -> None:
    """The order makes no difference to a text with no more sentences than are chosen."""
    how = {"alone": True, "joined": True}
    assert premises([1] * 5, 9, order=[4, 3, 2, 1, 0], **how) == premises([1] * 5, 9, **how)


def test_an_excerpt_is_of_all_claims() -> None:
    text = [f"Number {n} is here." for n in range(LONG)]
    assert excerpt(text, ["Rooms are big."]) is None
    kept = excerpt([*text, *TEXT], ["Rooms are big.", "The pool is warm."])
    assert kept is not None
    assert {LONG - 1, LONG, LONG + 1, LONG + 2, LONG + 3, LONG + 4} <= kept
    assert len(kept) < LONG
