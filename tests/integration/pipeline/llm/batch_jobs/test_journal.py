"""The lock of the journal of batch jobs, between processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from claimscore.pipeline.llm.batch_jobs.journal import (
    JobJournal,
)


@pytest.fixture
def journal(tmp_path: Path) -> JobJournal:
    made = JobJournal(tmp_path / "a" / "b", now=lambda: 100.0)
    lock = made.lock()
    assert lock is not None
    lock.release()
    return made


def test_the_lock_is_held_once_and_ends_with_its_process(journal: JobJournal):
    """However it ends; also within one process."""
    lock = journal.lock()
    assert lock is not None
    assert journal.lock() is None
    lock.release()
    lock.release()
    script = (
        "import sys; from pathlib import Path; "
        "from claimscore.pipeline.llm.batch_jobs.journal import JobJournal; "
        "lock = JobJournal(Path(sys.argv[1])).lock(); print(lock is not None, flush=True); "
        "sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(journal.folder)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert journal.lock() is None
        process.kill()
    again = journal.lock()
    assert again is not None
    again.release()
