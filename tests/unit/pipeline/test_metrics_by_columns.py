"""A run without `--metrics`: the columns of the first record choose."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Command
from tests.support.rated_tables import write_jsonl

PAIR = {"summary_a": "A.", "summary_b": "B."}


@pytest.mark.parametrize(
    ("record", "options", "said"),
    [
        (PAIR, (), "summary_a, summary_b: caspr, ds, bs-inverse"),
        ({"summary": "A.", "source": "B."}, (), "summary, source: faithfulness"),
        ({"summary": "A.", "sources": ["B."]}, (), "summary, source: faithfulness"),
        ({"summary": "A.", "references": "B."}, (), "summary, references: rouge-1, rouge-l, "),
        (
            {"summary": "A.", "references": "B.", "source": "C."},
            (),
            "summary, source, references: faithfulness, rouge-1, rouge-l, bertscore",
        ),
        (
            {"article": "A.", "text": "B."},
            ("--columns", "source=article,summary=text"),
            "summary, source: faithfulness",
        ),
        ({"summary": "A."}, ("--tasks", "decompose"), None),
        (PAIR, ("--metrics", "ds"), None),
    ],
)
def test_the_columns_choose(
    record: dict[str, Any], options: Any, said: str | None, tmp_path: Path, cli: Command
) -> None:
    path = write_jsonl(tmp_path / "r.jsonl", [record])
    shown = cli("estimate", path, *options, "--json").json()["assumptions"]
    line = next((note for note in shown if note.startswith("metrics")), None)
    assert line == said or (line or "").startswith(f"metrics, by the columns {said}")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            {"article": "A.", "highlights": "B."},
            "(needed by faithfulness); the record has: article, highlights; is "
            "--columns summary=highlights,source=article meant?",
        ),
        ({"summary_a": "A.", "summry_b": "B."}, "is --columns summary_b=summry_b meant?"),
        ({"x": "A."}, "no columns summary, source (needed by faithfulness)"),
    ],
)
def test_columns_that_fit_none_are_told_what_is_lacking(
    record: dict[str, Any], said: str, tmp_path: Path, cli: Command
) -> None:
    path = write_jsonl(tmp_path / "r.jsonl", [record])
    refused = cli("run", path, "--out", tmp_path / "run")
    assert (refused.status, said in refused.err) == (2, True)


def test_the_line_and_the_same_command_again(tmp_path: Path, cli: Command) -> None:
    """Standard input is read once; what is named first is asked of the folder, too."""
    rows = [{"summary": "A b.", "references": "A b."}]
    path, out = write_jsonl(tmp_path / "r.jsonl", rows), tmp_path / "run"
    cli("run", path, "--out", out, "--metrics", "rouge-2")
    cli("score", out, "--metrics", "rouge-1")
    shown = cli("run", path, "--out", out, "--metrics", "rouge-l", "--json").json()
    assert list(shown["metrics"]) == ["rouge-2", "rouge-1", "rouge-l"]
