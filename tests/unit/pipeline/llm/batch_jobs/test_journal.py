"""The journal of batch jobs: what is there after a kill, and what other processes see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claimscore.errors import ConfigError
from claimscore.pipeline.llm.batch_jobs.journal import (
    JobJournal,
    JobRecord,
    journal_folder,
    paid_twice_online,
)


def key(number: int) -> str:
    return f"{number:064x}"


@pytest.fixture
def journal(tmp_path: Path) -> JobJournal:
    made = JobJournal(tmp_path / "a" / "b", now=lambda: 100.0)
    lock = made.lock()
    assert lock is not None
    lock.release()
    return made


def prepare(journal: JobJournal, n_lines: int = 3, max_bytes: int = 10**6) -> JobRecord:
    lines = [
        (key(n), f'{{"custom_id": "{key(n)}", "body": {{}}}}\n'.encode()) for n in range(n_lines)
    ]
    prepared = journal.prepare(lines, model="m", dialect={"x": 1}, max_bytes=max_bytes)
    assert prepared is not None
    assert prepared[1] == journal.keys(prepared[0].uuid)
    return prepared[0]


def note(journal: JobJournal, n_lines: int = 3, batch_id: str | None = "batch_1") -> JobRecord:
    return journal.note(prepare(journal, n_lines), "created", batch_id)


@pytest.mark.parametrize("damage", ["{", "[]", '{"v": 2}', "odd status"])
def test_a_damaged_record_may_stand_for_a_created_job(journal: JobJournal, damage: str):
    """So the server is asked."""
    name = note(journal).uuid
    path = journal.record_path(name)
    odd = path.read_text().replace('"created"', '"odd"')
    path.write_text(odd if damage == "odd status" else damage)
    record = journal.read(name)
    assert record is not None
    assert (record.uuid, record.status, record.n_requests) == (name, "creating", 3)


def test_a_journal_of_a_newer_version_is_refused(journal: JobJournal):
    """Their jobs are paid for: they are not passed over in silence."""
    path = journal.record_path(note(journal).uuid)
    path.write_text(json.dumps({**json.loads(path.read_text()), "v": 3}))
    with pytest.raises(ConfigError, match="newer claimscore"):
        journal.read(path.stem)


def test_folders_are_private_and_one_a_server(journal: JobJournal, tmp_path: Path):
    for folder in (journal.folder, journal.folder.parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    one, two = (journal_folder(tmp_path, f"https://{name}/v1") for name in ("a", "b"))
    assert one != two
    assert one.parent == two.parent == tmp_path / "batches"


def test_a_user_who_asks_online_is_told_of_jobs_under_way(journal: JobJournal):
    """Of those that may cost money and are for the same model."""
    prepare(journal)
    assert paid_twice_online(journal.folder, "m") is None
    note(journal)
    words = paid_twice_online(journal.folder, "m") or ""
    assert words.startswith("3 requests to m are in batch batch_1; asked online they are paid for")
    note(journal, 1, None)
    assert "4 requests to m are in 2 batches (" in (paid_twice_online(journal.folder, "m") or "")
    assert paid_twice_online(journal.folder, "another") is None
    assert paid_twice_online(journal.folder / "none", "m") is None
