"""Chunks are scored in groups, and the groups leave no trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from claimscore.errors import ConfigError
from claimscore.metrics import load_metric
from claimscore.pipeline import scoring
from claimscore.pipeline.scoring import chunk_groups, score_run
from claimscore.runs import RunDirectory
from claimscore.stats.bootstrap import RunningMean
from claimscore.tables import CLAIMS

CHUNKS = (("0", "1"), ("2",), ("3", "4"), ("5", "6"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    """Two records a chunk; those of the second chunk have no claims."""
    with RunDirectory(tmp_path / "run") as directory:
        directory.check_settings({"records": {"count": 7}, "chunk_records": 2})
        for chunk, ids in enumerate(CHUNKS):
            records = [{"id": i, "summary_a": f"one {i}", "summary_b": "one two"} for i in ids]
            directory.write_parts(chunk, "records", {"records": pl.DataFrame(records)})
            rows: list[dict[str, object]] = [{"id": i, "side": "a"} for i in ids]
            claims = CLAIMS.frame(rows if chunk != 1 else [])
            directory.write_parts(chunk, "decompose-a-b", {"claims": claims})
        yield directory


def groups(run: RunDirectory, monkeypatch: pytest.MonkeyPatch, **most: int) -> list[list[int]]:
    for name, value in most.items():
        monkeypatch.setattr(scoring, f"SCORED_{name.upper()}", value)
    return list(chunk_groups(run))


def test_groups_hold_so_many_records_and_rows(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk alone may be more than that."""
    assert groups(run, monkeypatch) == [[0, 1, 2, 3]]
    assert groups(run, monkeypatch, records=4) == [[0, 1], [2, 3]]
    assert groups(run, monkeypatch, records=1) == [[0], [1], [2], [3]]
    assert groups(run, monkeypatch, records=100, rows=5) == [[0, 1], [2], [3]]


def test_scores_are_the_same_in_any_groups(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes and the same summary."""
    metrics = (load_metric("ds"), load_metric("caspr"))
    found = []
    for most in (1, 4096):
        monkeypatch.setattr(scoring, "SCORED_RECORDS", most)
        summary = score_run(run, metrics, {}, 0)
        found.append((summary, (run.path / "scores.parquet").read_bytes()))
    assert found[0] == found[1]
    scores = pl.read_parquet(run.path / "scores.parquet")
    assert scores["id"].to_list() == [str(i) for i in range(7) for _ in metrics]
    assert scores["metric"].to_list() == ["ds", "caspr"] * 7
    assert scores.filter(metric="ds")["value"].null_count() == 0
    assert scores.filter(metric="caspr")["reason"].unique().sort().to_list() == [
        "no claims in summary_a",
        "no claims in summary_b",
    ]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        pytest.param([], "no record has a value", id="none"),
        pytest.param([75.0], "fewer than 5 records have a value", id="one"),
        pytest.param([1.0, 2.0, 3.0, 6.0], "fewer than 5 records have a value", id="four"),
        pytest.param([1.0, 2.0, 3.0, 4.0, 5.0], None, id="five"),
        pytest.param([3.0] * 5, None, id="five equal ones"),
    ],
)
def test_a_mean_of_too_few_values_has_no_interval(values: list[float], reason: str | None) -> None:
    """The mean is given, the bounds are null, and the summary says why."""
    running = RunningMean()
    running.add(values)
    summary = scoring._summary(running, Counter(), 0)
    assert summary["n"] == len(values)
    assert summary["mean"] == (sum(values) / len(values) if values else None)
    assert summary["no_interval"] == reason
    bounds = [summary[name] for name in ("half_width", "low", "high")]
    assert [bound is None for bound in bounds] == [reason is not None] * 3


def test_a_table_of_several_chunks_keeps_their_order(run: RunDirectory) -> None:
    """Chunks without rows have none."""
    assert run.read("claims", 3, 1, 0)["id"].to_list() == ["5", "6", "0", "1"]
    assert run.read("claims", 1).is_empty()


def test_a_damaged_part_among_several_is_named(run: RunDirectory) -> None:
    """Not the others."""
    damaged = run.path / "claims" / "part-000002-decompose-a-b.parquet"
    damaged.write_bytes(b"nothing")
    with pytest.raises(ConfigError, match=r"part-000002-decompose-a-b\.parquet: damaged"):
        run.read("claims", 0, 2, 3)
