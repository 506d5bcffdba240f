"""Tables that an older claimscore wrote, with fewer columns, are read with nulls."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from claimscore.errors import ConfigError
from claimscore.runs import RunDirectory
from claimscore.tables import TOKEN_SCORES
from tests.support.older_runs import forget_sums

STEP = "token_scores-a-b"


def rows(name: str, reference_index: int | None = None) -> pl.DataFrame:
    row = {"id": name, "candidate_side": "a", "reference_side": "b", "f1": 0.5}
    return TOKEN_SCORES.frame([row | {"reference_index": reference_index}])


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A run whose first chunk lacks the column `reference_index`, while the second has it."""
    folder = tmp_path / "run"
    with RunDirectory(folder) as run:
        run.check_settings({"seed": 0})
        run.write_parts(0, STEP, {"token_scores": rows("x")})
        run.write_parts(1, STEP, {"token_scores": rows("y", 3)})
    part = folder / "token_scores" / f"part-000000-{STEP}.parquet"
    pl.read_parquet(part).drop("reference_index").write_parquet(part)
    forget_sums(folder)
    return folder


def test_a_chunk_has_the_columns_of_today(older: Path) -> None:
    """`read` gives the schema, with nulls for what was not written."""
    run = RunDirectory.reader(older)
    assert run.read("token_scores", 0).equals(rows("x"))
    assert run.read("token_scores", 0).schema == pl.Schema(TOKEN_SCORES.schema)
    assert run.read("token_scores", 1).equals(rows("y", 3))


def test_old_and_new_parts_are_scanned_together(older: Path) -> None:
    """`scan` too, whichever part comes first."""
    found = RunDirectory.reader(older).scan("token_scores").collect()
    assert found.equals(pl.concat([rows("x"), rows("y", 3)]))


def test_old_and_new_steps_of_one_chunk_are_read_together(older: Path) -> None:
    """A run that is taken up again adds steps to chunks that were written before."""
    with RunDirectory(older) as run:
        run.write_parts(0, "token_scores-c", {"token_scores": rows("z", 1)})
        assert run.read("token_scores", 0).equals(pl.concat([rows("x"), rows("z", 1)]))


def test_a_column_of_another_type_is_damage(older: Path) -> None:
    """Only what is missing is filled in."""
    part = older / "token_scores" / f"part-000000-{STEP}.parquet"
    pl.read_parquet(part).with_columns(f1=pl.lit("half")).write_parquet(part)
    with RunDirectory(older) as run:
        run.write_parts(0, "token_scores-c", {"token_scores": rows("z", 1)})
        with pytest.raises(ConfigError, match="missing or damaged"):
            run.read("token_scores", 0)
