"""Texts that are not English, with HTML or without words: counted, said, and HTML left out."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.records.text_checks import check_texts
from tests.support.command_line import Command

GERMAN = "Das Hotel war sehr gut und die Zimmer waren sauber, aber das Frühstück war schlecht."
SPANISH = "El hotel estaba muy bien y las habitaciones eran limpias, pero el desayuno era malo."
ENGLISH = "The hotel was very good and the rooms were clean, but the breakfast was not good at all."
ODD: list[dict[str, Any]] = [
    {"summary_a": "<p>Good &amp;\nclean.</p><p>Loud.</p>", "summary_b": ENGLISH, "source": [""]},
    {"summary_a": GERMAN, "summary_b": "👍👍", "source": ["a", "<b>b</b>"]},
    {"summary_a": None, "summary_b": "今日は良い。", "source": None},
]


@pytest.mark.parametrize(
    ("text", "checks"),
    [
        (ENGLISH, []),
        (ENGLISH.upper(), []),
        ("Quarterly profit at Halden Foods rose 12 percent. Frozen vegetables grew fastest.", []),
        ("Rooms clean, staff friendly, breakfast superb, pool cold.", []),
        ("Café “naïve” — 5 < 6 & 7 > 3, AT&T, <3; R&D 👍", []),
        (GERMAN, ["not_english"]),
        (SPANISH, ["not_english"]),
        ("Москва столица", ["not_english"]),
        ("यह अच्छा है।", ["not_english"]),
        ("The word for rain is 雨 (ame), and that for snow is 雪 (yuki).", []),
        ("", ["no_words"]),
        (" \n", ["no_words"]),
        ("👍👍 !!", ["no_words"]),
        ("42", []),
        ("It rained.<br/>It was <a href='x'>cold</a>.", ["html"]),
        ("Fish &amp; chips", ["html"]),
        ("Fish &#38; chips", ["html"]),
        ("<think>it rained</think>", []),
    ],
)
def test_what_is_odd_about_a_text(text: str, checks: list[str]) -> None:
    records = pl.LazyFrame({"id": ["r1"], "summary": [text]})
    assert [found["check"] for found in check_texts(records)] == checks


@pytest.mark.parametrize("column", ["source", "sources"])
def test_summaries_much_longer_than_their_sources_may_be_swapped(column: str) -> None:
    """Nearly all of those that have both; a list of sources counts together."""
    short = "It rained." if column == "source" else ["It rained."]
    rows = [{"id": str(n), column: short, "summary": "It rained. " * 3} for n in range(9)]
    rows += [{"id": "equal", column: short, "summary": "It rained."}, {"id": "none", column: short}]
    (found,) = check_texts(pl.LazyFrame(rows))
    assert (found["check"], found["ids"]) == ("swapped", ["0", "1", "2"])
    assert found["text"].startswith("a summary is more than 2 times as long as its source: 9 of 10")
    assert "--columns source=summary,summary=source" in found["text"]
    assert not check_texts(pl.LazyFrame(rows[1:]))


def test_texts_are_counted_column_by_column_with_the_first_ids() -> None:
    """A null column of a record has no text."""
    records = pl.LazyFrame([{"id": f"r{n}", **row} for n, row in enumerate(ODD * 5)])
    found = {one["check"]: one for one in check_texts(records)}
    assert found["not_english"]["columns"] == {
        "summary_a": {"texts": 10, "found": 5},
        "summary_b": {"texts": 15, "found": 5},
    }
    assert found["html"]["columns"]["source"] == {"texts": 15, "found": 5}
    assert found["no_words"]["ids"] == ["r0", "r3", "r6"]
    assert found["html"]["text"].startswith(
        "with HTML: 5 of 15 in source, 5 of 10 in summary_a; first r1, r4, r7; "
    )


def test_a_run_says_it(cli: Command, tmp_path: Path) -> None:
    """In terminal, report and summary."""
    source = tmp_path / "odd.jsonl"
    source.write_text("\n".join(map(json.dumps, ODD)))
    call = ("run", source, "--metrics", "ds", "--out")
    plain = cli(*call, tmp_path / "a")
    said = "with HTML: 1 of 3 in summary_a; first 0;"
    assert said in " ".join(plain.out.split())
    assert said in (tmp_path / "a/report.html").read_text("utf-8")
    summary = json.loads((tmp_path / "a/summary.json").read_text("utf-8"))
    assert [found["check"] for found in summary["text_checks"]] == [
        *("not_english", "html", "no_words")
    ]
