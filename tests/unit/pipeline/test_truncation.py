"""What a run says at its end of inputs that were cut."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from claimscore.console.result import print_result
from claimscore.metrics import catalogue
from claimscore.pipeline.scoring import truncations
from claimscore.runs import RunDirectory
from claimscore.tables import NLI

STEP = "nli-a-b"


def rows(name: str, *flags: bool | None) -> pl.DataFrame:
    return NLI.frame([{"id": name, "truncated": flag} for flag in flags])


def test_rows_and_records_are_counted_for_each_metric(tmp_path: Path) -> None:
    """Rows that do not tell do not count."""
    folder = tmp_path / "run"
    (metric,) = catalogue(()).load_all(("caspr",))
    (step,) = {need.step for need in metric.requires.passes}
    with RunDirectory(folder) as run:
        run.check_settings({"seed": 0})
        run.write_parts(
            0, step, {"nli": pl.concat([rows("x", True, True, False), rows("y", None)])}
        )
        run.write_parts(1, step, {"nli": rows("z", True)})
        run.write_parts(2, "nli-b-c", {"nli": rows("w", True)})
    assert truncations(RunDirectory.reader(folder), [metric]) == {
        "caspr": {"rows": 3, "records": 2}
    }


def test_a_run_without_cut_inputs_says_nothing(tmp_path: Path) -> None:
    """No line for what did not happen."""
    metrics = catalogue(()).load_all(("caspr",))
    with RunDirectory(tmp_path / "run") as run:
        run.check_settings({"seed": 0})
        run.write_parts(0, STEP, {"nli": rows("x", False)})
        assert truncations(run, metrics) == {}


def test_the_end_of_a_run_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With metric, inputs and records; summaries of older runs have no such key."""
    summary = {
        "metrics": {},
        "records": {"total": 2, "done": 2, "failed": 0},
        "failures": [],
        "last_call": {
            **{"requests": 0, "usd": 0, "cache_hits": 0, "nli_pairs": 4, "seconds": 1.0},
        },
    }
    print_result(summary, "out")
    assert "token limit" not in capsys.readouterr().out
    print_result(summary | {"truncated": {"caspr": {"rows": 3, "records": 1}}}, "out")
    assert "caspr: the model read 3 of its inputs, in 1 record, only up to" in (
        capsys.readouterr().out
    )
