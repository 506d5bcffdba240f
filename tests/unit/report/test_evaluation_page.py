"""The pages of evaluations: what is markup, what is text, what is linked, what is said."""

import base64
import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claimscore.cli import main
from claimscore.evaluation.comparison import CompareConfig
from claimscore.evaluation.result import Mark, Section
from claimscore.report import write_report
from claimscore.report.evaluation_page import write_evaluation_page
from claimscore.report.html_page import MAX_MARKS
from tests.support.compared_runs import write_run as write_scores
from tests.support.evaluation_pages import COMMAND, PAGES, hostile_runs, write_compare_page
from tests.support.hostile_run import EVIL, hostile
from tests.support.rated_tables import rated_rows, write_run
from tests.support.report_pages import Page


def read(path: Path) -> tuple[Page, str]:
    source = path.read_bytes().decode("utf-8")
    return Page(source), source


MakePage = Callable[[Path, str], Path]


@pytest.mark.parametrize("make", PAGES)
def test_hostile_names_make_no_element_and_no_attribute(make: MakePage, tmp_path: Path) -> None:
    def structure(page: Page) -> Counter[tuple[str, tuple[str, ...]]]:
        return Counter((tag, tuple(a)) for tag, a in page.elements)

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


def test_the_command_is_the_one_that_was_typed(tmp_path: Path, capsys: Any) -> None:
    run = write_run(tmp_path / "a run", rated_rows(6), ["good"])
    out = tmp_path / "o"
    typed = ["evaluate", "correlate", str(run), "--scores", "good", "--ratings", "fluency",
             "--case", "article", "--samples", "20", "--out", str(out)]  # fmt: skip
    assert main(typed) == 0
    printed = capsys.readouterr().out
    assert f"page: {out / 'correlate.html'}" in printed.replace("\n", "")
    page, _ = read(out / "correlate.html")
    assert shlex.join(["claimscore", *typed]) in page.text


def test_a_base_url_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a password."""
    import click

    from claimscore.commands.options import typed_command

    typed = "evaluate support --base-url http://u:secret@h --base-url=http://secret@h"
    given = [*typed.split(), "x y"]
    with click.Context(click.Command("c"), obj=given):
        assert typed_command() == "claimscore evaluate support --base-url ... --base-url=... 'x y'"
    with click.Context(click.Command("c")):
        assert typed_command() == "claimscore"


def test_a_comparison_has_a_section_a_run(tmp_path: Path) -> None:
    runs = hostile_runs(tmp_path, "x")
    config = CompareConfig((str(runs[0]), str(runs[1]), str(runs[1])), by="group", samples=20)
    page, _ = read(write_compare_page(config, tmp_path / "compare.html", COMMAND))
    for words in ("B against A", "C against A", "What differs: A and B", "B − A by group",
                  "Moved most, A to C", "claim reworded"):  # fmt: skip
        assert words in page.text


def test_runs_without_scores_say_so(tmp_path: Path) -> None:
    runs = [write_scores(tmp_path / "a", ["1"], {"ds": [1.0]}), write_scores(tmp_path / "b", ["1"])]
    config = CompareConfig(tuple(map(str, runs)), samples=20)
    page, _ = read(write_compare_page(config, tmp_path / "compare.html", COMMAND))
    assert "The runs share no metric." in page.text
    assert "it has no scores yet" in page.text


def _page(folder: Path, *sections: Section) -> Page:
    write_evaluation_page(folder / "p.html", "T", COMMAND, "x", sections)
    return read(folder / "p.html")[0]


def test_columns_of_numbers_are_told_from_columns_of_words(tmp_path: Path) -> None:
    """Only numbers stand to the right, with true minus signs; a name that ends in # keeps it."""
    rows = [("x", "-1.5 [-2, -.5]", "not set", "1e-3"), ("y", "none", "2", "-")]
    page = _page(tmp_path, Section("S", ("name", "mean", "prompt#", "p"), rows))
    heads = [attributes.get("class") for tag, attributes in page.elements if tag == "th"]
    assert heads[:4] == [None, "num", None, "num"]
    for cell in ("prompt#", "−1.5", "[−2, −.5]", "1e-3", "–"):
        assert cell in page.text


def test_charts_say_in_words_what_they_show_and_what_they_leave_out(tmp_path: Path) -> None:
    marks = [Mark("a", None, None, None, "none"), Mark("b", -0.5, -1.0, 0.0, "-0.50")]
    many = [Mark(f"s {n}", 0.5, None, None, "0.5") for n in range(MAX_MARKS + 5)]
    page = _page(tmp_path, Section("S", charts={"t": marks, "u": many}))
    first, second = page.figures
    assert first["description"] == "a none; b −0.50"
    assert len(second["marks"]) == MAX_MARKS
    assert f"The first {MAX_MARKS} of {MAX_MARKS + 5}" in page.text
