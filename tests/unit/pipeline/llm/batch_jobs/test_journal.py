"""The journal of batch jobs: what is there after a kill, and what other processes see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claimscore.errors import ConfigError
from claimscore.pipeline.llm.batch_jobs.client import request_line
from claimscore.pipeline.llm.batch_jobs.journal import (
    JobJournal,
    JobRecord,
    journal_folder,
    paid_twice_online,
)
from claimscore.pipeline.llm.providers.schema import Dialect
from tests.support.batch_server import question


def key(number: int) -> str:
    return f"{number:064x}"


def lines(n_lines: int) -> list[tuple[str, bytes]]:
    made = []
    for number in range(n_lines):
        request = question(f"question {number}")
        made.append((key(number), request_line(key(number), request, Dialect())))
    return made


@pytest.fixture
def journal(tmp_path: Path) -> JobJournal:
    made = JobJournal(tmp_path / "a" / "b", now=lambda: 100.0)
    lock = made.lock()
    assert lock is not None
    lock.release()
    return made


def prepare(
    journal: JobJournal, n_lines: int = 3, max_bytes: int = 10**6
) -> tuple[JobRecord, list[str]]:
    prepared = journal.prepare(lines(n_lines), model="m", dialect={"x": 1}, max_bytes=max_bytes)
    assert prepared is not None
    return prepared


def note(journal: JobJournal, n_lines: int = 3, batch_id: str | None = None) -> JobRecord:
    record, _ = prepare(journal, n_lines)
    return journal.note(record, "created" if batch_id else "creating", batch_id)


def test_a_prepared_job_is_no_job_yet(journal: JobJournal):
    """It costs nothing: other processes do not see it."""
    record, keys = prepare(journal)
    assert (record.status, record.n_requests, record.prepared_at) == ("prepared", 3, 100.0)
    assert keys == [key(0), key(1), key(2)]
    assert record.file_name == f"claimscore-{record.uuid}.jsonl"
    assert JobJournal(journal.folder).names() == []


def test_steps_are_read_as_they_were_written(journal: JobJournal):
    """By any process: the record and the keys."""
    record, keys = prepare(journal)
    record = journal.note(record, "creating")
    assert JobJournal(journal.folder).read(record.uuid) == record
    record = journal.note(record, "created", "batch_1")
    other = JobJournal(journal.folder)
    assert other.names() == [record.uuid]
    read = other.read(record.uuid)
    assert read == record
    assert (read.status, read.batch_id, read.dialect) == ("created", "batch_1", {"x": 1})
    assert other.keys(record.uuid) == keys


@pytest.mark.parametrize(
    ("max_bytes", "n_taken"), [(10**6, 3), (600, 2), (300, 1)], ids=["all", "two", "one"]
)
def test_only_as_many_as_fit_are_taken(journal: JobJournal, max_bytes: int, n_taken: int):
    """The rest is for another job."""
    record, keys = prepare(journal, 3, max_bytes)
    assert keys == [key(number) for number in range(n_taken)]
    assert record.n_requests == n_taken
    assert journal.requests(record.uuid).stat().st_size <= max_bytes


def test_where_not_even_one_fits_nothing_is_left(journal: JobJournal):
    """None, and no file."""
    assert journal.prepare(lines(1), model="m", dialect={}, max_bytes=10) is None
    assert [path.name for path in journal.folder.iterdir()] == ["lock"]


def test_a_job_that_is_removed_is_gone(journal: JobJournal):
    """Its texts too; removing it twice does no harm."""
    name = note(journal).uuid
    journal.remove(name)
    journal.remove(name)
    assert journal.names() == []
    assert journal.read(name) is None
    assert journal.keys(name) == []
    assert [path.name for path in journal.folder.iterdir()] == ["lock"]


def test_leftovers_are_swept_and_jobs_are_not(journal: JobJournal):
    """A kill may leave requests without a record, and half a record."""
    kept = note(journal).uuid
    prepare(journal)
    (journal.folder / ".x.json.1.tmp").write_text("{")
    journal.sweep()
    names = {path.name for path in journal.folder.iterdir()}
    assert names == {"lock", f"{kept}.json", f"{kept}.jsonl"}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="a list"),
        pytest.param('{"v": 2}', id="fields missing"),
        pytest.param('{"v": 2, "status": "nice"}', id="odd status"),
    ],
)
def test_a_damaged_record_may_stand_for_a_created_job(journal: JobJournal, damage: str):
    """So the server is asked."""
    name = note(journal, batch_id="batch_1").uuid
    journal.record_path(name).write_text(damage)
    record = journal.read(name)
    assert record is not None
    assert (record.uuid, record.status, record.n_requests) == (name, "creating", 3)


def test_an_odd_status_is_damage(journal: JobJournal):
    """Where all the rest of the record is right."""
    path = journal.record_path(note(journal, batch_id="batch_1").uuid)
    path.write_text(path.read_text().replace('"created"', '"odd"'))
    record = journal.read(path.stem)
    assert record is not None
    assert record.status == "creating"


def test_a_newer_record_is_refused(journal: JobJournal):
    """It may mean something that this version does not know."""
    path = journal.record_path(note(journal).uuid)
    path.write_text(json.dumps({**json.loads(path.read_text()), "v": 3}))
    with pytest.raises(ConfigError, match="newer claimscore"):
        journal.read(path.stem)


def test_an_older_journal_is_refused(journal: JobJournal):
    """Its jobs are paid for: they are not passed over in silence."""
    old = journal.folder / "uuid" / "state.json"
    old.parent.mkdir()
    old.write_text("{}")
    with pytest.raises(ConfigError, match="older claimscore"):
        journal.names()


def test_new_folders_are_private(journal: JobJournal):
    """They hold people's texts; a folder that was there keeps its mode."""
    assert journal.folder.stat().st_mode & 0o777 == 0o700
    assert journal.folder.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path):
    """A file in its place."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        JobJournal(tmp_path / "file" / "batches").lock()


def test_servers_do_not_share_a_folder(tmp_path: Path):
    """A job belongs to the server that it was sent to."""
    one, two = (journal_folder(tmp_path, f"https://{name}/v1") for name in ("a", "b"))
    assert one != two
    assert one.parent == two.parent == tmp_path / "batches"


def test_a_user_who_asks_online_is_told_of_jobs_under_way(journal: JobJournal):
    """Of those that may cost money and are for the same model."""
    assert paid_twice_online(journal.folder, "m") is None
    prepare(journal)
    assert paid_twice_online(journal.folder, "m") is None
    note(journal, batch_id="batch_1")
    told = paid_twice_online(journal.folder, "m")
    assert told is not None
    assert told.startswith("3 requests to m are in batch batch_1; ")
    note(journal, 1)
    told = paid_twice_online(journal.folder, "m")
    assert told is not None
    assert told.startswith("4 requests to m are in 2 batches (")
    assert paid_twice_online(journal.folder, "another") is None
    assert paid_twice_online(journal.folder / "none", "m") is None
