"""`claimscore evaluate ...`: what is printed and written, and the exit codes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from claimscore.cli import main
from tests.support.rated_tables import labelled_rows, rated_rows, write_jsonl, write_run

ROOT = Path(__file__).parents[3]
Evaluate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def evaluate(capsys: pytest.CaptureFixture[str]) -> Evaluate:
    """A call of the command: exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main(["evaluate", *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def rated(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "rated.jsonl", rated_rows(20))


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "labelled.jsonl", labelled_rows())


CORRELATE = ("--scores", "good,poor", "--ratings", "fluency", "--case", "article", "--samples", 50)


def test_correlate_writes_tables_and_a_page(evaluate: Evaluate, rated: Path, tmp_path: Path):
    """Parquet and CSV with the same rows, Markdown with the printed ones."""
    out = tmp_path / "a" / "out"
    assert evaluate("correlate", rated, *CORRELATE, "--out", out)[0] == 0
    tables = {f"{table}.{end}" for table in ("correlations", "ranks") for end in ("csv", "parquet")}
    assert {path.name for path in out.iterdir()} == {"correlate.md", "correlate.html", *tables}
    frame = pl.read_parquet(out / "correlations.parquet")
    assert frame.height == 4
    assert pl.read_csv(out / "correlations.csv")["value"].to_list() == frame["value"].to_list()
    page = (out / "correlate.md").read_text(encoding="utf-8")
    assert "| score | fluency | average rank |" in page
    assert f"{frame['value'][0]:.4f}" in page


def test_correlate_gives_the_same_object_for_a_file_and_a_run(
    evaluate: Evaluate, rated: Path, tmp_path: Path
):
    code, text, _ = evaluate("correlate", rated, *CORRELATE, "--json")
    found = json.loads(text)
    assert (code, found["cases"], found["systems"], found["left_out"]) == (0, 20, 5, 0)
    assert {row["score"] for row in found["correlations"]} == {"good", "poor"}
    run = write_run(tmp_path / "run", rated_rows(20), ["good", "poor"])
    assert evaluate("correlate", run, *CORRELATE, "--json")[1] == text


def test_the_page_of_the_docs_runs(evaluate: Evaluate, monkeypatch, tmp_path: Path):
    """Every command on the examples, as it stands in docs/reference/evaluation.md."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "reference/evaluation.md").read_text(encoding="utf-8")
    commands = re.findall(r"^claimscore evaluate (.* examples/.*)$", page, re.MULTILINE)
    assert commands
    for command in commands:
        code, text, error = evaluate(*shlex.split(command, comments=True))
        assert (code, error) == (0, ""), command
        assert text
