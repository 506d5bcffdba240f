"""A run directory on a disk: the contract, its lock, a full disk."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.errors import ConfigError, StoppedEarly
from claimscore.runs import RunDirectory, scores_file
from tests.support.run_directory_contract import RunDirectoryContract
from tests.support.run_tables import claims, failures, scores


class TestOnADisk(RunDirectoryContract):
    """The contract."""

    @pytest.fixture
    def where(self, tmp_path: Path) -> Path:
        return tmp_path / "run"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory(tmp_path / "run") as opened:
        yield opened


# Opening and the lock


def test_new_folder_is_private(run: RunDirectory) -> None:
    """Inputs and answers are for their owner alone."""
    run.write_parts(0, "decompose", {"claims": claims("a")})
    for path in (run.path, run.state, run.path / "claims"):
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_second_opener_is_refused(run: RunDirectory) -> None:
    """Also one of this process; the refused opener does not break the lock."""
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"is in use by process {os.getpid()};"):
            RunDirectory(run.path).__enter__()


def test_lock_ends_with_the_block(tmp_path: Path) -> None:
    """The next run may open it."""
    for _ in range(2):
        with RunDirectory(tmp_path / "run") as directory:
            assert (directory.path / ".lock").read_text().strip() == str(os.getpid())


def test_writer_whose_folder_was_removed_stops(tmp_path: Path) -> None:
    """A run that began anew in its place has a lock of its own, and its files are left alone."""
    path, nothing = tmp_path / "run", {"failures": failures()}
    with RunDirectory(path) as directory:
        directory.write_parts(0, "decompose-a", nothing)
        shutil.rmtree(path)
        with RunDirectory(path) as second:
            second.write_parts(1, "decompose-a", nothing)
            with pytest.raises(StoppedEarly, match="removed"):
                directory.write_parts(2, "decompose-a", nothing)
            second.write_parts(3, "decompose-a", nothing)
    with RunDirectory(path) as third:
        assert (third.damaged_lines, third.chunks_with("decompose-a")) == ([], [1, 3])


def test_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    """A file is named as such."""
    (tmp_path / "run").write_text("x")
    with pytest.raises(ConfigError, match=r"run: a part of the path is a file, not a folder"):
        RunDirectory(tmp_path / "run").__enter__()


def test_leftovers_of_a_kill_are_removed(tmp_path: Path) -> None:
    """Temporary files go; half a line of events gets its end."""
    path = tmp_path / "run"
    with RunDirectory(path) as run:
        run.write_parts(0, "decompose", {"claims": claims("a")})
    (path / "claims" / ".part-000001.parquet.00.tmp").write_text("half")
    (path / "events.jsonl").write_text('{"kind": "ha')
    with RunDirectory(path) as run:
        run.event("resumed")
    assert [file.name for file in (path / "claims").iterdir()] == ["part-000000-decompose.parquet"]
    lines = (path / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[1])["kind"] == "resumed"


def test_damaged_lines_are_named_and_their_steps_undone(tmp_path: Path) -> None:
    """A reader names the line and the way out; a writer goes on without it."""
    path = tmp_path / "run"
    with RunDirectory(path) as run:
        run.check_settings({"seed": 0})
        for chunk in range(3):
            run.write_parts(chunk, "decompose", {"claims": claims("a")})
    manifest = path / ".state" / "manifest.log"
    manifest.write_bytes(manifest.read_bytes().replace(b'"chunks":[1,2,0]', b'"chunks":[1,2,1]'))
    with pytest.raises(ConfigError, match=r"manifest\.log, line 2: damaged; the same command"):
        RunDirectory.reader(path)
    with RunDirectory(path) as run:
        assert run.damaged_lines == [f"{manifest}, line 2: damaged"]
        assert run.chunks_with("decompose") == [0, 2]
    assert RunDirectory.reader(path).chunks_with("decompose") == [0, 2]


def test_an_older_run_directory_is_refused(tmp_path: Path) -> None:
    """Readers and writers say so in one clear line, and change nothing."""
    path = tmp_path / "run"
    with RunDirectory(path) as run:
        run.check_settings({"seed": 0})
    older = path / ".state" / "manifest.jsonl"
    older.write_text('{"chunk":0,"step":"records","rows":{"records":64}}\n')
    for open_it in (RunDirectory.reader, lambda where: RunDirectory(where).__enter__()):
        with pytest.raises(ConfigError, match="an older version of claimscore wrote this run"):
            open_it(path)
    assert older.exists()


# Scores


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 250), max_size=6))
def test_scores_have_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    """However the rows are cut into frames, and however often they are written."""
    edges = [0, *sorted(cuts), 250]
    frames = [scores(a, b) for a, b in itertools.pairwise(edges)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores_file, "ROW_GROUP", 100)
        with RunDirectory(tmp_path_factory.mktemp("r") / "run") as run:
            run.write_scores([scores(0, 250)])
            whole = run.storage.read("scores.parquet")
            run.write_scores(iter(frames))
            assert run.storage.read("scores.parquet") == whole
            assert pl.read_parquet(whole).equals(scores(0, 250))
            assert not (run.state / "scores").exists()


def test_scores_that_wait_to_be_written_are_few(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of them is in memory, however many there are."""
    heights = []
    concat = pl.concat

    def noted(frames: list[pl.DataFrame]) -> pl.DataFrame:
        heights.append(sum(frame.height for frame in frames))
        return concat(frames)

    monkeypatch.setattr(scores_file, "ROW_GROUP", 100)
    monkeypatch.setattr(scores_file.pl, "concat", noted)
    run.write_scores(scores(start, start + 8) for start in range(0, 400, 8))
    assert max(heights) < 20 + 8
    assert pl.read_parquet(run.path / "scores.parquet").equals(scores(0, 400))


