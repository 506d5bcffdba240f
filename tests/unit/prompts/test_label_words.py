"""Answers of one word: which probability each label has, and what is no such answer."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import ConfigError, ParseError
from claimscore.pipeline.llm.question import Invalid, ParseWord, validate
from claimscore.prompts import load_prompt, load_prompt_file, numbered
from claimscore.prompts.output import AnswerForm, label_probabilities
from claimscore.types import Completion, TokenLogprob

WORDS = {"supported": "Yes", "unmentioned": "No"}


def place(token: str, **top: float) -> TokenLogprob:
    """A token, and the probabilities of the likeliest ones, of whose names `_` is a space."""
    likeliest = {" ".join(name.split("_")): math.log(p) for name, p in top.items()}
    return TokenLogprob(token, likeliest.get(token, 0.0), tuple(likeliest.items()))


def answer(*places: TokenLogprob, reason: str = "stop", reasoning: str = "") -> Completion:
    text = "".join(token.token for token in places)
    return Completion(text, "m", reason, logprobs=places or None, reasoning=reasoning)


@pytest.mark.parametrize(
    ("places", "yes", "no"),
    [
        pytest.param([place("Yes", Yes=0.7, yes=0.1, No=0.15)], 0.8, 0.15, id="spellings"),
        pytest.param([place(" no", yes=0.2, no=0.5, _no=0.1)], 0.2, 0.6, id="spaces"),
        pytest.param(
            [place("<score>", Yes=1.0), place("No", No=0.9), place("Yes")], 0.0, 0.9, id="first"
        ),
        pytest.param([place('"Yes".')], 1.0, 0.0, id="no others told"),
        pytest.param([place("No", Yes=0.6, yes=0.6, No=0.1)], 1.0, 0.1, id="rounding"),
    ],
)
def test_labels_are_as_likely_as_words(places: list[TokenLogprob], yes: float, no: float) -> None:
    probabilities = label_probabilities(WORDS, answer(*places))
    assert probabilities == pytest.approx({"supported": yes, "unmentioned": no})


@pytest.mark.parametrize(
    ("completion", "message"),
    [
        (answer(place("May"), place("be")), "none of Yes, No: 'Maybe'"),
        (Completion("Yes", "m"), "no log-probabilities"),
        (answer(place("Yes"), reasoning="Yes, for ..."), "no log-probabilities of the answer"),
    ],
)
def test_what_says_no_word_is_refused(completion: Completion, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        label_probabilities(WORDS, completion)


def test_only_a_word_may_be_cut_off_after() -> None:
    """One token is the whole answer; a filter's stop is none; no sample says another word."""
    prompt = load_prompt("verify", "minicheck")
    parse = ParseWord(prompt.read)
    cut_off = answer(place("Yes", Yes=0.7), reason="length")
    assert validate(cut_off, parse) == pytest.approx({"supported": 0.7, "unmentioned": 0.0})
    refused = validate(answer(place("Maybe"), reason="length"), parse)
    assert isinstance(refused, Invalid)
    assert (refused.kind, refused.is_final, refused.is_cut_off) == ("parse", True, False)
    for completion, judge, kind in (
        (cut_off, prompt.read, "length"),
        (answer(place("Yes"), reason="content_filter"), parse, "content_filter"),
    ):
        invalid = validate(completion, judge)
        assert isinstance(invalid, Invalid)
        assert invalid.kind == kind


def test_placeholders_of_parameters_are_filled_in(tmp_path: Path) -> None:
    """A text that is nothing else is one; what a server has with a dollar sign stays."""
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "a"\nversion = "v1"\nuser = "$text"\n[settings.extra]\n'
        'a = [{b = "$source"}, "${text}", "$5", "a $text", 1]\n',
        encoding="utf-8",
    )
    assert load_prompt_file(path).fields == {"text", "source"}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('a = "Yes"', "two labels or more"),
        ('a = "Yes"\nb = " yes."', "differs beyond case"),
        ('a = "Yes"\nb = ""', "each with a word"),
        ('a = "Yes"\nb = "No"\n[output]\nc = "string"', "there is no .output."),
    ],
)
def test_wrong_label_words_are_refused(tmp_path: Path, table: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    text = f'name = "a"\nversion = "v1"\nuser = "$text"\n[label_words]\n{table}\n'
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_prompt_file(path)


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
