"""Sentences and DS tokens."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.errors import ConfigError
from claimscore.metrics.ds import ds_tokens, stem
from claimscore.text import claim_key, copy_key, normal_form, split_sentences
from tests.support.shared_data import shared


@pytest.mark.parametrize(
    "sentences",
    [
        pytest.param(["The room was ok.", "Breakfast was bad."], id="ok"),
        pytest.param(["Dr. Smith met Mr. Jones in St. Paul.", "He left."], id="titles"),
        pytest.param(['He read "Dr. Jekyll and Mr. Hyde."', '"No!"', "He left."], id="quoted"),
        pytest.param(["See e.g. the pool, i.e. the big one.", "Nice."], id="e.g."),
        pytest.param(["We like the U.S.", "The food is good."], id="U.S. at the end"),
        pytest.param(["The U.S. government left.", "We stayed."], id="U.S. inside"),
        pytest.param(["We came at 5 p.m.", "Breakfast was over."], id="p.m. at the end"),
        pytest.param(["From 9 a.m. to 5 p.m. Monday we ate."], id="a.m. inside"),
        pytest.param(["Pools, a spa, etc.", "Rooms are big."], id="etc. at the end"),
        pytest.param(["Yoghurts, etc. to begin the day."], id="etc. inside"),
        pytest.param(["Room No. 5 is bad.", "The answer is no.", "They left."], id="No. 5"),
        pytest.param(["It costs 3.50 dollars.", "Cheap."], id="decimal"),
        pytest.param(["We were in room 11.", "The view was good."], id="number at the end"),
        pytest.param(["1. Clean.", "2. Near the beach."], id="numbered list"),
        pytest.param(['"It was great."', "(It was bad.)", "We left."], id="closing marks"),
        pytest.param(["“It was great.”", "«Oui.»", "Non."], id="typographic quotes"),
        pytest.param(['"Is it good?" he asked.', "Yes (really!) and no."], id="quoted question"),
        pytest.param(["Well... maybe.", "Great...", "Rooms are big."], id="ellipsis"),
        pytest.param(["Hi… there …", "Rooms are big."], id="one-character ellipsis"),
        pytest.param(["Go!", "Now?!", "Yes."], id="other marks"),
        pytest.param(["J. S. Bach stayed here.", "He left."], id="initials"),
        pytest.param(["J.J. Pryor met J.K. Rowling.", "He is J.P.", "The man left."], id="J.J."),
        pytest.param(["Bids of Framatome S.A. also rose.", "CVN Cos. for one."], id="S.A."),
        pytest.param(["A man of Scott, Miss., left.", "He got a Ph.D. (1968)."], id="marks"),
        pytest.param(["Ito (born c. 1961) sold Jay Pvt. Ltd. to us.", "Yes."], id="c."),
        pytest.param(['She made "Mitzi... Zings into Spring" here.', "Yes."], id="title"),
        pytest.param(['He said "no..."', "Then we left."], id="quoted ellipsis"),
        pytest.param(["¿Está bien?", "Sí.", "¡Muy bien!"], id="Spanish"),
        pytest.param(["Es ist z.B. das Zimmer.", "Ja."], id="German"),
        pytest.param(["यह अच्छा है।", "हाँ।"], id="Hindi"),
        pytest.param(["هل هو جيد؟", "نعم."], id="Arabic"),
    ],
)
def test_rules_cut_where_a_reader_would(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One\nTwo\r\nThree", ["One", "Two", "Three"]),
        ("  One.  \n\n ", ["One."]),
        ("これは良い。「良い！」でした。はい", ["これは良い。", "「良い！」でした。", "はい"]),
        ("यह अच्छा है।वह बुरा है॥हाँ", ["यह अच्छा है।", "वह बुरा है॥", "हाँ"]),
        ("یہ اچھا ہے۔کیا؟ہاں", ["یہ اچھا ہے۔", "کیا؟", "ہاں"]),
        ("Սա լավ է։Դա վատ է։", ["Սա լավ է։", "Դա վատ է։"]),
        ("នេះល្អ។ នោះអាក្រក់។ဒါကောင်းတယ်။ဒါဆိုး", ["នេះល្អ។", "នោះអាក្រក់។", "ဒါကောင်းတယ်။", "ဒါဆိုး"]),
        (" \n\t", []),
        ("No end", ["No end"]),
    ],
)
def test_boundaries_without_a_space(text, sentences):
    assert split_sentences(text) == sentences


@given(st.text(alphabet="aB1. !?\n\"')…。」etc", max_size=60))
@settings(max_examples=40, deadline=None)
def test_sentences_are_slices_and_nothing_is_lost(text):
    sentences = split_sentences(text)
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    place = 0
    for sentence in sentences:
        place = text.index(sentence, place) + len(sentence)


def test_punkt_without_its_data_says_what_to_do(monkeypatch):
    import nltk.data

    from claimscore import text

    monkeypatch.setattr(nltk.data, "path", [])
    text._trained_punkt.cache_clear()
    with pytest.raises(ConfigError, match=r"nltk.downloader punkt_tab.*splitter rules"):
        split_sentences("A.", "punkt")


def test_rules_agree_with_punkt_on_the_published_summaries():
    """622 of the 623 summaries are cut alike; "etc. to begin" is punkt's error."""
    try:
        split_sentences("A.", "punkt")
    except ConfigError as exc:
        pytest.skip(str(exc))
    lines = shared("data/caspr/comparisons.jsonl").read_text(encoding="utf-8").splitlines()
    texts = {row[key] for row in map(json.loads, lines) for key in ("text_a", "text_b")}
    lines = shared("data/caspr/cocotrip_caspr.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, lines):
        for key in ("entity_a_summary", "entity_b_summary", "common_summary"):
            texts.update(row[key])
    different = [t for t in texts if split_sentences(t) != split_sentences(t, "punkt")]
    assert len(texts) == 623
    assert len(different) == 1
    assert "etc. to begin" in different[0]


@pytest.mark.parametrize(
    ("token", "stemmed"),
    [
        pytest.param("was", "was", id="three characters stay"),
        pytest.param("kept", "keep", id="exception table"),
        pytest.param("sparkly", "sparkli", id="original Porter"),
        pytest.param("rooms", "room", id="plural"),
        pytest.param("...!", "...!", id="punctuation"),
    ],
)
def test_stems(token, stemmed):
    assert stem(token) == stemmed


def test_golden_tokens():
    """And every sentence's final stop is a token, which needs the boundary to be seen."""
    expected = ["the", "room", "be", "n't", "clean", ".", "he", "ask", "."]
    assert ds_tokens("The rooms weren't clean. He asked.") == expected
    golden = json.loads(shared("data/caspr/ds_golden.json").read_text(encoding="utf-8"))
    for case in golden["toy_cases"]:
        for side in ("a", "b"):
            if f"tokens_{side}" in case:
                assert ds_tokens(case[f"text_{side}"]) == case[f"tokens_{side}"]


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("The room was clean.", "the room was clean", True),
        ("The room was clean.", "Room was a clean!", True),
        ("Spain beat Italy.", "Italy beat Spain.", False),
        ("It is good.", "It is not good.", False),
        ("Le café est fermé.", "Le cafe est ferme.", False),
        ("It rains.", " it  RAINS", True),
        ("It rains.", "“It rains!”", True),
        ("It costs $5.", "It costs 5%.", False),
        ("लड़का", "लड़की", False),
        ("…", "!", False),
    ],
)
def test_claims_are_the_same_where_their_words_are(a, b, same):
    assert (claim_key(a) == claim_key(b)) is same


