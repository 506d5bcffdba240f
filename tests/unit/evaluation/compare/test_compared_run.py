"""What cannot be compared is one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.errors import ConfigError
from claimscore.evaluation.compare.comparison import CompareConfig
from claimscore.tables import SCORES
from tests.support.compared_runs import compared, score_rows, write_run


def broken(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / "broken.parquet"
    rows = SCORES.frame(score_rows(["1", "2"], {"ds": [1.0, 2.0]}))
    if kind == "text":
        path.write_text("id,metric,value\n", encoding="utf-8")
    elif kind == "twice":
        pl.concat([rows, rows]).write_parquet(path)
    elif kind == "nan":
        rows.with_columns(value=float("nan")).write_parquet(path)
    elif kind == "column":
        rows.drop("value").write_parquet(path)
    elif kind == "type":
        rows.with_columns(value=pl.lit("x")).write_parquet(path)
    elif kind == "folder":
        path.mkdir()
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nothing", "there is no such run directory"),
        ("text", "not a Parquet file"),
        ("twice", "record 1 has two rows of ds"),
        ("nan", "metric ds holds NaN"),
        ("column", "no column value"),
        ("type", "column value holds String"),
        ("folder", "not a run directory"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path, kind: str, message: str):
    """The file is named."""
    whole = write_run(tmp_path / "a", ["1", "2"], {"ds": [1.0, 2.0]})
    path = broken(tmp_path, kind)
    with pytest.raises(ConfigError, match=message) as error:
        compared(whole, path)
    assert "broken.parquet" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": ("a",)}, "at least two"),
        ({"runs": ("a",) * 27}, "at most 26"),
        ({"samples": 0}, "--samples"),
        ({"top": -1}, "--top"),
        ({"seed": -1}, "--seed"),
        ({"threshold": 1.5}, "--threshold"),
    ],
)
def test_wrong_settings(options: dict[str, Any], message: str):
    """Refused before anything is read."""
    with pytest.raises(ConfigError, match=message):
        CompareConfig(**{"runs": ("a", "b"), **options})


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("none", "no such column; there are: many, lists"),
        ("many", "it has 101 values"),
        ("lists", "holds lists"),
    ],
)
def test_columns_that_are_no_groups(tmp_path: Path, column: str, message: str):
    """`--by` says what it needs."""
    ids = [str(number) for number in range(101)]
    columns = {"many": ids, "lists": [[number] for number in range(101)]}
    run = write_run(tmp_path / "a", ids, {"ds": [1.0] * 101}, columns=columns)
    with pytest.raises(ConfigError, match=message):
        compared(run, run, by=column)


def test_scores_too_large_to_add_up(tmp_path: Path):
    """Instead of an overflow somewhere later."""
    run = write_run(tmp_path / "a", ["1", "2"], {"ds": [1e308, -1e308]})
    with pytest.raises(ConfigError, match="metric ds holds a score beyond 1e"):
        compared(run, run)


def test_groups_of_numbers_are_in_the_order_of_numbers(tmp_path: Path):
    """2 before 10, names after numbers, records without a value last."""
    ids = [str(number) for number in range(5)]
    columns = {"stars": ["10", "2", "x", None, "-1"]}
    run = write_run(tmp_path / "a", ids, {"ds": [1.0] * 5}, columns=columns)
    found = compared(run, run, by="stars")
    assert [row.group for row in found.runs[0].groups] == ["-1", "2", "10", "x", "(none)"]
