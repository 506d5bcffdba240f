"""The page of `compare`: everything of others is text, every run has its sections."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimscore.evaluation.compare.comparison import CompareConfig, compare
from claimscore.report.evaluation.compare_page import MAX_FLIPS, write_compare_page
from tests.support.compared_runs import write_run
from tests.support.evaluation_pages import hostile_runs
from tests.unit.report.test_report_page import Page

E, N, C = "entailment", "neutral", "contradiction"


def page(folder: Path, runs: list[Path], command: str = "claimscore compare", **options) -> Page:
    path = folder / "compare.html"
    config = CompareConfig(tuple(map(str, runs)), **{"samples": 20, **options})
    write_compare_page(compare(config), path, command)
    return Page(path.read_bytes().decode("utf-8"))


def test_a_section_a_run_and_its_records(tmp_path: Path):
    runs = hostile_runs(tmp_path, "x")
    found = page(tmp_path, [*runs, runs[1]], by="group")
    names = [attributes.get("id") for tag, attributes in found.elements if tag == "section"]
    each = ("verdict", "settings", "means", "groups", "claims", "moved")
    assert names == [*(f"{part}-{run}" for run in "bc" for part in each), "notes", "again"]
    links = {attributes.get("href") for tag, attributes in found.elements if tag == "a"}
    assert {f"#{name}" for name in names} <= links
    for words in ("entailment contradiction (reworded)", "1 claim is the same in both", "reworded"):
        assert words in found.text
    marked = [tag for tag, _ in found.elements if tag in ("ins", "del")]
    assert {"ins", "del"} <= set(marked)


def test_runs_without_scores_say_so(tmp_path: Path):
    runs = [write_run(tmp_path / "a", ["1"], {"ds": [1.0]}), write_run(tmp_path / "b", ["1"])]
    found = page(tmp_path, runs)
    assert "The runs share no metric." in found.text
    assert "it has no scores yet" in found.text


@pytest.mark.parametrize("n", [MAX_FLIPS, MAX_FLIPS + 1])
def test_flipped_labels_past_the_cap_are_counted(tmp_path: Path, n: int):
    claims = {("1", "a"): [f"claim {number}" for number in range(n)], ("1", "b"): ["other"]}
    runs = [
        write_run(
            tmp_path / name,
            ["1"],
            {"caspr": [value]},
            claims=claims,
            labels={("1", "a", number, "b", 0): label for number in range(n)},
        )
        for name, value, label in (("a", 1.0, E), ("b", 2.0, C))
    ]
    found = page(tmp_path, runs)
    assert f"{n} labels flipped" in found.text
    assert (f"The first {MAX_FLIPS} are shown" in found.text) == (n > MAX_FLIPS)