def test_failing_scores_leave_the_old_file(run: RunDirectory) -> None:
    """A stop in the middle leaves yesterday's scores."""

    def failing() -> Iterator[pl.DataFrame]:
        yield scores(0, 3)
        raise KeyboardInterrupt

    run.write_scores([scores(0, 2)])
    with pytest.raises(KeyboardInterrupt):
        run.write_scores(failing())
    assert pl.read_parquet(run.path / "scores.parquet").height == 2
    assert not (run.state / "scores").exists()


# Refusals of the system


def test_full_disk_is_one_line(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path and the reason; the step is not finished, and is done later."""

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run.write_parts(1, "decompose", {"claims": claims("b")})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StoppedEarly, match=r"part-000000-decompose\.parquet: the disk is full"):
            run.write_parts(0, "decompose", {"claims": claims("a")})
        with pytest.raises(StoppedEarly, match=r"scores\.json: the disk is full"):
            run.write_scores([scores(0, 2)])
        with pytest.raises(StoppedEarly, match=r"summary\.json: the disk is full"):
            run.write_summary({})
    assert not run.has(0, "decompose")
    run.write_parts(0, "decompose", {"claims": claims("a")})
    (run.path / "events.jsonl").symlink_to("/dev/full")
    with pytest.raises(StoppedEarly, match=r"events\.jsonl: the disk is full"):
        run.event("x")


def test_full_disk_under_polars_is_one_line(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polars wraps the system's refusal in an error of its own; the advice is the same."""
    message = "parquet: underlying IO error: No space left on device (os error 28)"

    def refuse(*_: object, **__: object) -> None:
        raise pl.exceptions.ComputeError(message)

    run.write_scores([scores(0, 2)])
    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", refuse)
    with pytest.raises(StoppedEarly, match="parquet: the disk is full; free"):
        run.write_scores([scores(0, 3)])
    assert pl.read_parquet(run.path / "scores.parquet").height == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_permission(tmp_path: Path) -> None:
    """Named with its path."""
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="permission denied"):
        RunDirectory(tmp_path / "run").__enter__()
