"""Tables: files and run directories give the same columns; what cannot be used is named."""

import math
from pathlib import Path

import polars as pl
import pytest

from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.inputs import grid, read_table
from tests.support.rated_tables import rated_rows, write_jsonl, write_run

WANTED = ("good", "poor", "article", "system", "ratings.fluency", "fluency")


@pytest.fixture
def rows() -> list[dict]:
    return rated_rows()


def test_every_format_gives_the_same_numbers(tmp_path: Path, rows: list[dict]):
    frame = pl.DataFrame(rows)
    frame.write_parquet(tmp_path / "t.parquet")
    as_json = pl.col("ratings").struct.json_encode()
    frame.with_columns(as_json).write_csv(tmp_path / "t.csv")
    sources = [
        write_jsonl(tmp_path / "t.jsonl", rows),
        tmp_path / "t.parquet",
        tmp_path / "t.csv",
        write_run(tmp_path / "run", rows, ["good", "poor"]),
    ]
    for source in sources:
        table = read_table(str(source), WANTED)
        assert table.numbers("good").to_list() == [row["good"] for row in rows]
        assert table.numbers("fluency").to_list() == [row["ratings"]["fluency"] for row in rows]
        assert table.numbers("ratings.fluency").equals(
            table.numbers("fluency").alias("ratings.fluency")
        )
        assert table.texts("article").to_list() == [row["article"] for row in rows]


def test_a_component_of_a_metric_is_a_column(tmp_path: Path, rows: list[dict]):
    run = write_run(tmp_path / "run", rows, ["good"])
    found = read_table(str(run), ["good.half", "good.other"])
    assert set(found.numbers("good.half")) == {0.5}
    assert found.numbers("good.other").null_count() == len(rows)
    with pytest.raises(ConfigError, match="not a run directory"):
        read_table(str(tmp_path), ["a"])
    (run / "scores.parquet").unlink()
    with pytest.raises(ConfigError, match="no scores yet"):
        read_table(str(run), ["good"])


def grid_of(path: Path, *columns: str):
    return grid(read_table(str(path), [*columns, "article", "system"]), columns, "article")


def test_a_grid_has_the_rows_in_their_places(tmp_path: Path, rows: list[dict]):
    whole = grid_of(write_jsonl(tmp_path / "a.jsonl", rows), "good", "fluency")
    assert whole.arrays["good"].shape == (8, 5)
    assert whole.arrays["good"][2, 3] == rows[2 * 5 + 3]["good"]
    turned = grid_of(write_jsonl(tmp_path / "b.jsonl", rows[::-1]), "good", "fluency")
    assert (turned.arrays["good"] == whole.arrays["good"][::-1, ::-1]).all()
    part = grid_of(write_jsonl(tmp_path / "c.jsonl", rows[1:]), "good")
    assert math.isnan(part.arrays["good"][0, part.systems.index("s0")])
    assert part.first_missing() == ("good", "c0", "s0")
    assert part.without_incomplete_cases().cases == whole.cases[1:]
    twice = write_jsonl(tmp_path / "d.jsonl", [*rows, rows[7]])
    with pytest.raises(InputError, match="more than one row has case c1 and system s2"):
        grid_of(twice, "good")


@pytest.mark.parametrize(
    ("change", "column", "message"),
    [
        pytest.param({}, "better", r"no column better; there are: id, article", id="absent"),
        pytest.param({"good": "high"}, "good", "holds String, not numbers", id="text"),
        pytest.param({"good": math.nan}, "good", "NaN or infinity", id="NaN"),
        pytest.param({"good": -1e308}, "good", "a number beyond 1e", id="too large to add up"),
        pytest.param({"ratings": {"fluency": "5"}}, "fluency", "ratings must be", id="rating"),
    ],
)
def test_columns_that_cannot_be_used(tmp_path: Path, rows, change, column: str, message: str):
    rows = [{**row, **change} for row in rows]
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    with pytest.raises(InputError, match=message):
        read_table(str(path), [column]).numbers(column)
