"""Run directories in an object store: what a disk guarantees holds there too."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from claimscore.config import user_state_dir
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.runs import RunDirectory, WorkerChunk
from claimscore.runs.lease import Holder, Lease
from claimscore.storage import Storage
from claimscore.tables import CLAIMS, FAILURES, SCORES


def claims(*ids: str) -> pl.DataFrame:
    return CLAIMS.frame([{"id": name, "side": "a", "text": f"text of {name}"} for name in ids])


@pytest.fixture
def where(s3: str) -> str:
    return f"{s3}/runs/a"


@pytest.fixture
def run(where: str) -> Iterator[RunDirectory]:
    with RunDirectory(where) as opened:
        yield opened


def test_parts_are_read_back(run: RunDirectory, where: str) -> None:
    """By the writer, a worker's chunk and a reader; results and notes too."""
    run.check_settings({"seed": 0})
    run.write_options({"metrics": ["caspr"]})
    run.write_parts(1, "decompose", {"claims": claims("c"), "failures": FAILURES.empty()})
    run.write_parts(0, "decompose", {"claims": claims("a", "b"), "failures": FAILURES.empty()})
    worker = WorkerChunk(where, 0, run.finished(0))
    worker.write("facts", {"claims": claims("w")})
    assert worker.read("claims")["id"].to_list() == ["a", "b", "w"]
    run.finish_written(0, "facts", worker.written["facts"])
    run.write_scores([SCORES.frame([{"id": "a", "metric": "m", "value": 0.5}])])
    run.write_summary({"n": 1})
    reader = RunDirectory.reader(where)
    assert reader.read("claims", 0, 1)["id"].to_list() == ["a", "b", "w", "c"]
    assert reader.scan("claims").collect()["id"].to_list() == ["a", "b", "w", "c"]
    assert reader.counts() == {"claims": 4, "failures": 0}
    assert (reader.settings, reader.summary()) == ({"seed": 0}, {"n": 1})
    assert reader.options() == {"metrics": ["caspr"]}
    scores = pl.scan_parquet(reader.storage.address("scores.parquet"), glob=False).collect()
    assert scores["value"].to_list() == [0.5]
    assert reader.title == "a"
    with pytest.raises(RuntimeError, match="not on a disk"):
        _ = reader.path


def test_scores_have_the_bytes_that_a_disk_has(run: RunDirectory, tmp_path: Path) -> None:
    """Where they lie leaves no trace."""
    rows = [SCORES.frame([{"id": str(n), "metric": "m", "value": n / 7}]) for n in range(5)]
    run.write_scores(rows)
    with RunDirectory(tmp_path / "run") as local:
        local.write_scores(rows)
    assert run.storage.read("scores.parquet") == local.storage.read("scores.parquet")


def test_a_part_that_is_gone_is_named(run: RunDirectory) -> None:
    """As on a disk."""
    run.write_parts(0, "decompose", {"claims": claims("a")})
    name = "claims/part-000000-decompose.parquet"
    for content in (None, b"not parquet"):
        run.storage.delete(name) if content is None else run.storage.write(name, content)
        with pytest.raises(ConfigError, match=rf"{name}: (missing|damaged)"):
            run.read("claims", 0)


def test_second_process_of_this_machine_is_refused_at_once(run: RunDirectory, where: str) -> None:
    """By the lock on this machine; the store is not asked."""
    with pytest.raises(ConfigError, match=rf"{where} is in use by process {os.getpid()};"):
        RunDirectory(where).__enter__()
    run.check_settings({"seed": 0})
    assert RunDirectory.reader(where).is_locked


