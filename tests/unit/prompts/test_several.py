"""An answer about several numbered texts: each is right or wrong by itself."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import ParseError
from claimscore.prompts import load_prompt, numbered
from claimscore.prompts.output import AnswerForm

CLAIMS = {"claims": ["string"]}


def said(*items: object) -> str:
    return json.dumps({"answers": list(items)})


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": 2},
        {"text": 2, "claims": "b"},
        {"text": 2, "claims": [1]},
        {"text": "2", "claims": ["b"]},
        {"text": 2.5, "claims": ["b"]},
        {"claims": ["b"]},
        {"text": 2, "claims": ["b"], "more": 1},
        None,
        "b",
        ["b"],
    ],
)
def test_a_wrong_item_is_left_out_and_costs_no_other(wrong: object) -> None:
    text = said({"text": 1, "claims": ["a"]}, wrong, {"text": 3, "claims": ["c"]})
    answers = AnswerForm(CLAIMS).parse_several(text)
    right = {number: answer for number, answer in answers.items() if answer is not None}
    assert right == {1: {"claims": ["a"]}, 3: {"claims": ["c"]}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("{", "Invalid JSON"),
        pytest.param("[" * 100_000, "Invalid JSON", id="deep"),
        ('{"claims": ["a"]}', "must be"),
        ('{"answers": {}}', "must be"),
        ('{"answers": [], "x": 1}', "must be"),
        (said(), "no text is answered"),
        (said({"text": 1}), "claims: Field required"),
        (
            said({"text": 1, "claims": ["a"]}, {"text": 1, "claims": ["b"]}),
            "text 1 is answered twice",
        ),
    ],
)
def test_an_answer_of_which_nothing_can_be_used_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        AnswerForm(CLAIMS).parse_several(text)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_the_rules_find_every_text_of_a_list_again(texts: list[str]) -> None:
    from claimscore.baseline.provider import numbered_texts

    content = load_prompt("decompose", "v2").render({"texts": numbered(texts)})[-1].content
    assert content == numbered(texts)
    assert numbered_texts(content) == [" ".join(text.split()) for text in texts]
    assert numbered_texts("Texts:\n" + content + "\nNow answer.") == numbered_texts(content)
