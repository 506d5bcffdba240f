"""`run --fail-under` and `--fail-over`: what fails, what cannot be judged, what is refused."""

from pathlib import Path
from typing import Any

import pytest

import claimscore
from tests.support.command_line import Command
from tests.support.rated_tables import write_jsonl


def pairs(n: int) -> list[dict[str, Any]]:
    """Half of the words of each pair differ, but for the last one, which is the same."""
    rows = [{"summary_a": "one two three", "summary_b": "two three four"}] * (n - 1)
    return [*rows, {"summary_a": "same", "summary_b": "same"}]


@pytest.fixture
def run(tmp_path: Path, cli: Command) -> Any:
    def call(n: int, *options: object) -> Any:
        path = write_jsonl(tmp_path / f"{n}.jsonl", pairs(n))
        return cli("run", path, "--out", tmp_path / f"run{n}", "-m", "ds", *options)

    return call


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("--fail-under", "ds=60"), 4, "ds under 60: fails; mean 47.5, at most "),
        (("--fail-under", "ds=48"), 0, "ds under 48: not shown to be below; mean 47.5"),
        (("--fail-under", "ds=40"), 0, "ds under 40: passes; mean 47.5, at most "),
        (("--fail-over", "ds=30"), 4, "ds over 30: fails; mean 47.5, at least "),
        (("--fail-over", "ds=47"), 0, "; to be sure takes about "),
        (("--fail-over", "ds=47"), 0, "ds over 47: not shown to be above; mean 47.5"),
        (("--fail-under", "ds=40", "--fail-over", "ds=30"), 4, "ds over 30: fails"),
    ],
)
def test_only_a_mean_that_is_surely_beyond_fails(
    options: Any, status: int, said: str, run: Any
) -> None:
    shown = run(20, *options)
    assert shown.status == status
    lines = [line for line in shown.out.splitlines() if line.startswith("gate: ")]
    assert (len(lines), said in lines[-1]) == (len(options) // 2, True)
    as_json = run(20, *options, "--json")
    assert (as_json.status, len(as_json.json()["gates"])) == (status, len(options) // 2)
    assert ("gate: " in as_json.err) == (status == 4)
    assert "gate: " not in run(20).out


def test_a_quiet_run_prints_scores_and_gates_only(run: Any) -> None:
    shown = run(20, "--fail-under", "ds=40", "--quiet")
    words = [line.split()[0] for line in shown.out.splitlines() if line.strip(" ─")]
    assert (shown.err, words) == ("", ["metric", "ds", "gate:"])


def test_the_report_shows_the_gates(run: Any, tmp_path: Path) -> None:
    run(20, "--fail-under", "ds=60")
    assert "<p>Gate ds under 60: fails; mean 47.5, " in (tmp_path / "run20/report.html").read_text()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("gpt-4o-mini", "unknown LLM 'gpt-4o-mini'; is openai:gpt-4o-mini meant? known: builtin, "),
        ("google:x", "unknown LLM 'google'; known: builtin, "),
    ],
)
def test_an_unknown_llm_is_refused_before_the_input(
    model: str, said: str, tmp_path: Path, cli: Command
) -> None:
    shown = cli("run", tmp_path / "none.jsonl", "--out", tmp_path / "run", "--llm", model)
    assert (shown.status, said in shown.err, (tmp_path / "run").exists()) == (2, True, False)
    assert "; others: docs/how-to/other-vendors.md" in shown.err


def test_few_records_are_no_pass(run: Any, tmp_path: Path, cli: Command) -> None:
    """Refused before the work where the records are too few, else by those with scores."""
    refused = run(4, "--fail-under", "ds=10")
    said = "--fail-under ds=10: the run has 4 of the 5 records that a bound needs"
    assert (refused.status, said in refused.err, refused.out) == (2, True, "")
    assert run(4).status == 0
    rows = [*pairs(4), {"summary_a": "", "summary_b": ""}]
    path = write_jsonl(tmp_path / "null.jsonl", rows)
    shown = cli("run", path, "-o", tmp_path / "null", "-m", "ds", "--fail-under", "ds=10")
    assert shown.status == 2
    assert "gate: ds under 10: only 4 records with scores; a bound needs 5" in shown.out


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("caspr=1", "--fail-under caspr=1: the run has no metric caspr; it has: ds"),
        ("ds=101", "--fail-under ds=101: its scores are from 0 to 100\n"),
        ("ds=0", "--fail-under ds=0: its scores are from 0 to 100, never under it"),
        (
            "ds=99 --fail-over ds=100",
            "--fail-over ds=100: its scores are from 0 to 100, never over",
        ),
        ("ds", "'ds' is no metric and number, as faithfulness=0.8"),
        ("ds=much", "is no metric and number"),
        ("ds=nan", "is no metric and number"),
    ],
)
def test_a_wrong_gate_is_refused_before_anything(option: str, said: str, run: Any) -> None:
    refused = run(9, "--fail-under", *option.split())
    assert (refused.status, said in refused.err) == (2, True)
    assert "asks" not in refused.err


def test_in_python_and_for_metrics_with_options(tmp_path: Path, cli: Command) -> None:
    limits = {"fail_under": {"ds": 60.0}, "cache_dir": tmp_path, "progress": False}
    (gate,) = claimscore.evaluate(pairs(9), "ds", **limits).summary["gates"]
    assert (gate["fails"], gate["n"]) == (True, 9)
    rows = [{"summary": "one two", "source": "one two"}] * 6
    path, name = write_jsonl(tmp_path / "r.jsonl", rows), "rouge-1:against=source"
    passed = cli("run", path, "-o", tmp_path / "r", "-m", name, "--fail-under", f"{name}=0.5")
    assert (passed.status, f"{name} under 0.5: passes" in passed.out) == (0, True)
