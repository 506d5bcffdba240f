"""A process without the lock writes parts, and the one with the lock makes them count."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from claimscore.errors import ConfigError
from claimscore.runs import ChunkFiles, RunDirectory, WorkerChunk
from claimscore.tables import CLAIMS, FAILURES


def claims(*ids: str) -> pl.DataFrame:
    return CLAIMS.frame([{"id": name, "side": "a", "text": f"text of {name}"} for name in ids])


def failures(*ids: str) -> pl.DataFrame:
    return FAILURES.frame([{"id": name, "stage": "decompose", "kind": "parse"} for name in ids])


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory(tmp_path / "run") as opened:
        opened.write_parts(0, "records", {"records": pl.DataFrame({"id": ["a", "b"]})})
        opened.write_parts(0, "facts-a", {"claims": claims("a"), "failures": failures()})
        yield opened


@pytest.fixture
def worker(run: RunDirectory) -> WorkerChunk:
    return WorkerChunk(run.path, 0, run.finished(0))


@pytest.mark.parametrize("kind", ["writer", "worker"])
def test_chunk_files_read_what_they_wrote(
    run: RunDirectory, worker: WorkerChunk, kind: str
) -> None:
    """Both kinds read what was finished before and what they wrote, steps in sorted order."""
    files: ChunkFiles = worker if kind == "worker" else run.chunk(0)
    assert files.chunk == 0
    assert files.read("records")["id"].to_list() == ["a", "b"]
    files.write("decompose-a", {"claims": claims("x", "y"), "failures": failures()})
    files.write("decompose-b", {"claims": claims(), "failures": failures("z")})
    assert files.read("claims")["id"].to_list() == ["x", "y", "a"]
    assert files.read("failures")["id"].to_list() == ["z"]
    assert files.read("nli").is_empty()


def test_what_a_worker_wrote_counts_when_it_is_made_to(
    run: RunDirectory, worker: WorkerChunk
) -> None:
    """Before, nobody sees it; then the writer and every reader do, and no file was written."""
    worker.write("decompose-a", {"claims": claims("x", "y"), "failures": failures()})
    part = run.path / "claims" / "part-000000-decompose-a.parquet"
    found = (2, part.stat().st_size, zlib.crc32(part.read_bytes()))
    assert worker.written == {"decompose-a": {"claims": found, "failures": 0}}
    before = part.stat().st_mtime_ns
    assert run.read("claims", 0).equals(claims("a"))
    for step, rows in worker.written.items():
        run.finish_written(0, step, rows)
    run.check_settings({"seed": 0})
    for view in (run, RunDirectory.reader(run.path)):
        assert view.has(0, "decompose-a")
        assert view.read("claims", 0)["id"].to_list() == ["x", "y", "a"]
        assert view.counts() == {"records": 2, "claims": 3, "failures": 0}
    assert part.stat().st_mtime_ns == before


def test_a_step_that_never_counted_is_written_over(run: RunDirectory, worker: WorkerChunk) -> None:
    """Also by nothing: what a dead worker left is gone when the step is done again."""
    worker.write("decompose-a", {"claims": claims("x"), "failures": failures("y")})
    again = WorkerChunk(run.path, 0, run.finished(0))
    assert again.read("claims").equals(claims("a"))
    assert again.read("failures").is_empty()
    again.write("decompose-a", {"claims": claims("z"), "failures": failures()})
    run.finish_written(0, "decompose-a", again.written["decompose-a"])
    assert run.read("claims", 0)["id"].to_list() == ["z", "a"]
    assert run.scan("failures").collect().is_empty()
    assert not (run.path / "failures" / "part-000000-decompose-a.parquet").exists()


def test_a_worker_says_which_part_is_missing(run: RunDirectory, worker: WorkerChunk) -> None:
    """As the writer does."""
    (run.path / "claims" / "part-000000-facts-a.parquet").unlink()
    with pytest.raises(ConfigError, match=r"part-000000-facts-a\.parquet: missing"):
        worker.read("claims")


def test_bugs_of_workers_are_caught(run: RunDirectory, worker: WorkerChunk) -> None:
    """A frame of another schema is not written; records belong to the step that wrote them."""
    with pytest.raises(ValueError, match="claims: schema"):
        worker.write("decompose-a", {"claims": pl.DataFrame({"id": ["a"]})})
    assert worker.written == {}
    with pytest.raises(ValueError, match="was written by step records"):
        run.finish_written(0, "other", {"records": 2})
