"""Batches on disk: what is there after a kill, and what other processes see."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from claimscore.errors import ConfigError
from claimscore.pipeline.llm.providers.batch.files import (
    BatchFolder,
    BatchState,
    Lock,
    Prepared,
    batch_folder,
    paid_twice_online,
)
from claimscore.pipeline.llm.providers.batch.lines import input_line
from claimscore.pipeline.llm.providers.schema import Dialect
from tests.pipeline.llm.providers.batch_server import question


def key(number: int) -> str:
    return f"{number:064x}"


def lines(n_lines: int) -> list[tuple[str, bytes]]:
    made = []
    for number in range(n_lines):
        request = question(f"question {number}")
        made.append((key(number), input_line(key(number), request, Dialect())))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> BatchFolder:
    made = BatchFolder(tmp_path / "a" / "b", now=lambda: 100.0)
    made.make()
    return made


def prepare(folder: BatchFolder, n_lines: int = 3, max_bytes: int = 10**6) -> Prepared:
    prepared = folder.prepare(lines(n_lines), model="m", dialect={"x": 1}, max_bytes=max_bytes)
    assert prepared is not None
    return prepared


def test_a_prepared_batch_is_read_as_it_was_written(folder: BatchFolder):
    """By any process: state, keys, and that the requests are whole."""
    prepared = prepare(folder)
    other = BatchFolder(folder.path)
    (name,) = other.names()
    state = other.read(name)
    assert state == prepared.state
    assert (state.status, state.n_requests, state.prepared_at) == ("prepared", 3, 100.0)
    assert other.keys(name) == prepared.keys == [key(0), key(1), key(2)]
    assert other.is_whole(state)
    assert state.file_name == f"claimscore-{name}.jsonl"


def test_steps_are_written(folder: BatchFolder):
    """What was known before stays known."""
    state = prepare(folder).state
    state = folder.moved(state, "uploaded", file_id="file-1")
    state = folder.moved(state, "created", batch_id="batch_1")
    read = BatchFolder(folder.path).read(state.uuid)
    assert read == state
    assert (read.status, read.file_id, read.batch_id) == ("created", "file-1", "batch_1")


@pytest.mark.parametrize(
    ("max_bytes", "n_taken"), [(10**6, 3), (600, 2), (300, 1)], ids=["all", "two", "one"]
)
def test_only_as_many_as_fit_are_taken(folder: BatchFolder, max_bytes: int, n_taken: int):
    """The rest is for another batch."""
    prepared = prepare(folder, 3, max_bytes)
    assert prepared.keys == [key(number) for number in range(n_taken)]
    assert prepared.state.n_bytes <= max_bytes
    assert folder.requests(prepared.state.uuid).stat().st_size == prepared.state.n_bytes


def test_where_not_even_one_fits_nothing_is_left(folder: BatchFolder):
    """None, and no folder."""
    assert folder.prepare(lines(1), model="m", dialect={}, max_bytes=10) is None
    assert list(folder.path.iterdir()) == []


def test_a_lock_is_held_once_and_ends_with_its_process(folder: BatchFolder, tmp_path: Path):
    """However it ends."""
    lock = folder.claim()
    assert lock is not None
    assert folder.claim() is None
    lock.release()
    lock.release()
    script = (
        "import sys, os, signal; from pathlib import Path; "
        "from claimscore.pipeline.llm.providers.batch.files import BatchFolder; "
        "lock = BatchFolder(Path(sys.argv[1])).claim(); print(lock is not None, flush=True); "
        "sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder.path)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert folder.claim() is None
        process.kill()
    again = folder.claim()
    assert again is not None
    again.release()


def test_the_lock_of_a_batch_that_is_gone_cannot_be_had(folder: BatchFolder):
    """Nor is its folder made again by the attempt."""
    name = prepare(folder).state.uuid
    folder.remove(name)
    assert folder.lock(name) is None
    assert folder.names() == []
    assert folder.read(name) is None
    assert folder.keys(name) == []
    folder.remove(name)


def test_leftovers_are_swept_and_batches_are_not(folder: BatchFolder):
    """A kill between folder and state leaves a folder without a state."""
    kept = prepare(folder).state.uuid
    (folder.path / "leftover").mkdir()
    (folder.path / "leftover" / "requests.jsonl").write_text("x")
    folder.sweep()
    assert [path.name for path in folder.path.iterdir()] == [kept]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="a list"),
        pytest.param('{"v": 1}', id="fields missing"),
        pytest.param('{"v": 1, "status": "nice"}', id="odd status"),
    ],
)
def test_a_damaged_state_may_stand_for_a_created_batch(folder: BatchFolder, damage: str):
    """So the server is asked; it is not taken for whole, and so not sent."""
    name = prepare(folder).state.uuid
    (folder.path / name / "state.json").write_text(damage)
    state = folder.read(name)
    assert state is not None
    assert (state.uuid, state.status, state.n_requests) == (name, "creating", 3)
    assert not folder.is_whole(state)


def test_an_odd_status_is_damage(folder: BatchFolder):
    """Whatever else is right."""
    value = prepare(folder).state.to_json()
    with pytest.raises(ValueError, match="odd"):
        BatchState.from_json({**value, "status": "odd"})


def test_a_newer_state_is_refused(folder: BatchFolder):
    """It may mean something that this version does not know."""
    state = prepare(folder).state
    path = folder.path / state.uuid / "state.json"
    path.write_text(json.dumps({**state.to_json(), "v": 2}))
    with pytest.raises(ConfigError, match="newer claimscore"):
        folder.read(state.uuid)


def test_changed_requests_are_not_whole(folder: BatchFolder):
    """A single bit."""
    state = prepare(folder).state
    path = folder.requests(state.uuid)
    path.write_bytes(path.read_bytes().replace(b"question 1", b"question 2"))
    assert not folder.is_whole(state)
    path.unlink()
    assert not folder.is_whole(state)


def test_new_folders_are_private(folder: BatchFolder):
    """They hold people's texts; a folder that was there keeps its mode."""
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.path.parent.stat().st_mode & 0o777 == 0o700
    name = prepare(folder).state.uuid
    assert (folder.path / name).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path):
    """A file in its place."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        BatchFolder(tmp_path / "file" / "batches").make()


def test_servers_do_not_share_a_folder(tmp_path: Path):
    """A batch belongs to the server that it was sent to."""
    one, two = (batch_folder(tmp_path, f"https://{name}/v1") for name in ("a", "b"))
    assert one != two
    assert one.parent == two.parent == tmp_path / "batches"


def test_who_asks_online_is_told_of_batches_under_way(folder: BatchFolder):
    """Of those that may cost money and are for the same model."""
    assert paid_twice_online(folder.path, "m") is None
    first, second = prepare(folder).state, prepare(folder, 1).state
    assert paid_twice_online(folder.path, "m") is None
    folder.moved(first, "created", batch_id="batch_1")
    told = paid_twice_online(folder.path, "m")
    assert told is not None
    assert told.startswith("3 requests to m are in batch batch_1; ")
    folder.moved(second, "creating")
    told = paid_twice_online(folder.path, "m")
    assert told is not None
    assert told.startswith("4 requests to m are in 2 batches (")
    assert paid_twice_online(folder.path, "another") is None
    assert paid_twice_online(folder.path / "none", "m") is None


def test_the_first_lock_wins(tmp_path: Path):
    """Also within one process."""
    path = tmp_path / "lock"
    first = Lock.take(path)
    assert first is not None
    assert Lock.take(path) is None
    first.release()
    second = Lock.take(path)
    assert second is not None
    second.release()
