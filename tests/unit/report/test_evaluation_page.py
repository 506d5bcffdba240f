"""The pages of evaluations: what is markup, what is text, what is linked, what is said."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.cli import main
from claimscore.evaluation.summac_benchmark import SummacConfig, summac_benchmark
from claimscore.report import write_report
from claimscore.report.evaluation.benchmark_pages import write_result_page
from claimscore.report.evaluation.evaluation_page import Block, run_link, run_signatures
from claimscore.report.html_page import minus
from tests.support.evaluation_pages import COMMAND, PAGES, grid_page
from tests.support.hostile_run import EVIL, hostile
from tests.support.rated_tables import labelled_rows, rated_rows, write_jsonl, write_run
from tests.support.report_pages import Page


def read(path: Path) -> tuple[Page, str]:
    source = path.read_bytes().decode("utf-8")
    return Page(source), source


MakePage = Callable[[Path, str], Path]


@pytest.mark.parametrize("make", PAGES)
def test_hostile_names_make_no_element_and_no_attribute(make: MakePage, tmp_path: Path) -> None:
    def structure(page: Page) -> Counter[tuple[str, tuple[str, ...]]]:
        marks = ("ins", "del")  # of words: a longer text has more
        return Counter((tag, tuple(a)) for tag, a in page.elements if tag not in marks)

    evil = EVIL.replace("\u2028\u2029", "")
    harmless, _ = read(make(tmp_path, "plain"))
    page, source = read(make(tmp_path, evil))
    assert structure(page) == structure(harmless)
    assert not [name for _, attributes in page.elements for name in attributes if name[:2] == "on"]
    assert source.count("</script") == 4, "the figures, the two libraries, the script"
    assert "\x00" not in source
    assert " ".join(evil.replace("\x00", "\ufffd").split()) in page.text


def run_page(folder: Path, name: str) -> Path:
    path = folder / "report.html"
    write_report(hostile(name), path)
    return path


@pytest.mark.parametrize("make", [*PAGES, pytest.param(run_page, id="run")])
def test_a_page_is_complete_and_the_same_each_time(make: MakePage, tmp_path: Path) -> None:
    page, source = read(make(tmp_path, "plain"))
    assert read(make(tmp_path, "plain"))[1] == source
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.elements:
        assert not {"src", "style"} & attributes.keys()
        href = attributes.get("href") or ""
        is_within = href[:1] == "#" and (href[1:] in ids or href.startswith("#record-"))
        assert tag == "link" or not href or is_within
        assert set((attributes.get("aria-labelledby") or "").split()) <= set(ids)
        if tag == "svg":
            assert attributes.get("aria-label") or attributes.get("aria-hidden")
    tags = Counter(tag for tag, _ in page.elements)
    assert tags["main"] == tags["h1"] == tags["header"] == tags["footer"] == 1
    policy = next(a["content"] for _, a in page.elements if "http-equiv" in a) or ""
    rules = dict(part.split(" ", 1) for part in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy
    assert "http" not in policy
    (script,) = page.scripts
    (style,) = re.findall("<style>(.*?)</style>", source, re.DOTALL)
    for text, kind in ((script, "script-src"), (style, "style-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules[kind]


def test_published_figures_stand_beside_ours(tmp_path: Path) -> None:
    """In tables and charts, where the names are the benchmark's; intervals are drawn twice."""
    config = SummacConfig(
        (str(write_jsonl(tmp_path / "t.jsonl", labelled_rows())),), ("good",), samples=20
    )
    write_result_page(summac_benchmark(config), tmp_path / "s.html", COMMAND)
    page, _ = read(tmp_path / "s.html")
    assert "SummaC-Conv, published" in page.text
    assert "rows of other splits are not comparable" in page.text
    marks = [mark for figure in page.figures for mark in figure["marks"]]
    assert sum(mark["published"] for mark in marks) == 2 * (8 + 5), (
        "frank and overall, the systems with that measure"
    )
    ours = [mark for mark in marks if not mark["published"]]
    assert len(ours) == 2 * 3
    assert all(
        mark["wide_low"] <= mark["low"] <= mark["high"] <= mark["wide_high"] for mark in ours
    )


