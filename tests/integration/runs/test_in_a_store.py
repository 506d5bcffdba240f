"""A run directory in an object store: the contract, the lease, another machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from claimscore.errors import ConfigError, StoppedEarly
from claimscore.runs import RunDirectory, lock
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
