"""The page of `compare`: every run has its sections, and the words that differ are marked."""

from __future__ import annotations

from pathlib import Path

from claimscore.evaluation.comparison import CompareConfig
from tests.support.compared_runs import write_run
from tests.support.evaluation_pages import hostile_runs, write_compare_page
from tests.unit.report.test_report_page import Page


def page(folder: Path, runs: list[Path], **options: object) -> Page:
    config = CompareConfig(tuple(map(str, runs)), **{"samples": 20, **options})
    path = write_compare_page(config, folder / "compare.html", "claimscore compare")
    return Page(path.read_bytes().decode("utf-8"))


def test_a_section_a_run_and_its_records(tmp_path: Path):
    runs = hostile_runs(tmp_path, "x")
    found = page(tmp_path, [*runs, runs[1]], by="group")
    for title in ("Runs", "B against A", "C against A", "What differs: A and B", "B − A by group",
                  "Moved most, A to C", "Method", "Reproduce"):  # fmt: skip
        assert title in found.text
    names = [attributes.get("id") for tag, attributes in found.elements if tag == "section"]
    links = {attributes.get("href") for tag, attributes in found.elements if tag == "a"}
    assert {f"#{name}" for name in names} <= links
    assert "claim reworded" in found.text
    marked = [tag for tag, _ in found.elements if tag in ("ins", "del")]
    assert {"ins", "del"} <= set(marked)


def test_runs_without_scores_say_so(tmp_path: Path):
    runs = [write_run(tmp_path / "a", ["1"], {"ds": [1.0]}), write_run(tmp_path / "b", ["1"])]
    found = page(tmp_path, runs)
    assert "The runs share no metric." in found.text
    assert "it has no scores yet" in found.text
