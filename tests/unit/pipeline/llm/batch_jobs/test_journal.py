"""The journal of batch jobs: what is there after a kill, and what other processes see."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from claimscore.errors import ConfigError
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal, journal_folder
from claimscore.pipeline.llm.batch_jobs.server import JobRecord

RECORD = JobRecord("0" * 32, "m", ("a", "b", "c"), 100.0, "batch_1")


def online(**fields: str) -> Any:
    return SimpleNamespace(**{"family": "openai", "namespace": "n", "model": "m", **fields})


@pytest.fixture
def journal(tmp_path: Path) -> JobJournal:
    made = JobJournal(journal_folder(tmp_path, online()))
    lock = made.lock()
    assert lock is not None
    assert made.lock() is None
    lock.release()
    made.write(RECORD)
    return made


@pytest.mark.parametrize(
    "damage",
    [
        *("{", "[]", '{"v": 3}', '{"v": 3, "keys": [], "odd": 1}', {"v": 2}, {"sent_at": "1"}),
        *({"sent_at": math.nan}, {"keys": [1]}, {"model": []}, {"batch_id": 1}),
        pytest.param({"batch_id": "../files/of-another"}, id="another address"),
    ],
)
def test_a_record_that_cannot_be_read_may_stand_for_a_paid_job(
    journal: JobJournal, damage: str | dict[str, Any]
):
    """So it is not passed over in silence. It may come from a stranger's address."""
    path = journal.path(RECORD)
    changed = isinstance(damage, dict) and json.dumps({**json.loads(path.read_text()), **damage})
    path.write_text(changed or str(damage))
    with pytest.raises(ConfigError, match=f"{path}: damaged, or of another version"):
        journal.read()


def test_records_alone_are_taken_from_a_strangers_files(journal: JobJournal, tmp_path: Path):
    files = [tmp_path / f"{n}.json" for n in range(2)]
    files[0].write_text('{"v": 3, "rm": "-rf"}')
    files[1].write_bytes(journal.path(RECORD).read_bytes())
    there = JobJournal(tmp_path / "new" / "journal")
    there.take(files)
    assert [record.batch_id for record in there.read()] == [RECORD.batch_id]


def test_what_a_killed_writer_left_is_removed(journal: JobJournal):
    left = journal.folder / f".{RECORD.name}.json.0123abcd.tmp"
    left.write_text("{")
    lock = journal.lock()
    assert lock is not None
    lock.release()
    assert not left.exists()


def test_folders_are_one_a_server(tmp_path: Path):
    """Whatever namespace a user has named: another vendor's jobs are not looked for there."""
    servers = online(), online(namespace="another"), online(family="anthropic")
    folders = {journal_folder(tmp_path, server) for server in servers}
    assert len(folders) == 3
    assert {folder.parent for folder in folders} == {tmp_path / "batches"}