def test_another_machine_is_refused_by_the_lease(
    run: RunDirectory, where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And it sees that somebody is at work; when that one has ended, it goes on."""
    run.check_settings({"seed": 0})
    run.write_parts(0, "decompose", {"claims": claims("a")})
    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path / "elsewhere"))
    told: list[str] = []
    lease = run._home._lease  # type: ignore[attr-defined]

    def renewed_meanwhile(_: float) -> None:
        lease.renew()

    monkeypatch.setattr("claimscore.runs.lease.time.sleep", renewed_meanwhile)
    with pytest.raises(ConfigError, match=r"in use by process \d+ on "):
        RunDirectory(where, told.append).__enter__()
    assert "waiting up to 60 s" in told[0]
    assert RunDirectory.reader(where).is_locked
    run.__exit__(None, None, None)
    assert not RunDirectory.reader(where).is_locked
    with RunDirectory(where) as again:
        assert again.read("claims", 0)["id"].to_list() == ["a"]


def test_a_run_that_was_taken_over_writes_nothing_more(run: RunDirectory, where: str) -> None:
    """Neither a part nor a line, and what the other one has stays."""
    run.write_parts(0, "decompose", {"claims": claims("a")})
    seen = run.storage.version(".lock")
    assert seen is not None
    assert run.storage.replace_if(".lock", Holder("other", host="h").to_bytes(), seen)
    lease: Lease = run._home._lease  # type: ignore[attr-defined]
    with pytest.raises(StoppedEarly, match="another process has taken this run over"):
        lease.renew()
    before = list(run.storage.names())
    for write in (
        lambda: run.write_parts(1, "decompose", {"claims": claims("b")}),
        lambda: run.write_summary({}),
        lambda: run.write_scores([]),
    ):
        with pytest.raises(StoppedEarly, match="taken this run over"):
            write()
    assert list(run.storage.names()) == before


def test_what_is_appended_to_is_mirrored(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events and notes; another machine goes on with them, and this one keeps nothing."""
    with RunDirectory(where) as run:
        run.check_settings({"seed": 0})
        run.event("started")
        run.write_note({"phase": "running"})
        run.mirror("spend.jsonl", iter([b"first", None, b"second"]).__next__)
        mirror = run._home._mirror  # type: ignore[attr-defined]
        mirror.copy()
        reader = RunDirectory.reader(where)
        assert (reader.note() or {})["phase"] == "running"
        assert reader.mirrored("spend.jsonl") == b"first"
        mirror.copy()
        state = run.state
        assert state.parent.parent == user_state_dir()
    assert RunDirectory.reader(where).mirrored("spend.jsonl") == b"second"
    assert {path.name for path in state.iterdir()} == {".lock", "machine", "address"}
    with monkeypatch.context() as patch:
        patch.setenv("CLAIMSCORE_STATE_DIR", str(state.parent / "elsewhere"))
        with RunDirectory(where) as run:
            run.event("again")
    events = run.storage.read("events.jsonl").splitlines()
    assert [json.loads(line)["kind"] for line in events] == ["started", "again"]


def test_a_store_that_is_away_at_the_end_keeps_what_is_here(where: str) -> None:
    """The next call on this machine has the events that could not be copied."""

    def away(*_: object) -> None:
        raise StoppedEarly("the store was not reached")

    with RunDirectory(where) as run:
        run.check_settings({"seed": 0})
        run.event("first")
        run.write_through()
        run.event("second")
        patch = pytest.MonkeyPatch()
        patch.setattr(type(run.storage), "write", away)
    patch.undo()
    with RunDirectory(where) as run:
        run.event("third")
    events = run.storage.read("events.jsonl").splitlines()
    assert [json.loads(line)["kind"] for line in events] == ["first", "second", "third"]


def test_a_refused_run_leaves_nothing(where: str) -> None:
    """Nothing was made, so nothing stays."""
    with pytest.raises(ConfigError, match="no such model"), RunDirectory(where) as run:
        raise ConfigError("no such model")
    assert not list(run.storage.names())
    assert not run.storage.exists(".lock")


def test_a_place_with_other_files_is_refused(where: str, s3: str) -> None:
    """`--out s3://bucket` by mistake writes nothing."""
    folder: Storage = RunDirectory(s3).storage
    folder.write("thesis/chapter.tex", b"x")
    with pytest.raises(ConfigError, match=r"a folder with other files \(thesis\)"):
        RunDirectory(s3).__enter__()
    assert list(folder.names()) == ["thesis/chapter.tex"]
    assert not folder.exists(".lock")


def test_no_run_directory_there(where: str) -> None:
    """Named as such."""
    with pytest.raises(ConfigError, match=f"{where}: not a run directory; there is no run.toml"):
        RunDirectory.reader(where)