def test_heat_map_has_a_level_a_value(tmp_path: Path) -> None:
    """The smallest is level 0 and the largest 10; what is best is said with a warning."""
    page, _ = read(grid_page(tmp_path, "plain"))
    levels = [
        a["class"] for tag, a in page.elements if tag == "td" and " h" in (a.get("class") or "")
    ]
    assert len(levels) == 2 * 3 * 9
    assert Counter(levels)["num h0"] == Counter(levels)["num h10"] == 6
    assert "Best: documents by sentence, summaries by sentence, min over the document" in page.text
    assert "3 rows left out for missing scores" in page.text
    assert page.text.index("overall") < page.text.index("a plain")


def test_a_run_is_linked_and_signed(tmp_path: Path) -> None:
    """By a relative address, from wherever the page lies; without a report it says so."""
    run = write_run(tmp_path / "a run#1", rated_rows(4), ["good"])
    scores = pl.read_parquet(run / "scores.parquet").with_columns(signature=pl.lit("good|v1|x:1"))
    scores.write_parquet(run / "scores.parquet")
    page = tmp_path / "out" / "deep" / "page.html"
    assert run_link(run, page) is None
    (run / "report.html").write_text("x")
    assert run_link(run, page) == "../../a%20run%231/report.html"
    odd = tmp_path / "javascript:alert(1)"
    odd.mkdir()
    (odd / "report.html").write_text("x")
    assert run_link(odd, tmp_path / "page.html") == "javascript%3Aalert%281%29/report.html"
    assert run_signatures([run, tmp_path], ["good", "good.half", "other"]) == [
        ("good", "good|v1|x:1"),
        ("good.half", "good|v1|x:1"),
    ]


def test_the_command_is_the_one_that_was_typed(tmp_path: Path, capsys: Any) -> None:
    run = write_run(tmp_path / "a run", rated_rows(6), ["good"])
    (run / "report.html").write_text("x")
    out = tmp_path / "o"
    typed = ["evaluate", "correlate", str(run), "--scores", "good", "--ratings", "fluency",
             "--case", "article", "--samples", "20", "--out", str(out)]  # fmt: skip
    assert main(typed) == 0
    printed = capsys.readouterr().out
    assert f"page: {out / 'correlate.html'}" in printed.replace("\n", "")
    page, _ = read(out / "correlate.html")
    assert shlex.join(["claimscore", *typed]) in page.text
    (link,) = [a["href"] for tag, a in page.elements if tag == "a" and ".html" in (a["href"] or "")]
    assert (out / (link or "").replace("%20", " ")).is_file()


def test_a_base_url_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a password."""
    import click

    from claimscore.commands.options import typed_command

    typed = "evaluate caspr --base-url http://u:secret@h --base-url=http://secret@h"
    given = [*typed.split(), "x y"]
    with click.Context(click.Command("c"), obj=given):
        assert typed_command() == "claimscore evaluate caspr --base-url ... --base-url=... 'x y'"
    with click.Context(click.Command("c")):
        assert typed_command() == "claimscore"


def test_columns_of_numbers_are_told_from_columns_of_words() -> None:
    """Only numbers stand to the right, with true minus signs; a name that ends in # keeps it."""
    rows = [("x", "-1.5 [-2, -.5]", "not set", "1e-3"), ("y", "none", "2", "-")]
    block = Block(header=("name", "mean", "prompt#", "p"), rows=rows)
    assert block.head() == ["name ", "mean#", "prompt# ", "p#"]
    assert [minus(row[1]) for row in rows] == ["−1.5 [−2, −.5]", "none"]
    assert [minus(row[3]) for row in rows] == ["1e-3", "–"]
