"""The page as a browser's parser sees it: what is markup, what is text, what is missing."""

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claimscore.report import ReportTables
from tests.support.hostile_run import EVIL, hostile
from tests.support.made_up_run import metric_row
from tests.support.report_pages import Page, read

MakeUp = Callable[..., ReportTables]
WORST = {"id": "a/b%", "value": 1.5}
NOTICE = "The judge is small."


def test_hostile_text_makes_no_element_and_no_attribute(tmp_path: Path) -> None:
    def structure(page: Page) -> Counter[tuple[str, tuple[str, ...]]]:
        return Counter((tag, tuple(attributes)) for tag, attributes in page.elements)

    harmless, _ = read(hostile("plain"), tmp_path)
    page, source = read(hostile(EVIL), tmp_path)
    assert structure(page) == structure(harmless)
    assert not [name for _, attributes in page.elements for name in attributes if name[:2] == "on"]
    assert "\x00" not in source
    assert "\u2028" not in "".join(page.blocks.values())
    assert "<" not in "".join(page.blocks.values())
    assert page.text.count(" ".join(EVIL.replace("\x00", "\ufffd").split())) >= 8


def test_hostile_text_comes_back_from_json_as_it_was(tmp_path: Path) -> None:
    page, _ = read(hostile(EVIL), tmp_path)
    record, _ = page.details()
    index = page.index
    assert index["ids"] == [EVIL, EVIL + "2"]
    assert dict(index["groups"]).keys() == {f"{EVIL} (column)", "system"}
    assert index["heads"] == [[["system", EVIL]]]
    sides = {side["side"]: side for side in record["sides"]}
    assert sides["a"]["claims"] == [EVIL]
    assert sides["a"]["segments"] == [[EVIL, [0]]]
    assert sides["b"]["segments"] == [[EVIL.strip(), []]]
    assert record["other"] == [[EVIL, EVIL], ["system", EVIL]]
    (call, *_) = record["calls"]
    assert (call["user"], call["answer"], call["model"], call["key"]) == (EVIL,) * 4
    assert record["texts"] == [["source", [EVIL], 0], ["references", [EVIL], 0]]
    assert record["facts"]["source"] == [f"{EVIL} {EVIL}"[:200]]
    assert record["facts"]["missing"] == [0]
    assert record["reasons"] == [None, EVIL]
    assert record["components"] == [{EVIL: EVIL}, {EVIL: EVIL}]
    assert record["failures"][0][3] == EVIL


def test_nulls_are_counted_and_shown_with_their_reason(made_up: MakeUp, tmp_path: Path) -> None:
    page, _ = read(made_up(12), tmp_path)
    assert "caspr 1 decompose failed for summary_b" in page.text
    assert "decompose parse 1 no JSON object in the answer" in page.text
    assert page.index["values"][0][10] is None
    assert page.index["failures"] == [0] * 10 + [1, 0]
    assert page.details()[10]["reasons"] == [
        "decompose failed for summary_b: no JSON object in the answer",
        None,
        None,
    ]


def test_empty_run_is_a_page_that_says_so(made_up: MakeUp, tmp_path: Path) -> None:
    page, _ = read(made_up(0, metrics={}), tmp_path)
    for words in ("no scores", "no records", "Nothing failed", "0 records"):
        assert words in page.text
    assert page.details() == []
    assert page.index["ids"] == []


def test_cap_is_stated_and_kept(made_up: MakeUp, tmp_path: Path) -> None:
    page, _ = read(made_up(150, max_details=70), tmp_path)
    assert "first 70 of 150 records" in page.text
    assert len(page.details()) == 70
    assert len(page.index["ids"]) == 70
    assert "63.90 to 68.10 150 0" in page.text


@pytest.mark.parametrize(
    ("bounds", "scale"),
    [
        ([0.0, 100.0], "0 to 100, higher is better"),
        ([1.0, None], "from 1 on, higher is better"),
        ([None, 0.0], "up to 0, higher is better"),
        ([None, None], "higher is better"),
    ],
)
def test_a_metric_says_what_it_means_and_where_to_look(
    bounds: list[float | None], scale: str, made_up: MakeUp, tmp_path: Path
) -> None:
    words = {"description": "share of words", "higher_is": "better", "verdict": "much"}
    row = metric_row(**words, range=bounds, worst=[WORST])
    page, source = read(made_up(2, metrics={"ds": row}), tmp_path)
    assert f"ds Much. Share of words: {scale}. Look first at a/b% 1.50" in page.text
    assert 'href="#record-a/b%25"' in source


def test_what_several_metrics_share_is_said_once(made_up: MakeUp, tmp_path: Path) -> None:
    verdicts = {name: f"{name} is 1. Compare it" for name in ("ds", "caspr")}
    metrics = {name: metric_row(verdict=verdict) for name, verdict in verdicts.items()}
    page, _ = read(made_up(2, metrics=metrics), tmp_path)
    assert "caspr Caspr is 1." in page.text
    assert page.text.count("Compare it") == page.text.count("Compare it (ds, caspr).") == 1


def test_no_line_ends_within_an_option(made_up: MakeUp, tmp_path: Path) -> None:
    tables = made_up(2)
    run = dataclasses.replace(tables.run, notices=("Try --llm openai:<b>, or --llm-param.",))
    page, source = read(dataclasses.replace(tables, run=run), tmp_path)
    option = '<span class="option">{}</span>'.format
    shown = f"<p>Try {option('--llm')} openai:&lt;b&gt;, or {option('--llm-param')}.</p>"
    assert shown in source
    assert "Try --llm openai:<b>, or --llm-param ." in page.text


def test_what_a_run_says_of_itself(made_up: MakeUp, tmp_path: Path) -> None:
    """Its notices, what was cut by metric, and a name with a lone surrogate."""
    tables = made_up(2)
    plain = read(tables, tmp_path)[0].text
    cut: dict[str, Any] = {
        "caspr": {"rows": 1_234, "records": 2, "limits": [256, 512], "unknown": 0},
        "factsim": {"rows": 0, "records": 0, "limits": [], "unknown": 7},
    }
    told = {"notices": (NOTICE,), "truncated": cut, "input": "caf\udce9.jsonl"}
    run = dataclasses.replace(tables.run, **told)
    page, _ = read(dataclasses.replace(tables, run=run), tmp_path)
    for words in (NOTICE, "Texts that were cut"):
        assert words in page.text
        assert words not in plain
    assert "caspr 256, 512 1,234 2" in page.text
    assert "factsim not told not told not told" in page.text
    assert "caf\\udce9.jsonl" in page.text
