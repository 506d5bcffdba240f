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
    run.write_parts(0, "decompose", {"claims": claims("a")})
    for path in (run.path, run.state, run.path / "claims"):
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_second_opener_is_refused(run: RunDirectory) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"is in use by process {os.getpid()};"):
            RunDirectory(run.path).__enter__()


def test_writer_whose_folder_was_removed_stops(tmp_path: Path) -> None:
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
        assert (third.manifest.damaged, third.manifest.chunks_with("decompose-a")) == ([], [1, 3])


def test_leftovers_of_a_kill_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunDirectory(path) as run:
        run.write_parts(0, "decompose", {"claims": claims("a")})
    ours = ("claims/.part-000001-decompose.parquet", ".scores.csv", ".state/.manifest.log")
    for name in ours:
        (path / f"{name}.0a1b2c3d.tmp").write_text("half")
    (path / "events.jsonl").write_text('{"kind": "ha')
    with RunDirectory(path) as run:
        run.event("resumed")
    assert not list(path.rglob("*.tmp"))
    lines = (path / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[1])["kind"] == "resumed"


def test_temporary_files_of_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunDirectory(path) as run:
        run.write_parts(0, "decompose", {"claims": claims("a")})
    theirs = (".mine.tmp", ".mine.txt.0a1b2c3d.tmp", "claims/.mydraft.tmp", ".scores.csv.mine.tmp")
    for name in theirs:
        (path / name).write_text("mine")
    (path / ".folder.tmp").mkdir()
    (path / ".scores.csv.0a1b2c3d.tmp").mkdir()
    (path / ".run.toml.0a1b2c3d.tmp").symlink_to(path / ".mine.tmp")
    before = sorted(path.rglob("*.tmp"))
    with RunDirectory(path) as run:
        run.event("resumed")
    assert sorted(path.rglob("*.tmp")) == before


def test_damaged_lines_are_named_and_their_steps_undone(tmp_path: Path) -> None:
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
        assert run.manifest.damaged == [f"{manifest}, line 2: damaged"]
        assert run.manifest.chunks_with("decompose") == [0, 2]
    assert RunDirectory.reader(path).manifest.chunks_with("decompose") == [0, 2]


# Scores


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 250), max_size=6))
def test_scores_have_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
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


def test_failing_scores_leave_the_old_file(run: RunDirectory) -> None:
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
    assert not run.manifest.has(0, "decompose")
    run.write_parts(0, "decompose", {"claims": claims("a")})
    (run.path / "events.jsonl").symlink_to("/dev/full")
    with pytest.raises(StoppedEarly, match=r"events\.jsonl: the disk is full"):
        run.event("x")


def test_full_disk_under_polars_is_one_line(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "parquet: underlying IO error: No space left on device (os error 28)"

    def refuse(*_: object, **__: object) -> None:
        raise pl.exceptions.ComputeError(message)

    run.write_scores([scores(0, 2)])
    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", refuse)
    with pytest.raises(StoppedEarly, match="parquet: the disk is full; free"):
        run.write_scores([scores(0, 3)])
    assert pl.read_parquet(run.path / "scores.parquet").height == 2
