"""Failures are counted by stage and kind, whatever their number."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimscore.pipeline.scoring import failed, failures_by_kind
from claimscore.runs import RunDirectory
from claimscore.tables import FAILURES


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Two chunks: `b` failed twice in one way, `a` in another, `c` in both."""
    rows = [
        [("b", "facts", "parse", "b1"), ("b", "facts", "parse", "b2")],
        [("c", "facts", "parse", "c"), ("c", "decompose", "filter", "c"),
         ("a", "decompose", "filter", "a")],
    ]  # fmt: skip
    with RunDirectory(tmp_path / "run") as directory:
        directory.check_settings({"seed": 0})
        for chunk, of_chunk in enumerate(rows):
            names = ("id", "stage", "kind", "message")
            frame = FAILURES.frame([dict(zip(names, row, strict=True)) for row in of_chunk])
            directory.write_parts(chunk, "facts-source", {"failures": frame})
    return RunDirectory.reader(tmp_path / "run")


def test_failures_with_an_example_each(run: RunDirectory) -> None:
    """The first message of the first id; a record counts once."""
    found = failed(run)
    assert found.records == 3
    assert found.by_kind == [
        {"stage": "decompose", "kind": "filter", "count": 2, "example": "a"},
        {"stage": "facts", "kind": "parse", "count": 3, "example": "b1"},
    ]


def test_failures_for_status(run: RunDirectory) -> None:
    """The same counts, without the messages."""
    assert failures_by_kind(run) == [
        {"stage": "decompose", "kind": "filter", "count": 2},
        {"stage": "facts", "kind": "parse", "count": 3},
    ]


def test_a_run_without_failures(tmp_path: Path) -> None:
    """Nothing, and no error."""
    with RunDirectory(tmp_path / "run") as directory:
        directory.check_settings({"seed": 0})
        assert failed(directory) == (0, [])
        assert failures_by_kind(directory) == []
