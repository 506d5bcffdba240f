"""What `compare` says first: which run is better, how surely, and what else in a few lines."""

from pathlib import Path
from typing import Any

import pytest

from claimscore.console import table
from tests.support.command_line import Command
from tests.support.compared_runs import write_run

IDS = [f"d{number:036}" for number in range(20)]
GOOD = [1.0] * 18 + [0.0] * 2
BAD = [0.5, 0.0] * 10


@pytest.fixture
def systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two systems' summaries of the same sources: all but the last five differ."""
    monkeypatch.chdir(tmp_path)
    for name, values in (("a", GOOD), ("b", BAD)):
        texts = [f"Text {n} of {name if n < 15 else 'both'}." for n in range(20)]
        claims = {(id, "summary"): [text] for id, text in zip(IDS, texts, strict=True)}
        scores: Any = {"faithfulness": values, "rouge-1": BAD, "mine": values}
        settings = {"records": {"count": 20, "digest": name * 64}}
        columns = {"summary": texts, "kind": ["x", "y"] * 10}
        write_run(Path(name), IDS, scores, claims=claims, columns=columns, settings=settings)
    return "a", "b"


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_sentence_says_which_run_is_better(order: Any, systems: Any, cli: Command) -> None:
    """From both sides the same, direction and interval understood."""
    shown = cli("compare", *order)
    first, others, moved, differs, last = shown.out.splitlines()
    assert first.startswith(
        "a is more faithful than b: faithfulness 0.90 against 0.25, difference 0.65 (0."
    )
    assert first.endswith("), 20 records; surely more than chance")
    verdict, mine = ("lower", "−0.65") if order[1] == "b" else ("higher", "+0.65")
    assert others == f"other metrics in {order[1]}, {verdict}: mine {mine}; no change: rouge-1"
    assert moved.startswith(f"records in {order[1]} by faithfulness: ")
    assert differs == f"{order[1]} differs in column summary (15 of 20 records)"
    assert last == "all tables: --full; as a page: --html FILE"


def test_of_other_texts_no_claims_are_compared(systems: Any, cli: Command) -> None:
    full = cli("compare", *systems, "--samples", 100, "--full").out
    assert "Claims of the 5 equal records, A to B" in full
    assert "Text 1 of a" not in full
    assert "aaaa" not in full, "a digest says nothing that the columns do not"
    (run,) = cli("compare", *systems, "--samples", 100, "--json").json()["runs"]
    assert (run["n_equal"], run["changes"]["claims summary"]) == (5, {"same": 5})


def test_tables_fit_a_terminal_and_stay_tables(
    systems: Any, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "terminal_width", lambda: 80)
    full = cli("compare", *systems, "--samples", 100, "--full", "--by", "kind").out
    assert max(map(len, full.splitlines())) <= 80
    assert "…" not in full
    assert "faithfulness: " not in full.partition("Moved most")[2], "a row as a sentence"
    rows = [line.split() for line in full.splitlines()]
    assert ["faithfulness", "20", "0.9000", "0.2500"] in [row[:4] for row in rows]


def test_what_may_be_chance_and_what_was_not_compared(tmp_path: Path, cli: Command) -> None:
    a = write_run(tmp_path / "a", IDS, {"faithfulness": GOOD, "ds": [None] * 3 + GOOD[3:]})
    b = write_run(tmp_path / "b", IDS[:19], {"faithfulness": [0.0, *GOOD[1:19]]})
    lines = cli("compare", a, b, "--samples", 100).out.splitlines()
    start = f"no difference in faithfulness is shown: {a} 0.95, {b} 0.89, difference −0.05 ("
    assert lines[0].startswith(start)
    assert lines[0].endswith("19 records; it may be chance (about 152 would show it)")
    assert "not compared: 1 records of one run alone" in lines
    few = write_run(tmp_path / "few", IDS[:3], {"faithfulness": [1.0, 0.5, 0.0]})
    said = cli("compare", a, few).out.splitlines()[0]
    assert said == "nothing can be said, fewer than 5 records: faithfulness"


def test_records_without_a_score_are_counted_by_run(tmp_path: Path, cli: Command) -> None:
    a = write_run(tmp_path / "a", IDS, {"ds": [None] * 2 + GOOD[2:], "rouge-1": GOOD})
    b = write_run(tmp_path / "b", IDS, {"ds": [*GOOD[:19], None], "rouge-1": [*GOOD[:19], None]})
    lines = cli("compare", a, b, "--samples", 100).out.splitlines()
    said = f"not compared: up to 2 records have no score in {a}; 1 record has no score in {b}"
    assert said in lines


def test_other_code_of_an_own_metric_is_named(tmp_path: Path, cli: Command) -> None:
    """With settings that are equal, as both files of code are called the same."""
    a = write_run(tmp_path / "a", IDS, {"mine": GOOD}, signature="v1|file:d3ec")
    b = write_run(tmp_path / "b", IDS, {"mine": BAD}, signature="v1|file:2eee")
    lines = cli("compare", a, b, "--samples", 100).out.splitlines()
    assert f"{b} differs in code of mine (d3ec, 2eee)" in lines
    assert "no setting differs" not in cli("compare", a, b, "--samples", 100, "--full").out


def test_what_changes_scores_is_named_first(tmp_path: Path, cli: Command) -> None:
    """And not the metrics and tasks, which what was asked for and the scores say."""
    judge = {"verifier": "nli", "calibration": "none"}
    settings: Any = {"metrics": ["ds"], "tasks": [], "texts": {"units": "claims"}, "support": judge}
    a = write_run(tmp_path / "a", IDS, {"ds": GOOD}, settings={"additive": settings})
    settings = {
        **{"metrics": ["ds", "mine"], "tasks": ["decompose"], "texts": {"units": "sentences"}},
        **{"support": {"verifier": "nli", "calibration": "37201", "threshold": 0.93}},
    }
    b = write_run(tmp_path / "b", IDS, {"ds": GOOD}, settings={"additive": settings})
    lines = cli("compare", a, b, "--samples", 100).out.splitlines()
    named = "support.calibration (none, 37201), support.threshold (not set, 0.93)"
    assert f"{b} differs in {named} and 1 more" in lines


def test_groups_that_are_asked_for_are_shown_at_once(systems: Any, cli: Command) -> None:
    shown = cli("compare", *systems, "--by", "kind", "--samples", 100).out
    assert "B − A by kind" in shown
    assert "Method" not in shown