@pytest.mark.parametrize(
    ("typed", "form"),
    [
        ("He paid £ 134,565 , she said .", "He paid £134,565, she said."),
        ("`` It is n't good , '' he said .", '"It isn\'t good," he said.'),
        ("They do n't know -LRB- yet -RRB- .", "They don't know (yet)."),
        ("“Don’t”\u00a0— she said…", '"Don\'t" - she said...'),
        ("the world 's high @-@ speed 1 @,@ 000 trains", "the world's high-speed 1,000 trains"),
        ('He said " yes " and " no " .', 'He said "yes" and "no".'),
        ("a .50 gun, 5 % of it", "a .50 gun, 5% of it"),
        ("A -- B, a–b, James ' car", "A - B, a-b, James ' car"),
    ],
)
def test_the_normal_form_does_not_depend_on_typing_or_tokenising(typed: str, form: str) -> None:
    assert normal_form(typed) == form


@given(st.text(alphabet="ab 's\"`-.,n't@($£5)—’“LRB?!:\u00a0", max_size=40))
def test_the_normal_form_of_a_normal_form_is_itself(text: str) -> None:
    assert normal_form(normal_form(text)) == normal_form(text)


def test_a_copy_has_the_key_of_its_original() -> None:
    original = 'The "A&E" unit cost £28 – or (34m) – didn’t it?'
    assert copy_key("The `` A&E '' unit cost £ 28 - or ( 34m ) - did n't it") == copy_key(original)
    assert copy_key(original.lower()) != copy_key(original)
    assert copy_key(original.lower(), case=False) == copy_key(original, case=False)
