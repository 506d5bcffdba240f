"""The task verify: windows of long texts, quotations, verdicts and their probabilities."""

import json
import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.tasks.base import TaskInput, Unit, side_texts
from claimscore.pipeline.tasks.verify import VERIFY, find_quotation, windows
from claimscore.tables import CLAIMS, SUPPORT
from claimscore.types import Completion, TokenLogprob

RECORDS = pl.DataFrame(
    {
        "id": ["r1", "r2"],
        "summary": ["Clean and big.", "Warm."],
        "sources": [["So clean. So big.", " ", "It is small."], ["No pool."]],
        "references": [["Clean."], ["Cold."]],
    }
)
CLAIM_ROWS = CLAIMS.frame(
    [
        {"id": record, "side": side, "sentence_index": 0, "claim_index": n, "text": text}
        for record, side, n, text in (
            ("r1", "summary", 0, "It is clean."),
            ("r1", "summary", 1, "It is big."),
            ("r1", "references", 0, "Clean."),
            ("r2", "summary", 0, "Warm."),
        )
    ]
)


def units(*sides: str, window_tokens: int = 3000) -> list[Unit]:
    texts, tables = side_texts(RECORDS, sides), {"claims": CLAIM_ROWS}
    return VERIFY.units(TaskInput(texts, "sentence", tables, RECORDS, window_tokens))


def test_a_prompt_may_show_the_sentence_of_a_claim() -> None:
    """And none where the claim is of a whole text."""
    is_warm = pl.col("text") == "Warm."
    rows = CLAIM_ROWS.with_columns(sentence=pl.when(is_warm).then(pl.lit("Warm, it was.")))
    texts = side_texts(RECORDS, ["summary"])
    units = VERIFY.units(TaskInput(texts, "sentence", {"claims": rows}, RECORDS))
    shown = {(unit.text, *unit.fields(frozenset({"sentence"})).values()) for unit in units}
    assert shown == {("It is clean.", ""), ("It is big.", ""), ("Warm.", "Warm, it was.")}


@given(text=st.text(alphabet="ab. \n漢é。", max_size=80), most_bytes=st.integers(4, 30))
def test_windows_hold_all_of_a_text(text: str, most_bytes: int) -> None:
    found = [window for _, window in windows(text, most_bytes)]
    assert all(0 < len(window.encode()) <= most_bytes for window in found)
    assert "".join("".join(found).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("quotation", "found"),
    [
        ("the  pool is\nwarm", "the pool\n is warm"),
        ("\u201cso-called 'bar'\u201d", '"so-called \u2018bar\u2019"'),
        ("it is big.", "It is big."),
        ("'It is big!'", "It is big"),
        ("Warm, and", "warm, and"),
        ("...", None),
        ("arm", None),
        ("It is ... big.", None),
        ("It is (very)", None),
        ('" "', None),
        ("", None),
    ],
)
def test_a_quotation_is_found_word_for_word(quotation: str, found: str | None) -> None:
    """White space, quotation marks, capitals and the ends may differ; found is the text's."""
    text = 'It is big. Guests say the pool\n is warm, and call it "so-called \u2018bar\u2019".'
    span = find_quotation(quotation, text)
    assert (None if span is None else text[slice(*span)]) == found


def answered(verdict: str, evidence: str, **probabilities: float) -> dict[str, Any]:
    """A checked answer, with these probabilities at the token where the verdict begins."""
    top = tuple((token, math.log(p) if p else -9999.0) for token, p in probabilities.items())
    tokens = None
    if top:
        start = verdict[:3]
        places = ('{"verdict": "', start, verdict[3:] + '", ...}')
        tokens = tuple(TokenLogprob(t, -9999.0, top if t == start else ()) for t in places)
    answer = {"verdict": verdict, "evidence": evidence}
    assert VERIFY.refine is not None
    return VERIFY.refine(Completion(json.dumps(answer), "m", logprobs=tokens), answer)


@pytest.mark.parametrize(
    ("answer", "support", "contradiction"),
    [
        (answered("supported", "", sup=0.5, supported=0.1, con=0.2, Hm=0.2), 0.75, 0.25),
        (answered("contradicted", "", con=0.6, un=0.2), 0.0, 0.75),
        (answered("supported", ""), 1.0, 0.0),
        (answered("supported", "", sup=0.0), 1.0, 0.0),
        (answered("unmentioned", ""), 0.0, 0.0),
    ],
)
def test_verdict_probability(answer: dict[str, Any], support: float, contradiction: float) -> None:
    (row,) = VERIFY.rows(units("summary")[0], answer)
    assert row["probability"] == pytest.approx(support)
    assert row["contradiction"] == pytest.approx(contradiction)


def test_the_window_that_supports_a_claim_decides() -> None:
    """Then one that contradicts it; of several the one with the largest probability."""
    asked = [unit for unit in units("summary", window_tokens=3) if unit.place[0] == 0][:2]
    assert VERIFY.join is not None

    def joined(*answers: dict[str, Any]) -> tuple[Any, ...]:
        rows = [row for unit, a in zip(asked, answers, strict=True) for row in VERIFY.rows(unit, a)]
        for order in (rows, rows[::-1]):
            frame = SUPPORT.frame(VERIFY.join(order))
        numbers = pl.col("probability", "uncertainty").cast(pl.Float64).round(3)
        return frame.select("verdict", "evidence", numbers).row(0)

    yes, sure = (
        answered("supported", e, sup=p, un=1 - p) for e, p in (("clean", 0.6), ("big", 0.9))
    )
    no = answered("contradicted", "big", con=0.9, un=0.1)
    nothing = answered("unmentioned", "", un=0.6, sup=0.4)
    assert joined(yes, no) == ("supported", "clean", 0.6, 0.8)
    assert joined(yes, sure) == ("supported", "big", 0.9, 0.2)
    assert joined(nothing, no) == ("contradicted", "big", 0.4, 0.8)
    assert joined(nothing, nothing) == ("unmentioned", None, 0.4, 0.8)
