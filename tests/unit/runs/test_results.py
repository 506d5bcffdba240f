"""Scores, summary and events of a run; and what happens where the system refuses to write."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.errors import ConfigError, StoppedEarly
from claimscore.runs import RunDirectory
from claimscore.runs import scores as scores_file
from claimscore.tables import CLAIMS, SCORES


def claims(*ids: str) -> pl.DataFrame:
    return CLAIMS.frame([{"id": name, "side": "a", "text": f"text of {name}"} for name in ids])


def scores(start: int, stop: int) -> pl.DataFrame:
    return SCORES.frame(
        [
            {"id": f"r{i}", "metric": "caspr", "value": i / 7, "components": f'{{"n": {i}}}'}
            for i in range(start, stop)
        ]
    )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory(tmp_path / "run") as opened:
        yield opened


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
            written = run.path / "scores.parquet"
            run.write_scores([scores(0, 250)])
            whole = digest(written)
            run.write_scores(iter(frames))
            assert digest(written) == whole
            assert pl.read_parquet(written).equals(scores(0, 250))
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


def test_no_scores_are_an_empty_table(run: RunDirectory) -> None:
    """The file is there with its schema."""
    run.write_scores([])
    assert pl.read_parquet(run.path / "scores.parquet").equals(SCORES.empty())


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


def test_summary_is_json(run: RunDirectory) -> None:
    """Read back it is the same; a NaN is a bug, for no JSON reader takes it."""
    run.write_summary({"mean": {"caspr": 0.25}, "n": 3})
    assert json.loads((run.path / "summary.json").read_text()) == {"mean": {"caspr": 0.25}, "n": 3}
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.write_summary({"mean": float("nan")})


def test_events_have_a_time(run: RunDirectory) -> None:
    """One line an event, in UTC."""
    run.event("started", chunks=3, path=run.path)
    run.event("stopped")
    first, second = map(json.loads, (run.path / "events.jsonl").read_text().splitlines())
    assert (first["kind"], first["chunks"], first["path"]) == ("started", 3, str(run.path))
    assert second["time"].endswith("+00:00")


# What the system refuses


def test_full_disk_is_one_line(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path and the reason; the step is not finished, and goes on later."""

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
