"""A run directory in an object store: the contract, the lease, another machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from claimscore.config import user_state_dir
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.runs import RunDirectory, lock, workspace
from claimscore.runs.lock import Holder
from tests.support.run_directory_contract import RunDirectoryContract
from tests.support.run_tables import claims


class TestInAStore(RunDirectoryContract):
    """The contract."""

    @pytest.fixture
    def where(self, s3: str) -> str:
        return f"{s3}/runs/a"


@pytest.fixture
def where(s3: str) -> str:
    return f"{s3}/runs/a"


@pytest.fixture
def run(where: str) -> Iterator[RunDirectory]:
    with RunDirectory(where) as opened:
        opened.check_settings({"seed": 0})
        yield opened


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Another machine, for what is opened in this test."""
    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path_factory.mktemp("elsewhere")))


def kinds(run: RunDirectory) -> list[str]:
    return [json.loads(line)["kind"] for line in run.storage.read("events.jsonl").splitlines()]


def away(*_: object) -> None:
    raise StoppedEarly("the store was not reached")


def test_a_second_process_of_this_machine_is_refused_at_once(run: RunDirectory) -> None:
    with pytest.raises(ConfigError, match=rf"{run.name} is in use by process {os.getpid()};"):
        RunDirectory(run.name).__enter__()
    run.check_settings({"seed": 0})


def test_another_machine_is_refused_by_the_lease(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    run.write_parts(0, "decompose", {"claims": claims("a")})
    lease = run.workspace._lease
    assert lease is not None
    request.getfixturevalue("elsewhere")
    told: list[str] = []
    monkeypatch.setattr(lock.Clock, "sleep", lambda *_: lease.renew())
    with pytest.raises(ConfigError, match=r"in use by process \d+ on "):
        RunDirectory(run.name, told.append).__enter__()
    assert "waiting up to 60 s" in told[0]
    assert RunDirectory.reader(run.name).is_locked
    run.__exit__(None, None, None)
    with RunDirectory(run.name) as again:
        assert again.read("claims", 0).equals(claims("a"))


def test_a_run_that_was_taken_over_writes_nothing_more(run: RunDirectory) -> None:
    run.write_parts(0, "decompose", {"claims": claims("a")})
    lease = run.workspace._lease
    assert lease is not None
    seen = lease._storage.version(".lock")
    assert seen is not None
    assert lease._storage.replace_if(".lock", Holder("other", host="h").to_bytes(), seen)
    with pytest.raises(StoppedEarly, match="another process has taken this run over"):
        lease.renew()
    before = list(run.storage.sizes())
    for write in (
        lambda: run.write_parts(1, "decompose", {"claims": claims("b")}),
        lambda: run.write_summary({}),
        lambda: run.write_scores([]),
    ):
        with pytest.raises(StoppedEarly, match="taken this run over"):
            write()
    assert list(run.storage.sizes()) == before


def test_growing_files_are_mirrored(where: str, request: pytest.FixtureRequest) -> None:
    with RunDirectory(where) as run:
        run.check_settings({"seed": 0})
        run.event("started")
        run.write_note({"phase": "running"})
        run.workspace.mirror("spend.jsonl", iter([b"first", None, b"second"]).__next__)
        run.workspace.write_through()
        reader = RunDirectory.reader(where)
        assert (reader.note() or {})["phase"] == "running"
        assert reader.workspace.mirrored("spend.jsonl") == b"first"
        run.workspace.write_through()
        state = run.state
        assert state.parent.parent == user_state_dir()
    assert RunDirectory.reader(where).workspace.mirrored("spend.jsonl") == b"second"
    assert {path.name for path in state.iterdir()} == {".lock", "machine", "address"}
    request.getfixturevalue("elsewhere")
    with RunDirectory(where) as run:
        run.event("again")
    assert kinds(run) == ["started", "again"]


def test_a_thread_mirrors_every_few_seconds(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "COPY_S", 0.01)
    failed: list[bytes] = []
    with RunDirectory(where) as run:
        write = run.storage.write

        def once_away(name: str, data: bytes | memoryview) -> None:
            if not failed:
                failed.append(bytes(data))
                away()
            write(name, data)

        run.storage.write = once_away  # type: ignore[method-assign]
        run.workspace.mirror("x", lambda: b"content")
        for _ in range(1000):
            if run.workspace.mirrored("x") == b"content":
                break
        assert (run.workspace.mirrored("x"), len(failed)) == (b"content", 1)


def test_a_store_that_is_away_at_the_end_keeps_the_files_here(where: str) -> None:
    with RunDirectory(where) as run, pytest.MonkeyPatch.context() as patch:
        run.check_settings({"seed": 0})
        run.event("first")
        run.workspace.write_through()
        run.event("second")
        patch.setattr(type(run.storage), "write", away)
        run.__exit__(None, None, None)
    with RunDirectory(where) as run:
        run.event("third")
    assert kinds(run) == ["first", "second", "third"]
