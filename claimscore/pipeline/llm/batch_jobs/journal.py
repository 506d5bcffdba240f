"""The journal of batch jobs: which requests may cost money, on disk until their answers are kept.

    FOLDER/<uuid>.jsonl   a job's requests as the server gets them; a line's `custom_id` is the
                          request's key
    FOLDER/<uuid>.json    the job's record: written before the server is asked to create the
                          job, and again when it has
    FOLDER/lock           held while jobs are made and sent

A job costs money from the moment it is created on the server, so it is in the journal exactly
as long as its record is. Requests without a record have cost nothing and may be thrown away.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, get_args

from claimscore.atomic import atomic_file, os_errors, write_text
from claimscore.errors import ConfigError
from claimscore.file_lock import FileLock
from claimscore.types import JSON

#: "prepared" is never written; after "creating" the server must be asked what came of it.
JobStatus = Literal["prepared", "creating", "created"]

VERSION = 2
_LOCK = "lock"
_ID_START = b'{"custom_id": "'
_ID = slice(len(_ID_START), len(_ID_START) + 64)


@dataclasses.dataclass(frozen=True, slots=True)
class JobRecord:
    """One batch job. `written_at` is the time of the last step; `dialect` how its lines ask.

    Times are seconds since 1970. `batch_id` is the server's name for the job.
    """

    uuid: str
    status: JobStatus
    model: str
    n_requests: int
    prepared_at: float
    written_at: float
    dialect: JSON = dataclasses.field(default_factory=dict)
    batch_id: str | None = None

    @property
    def file_name(self) -> str:
        """The name under which the server gets the requests."""
        return f"claimscore-{self.uuid}.jsonl"

    @classmethod
    def from_json(cls, value: JSON) -> JobRecord:
        """The record that was written; raises `ValueError`, `KeyError`, `TypeError` if damaged."""
        fields = {name: value[name] for name in cls.__dataclass_fields__}
        if fields["status"] not in get_args(JobStatus):
            raise ValueError(f"status {fields['status']!r}")
        return cls(**fields)


class JobJournal:
    """The batch jobs of one server and account; several processes may use it.

    File system errors are raised as `ConfigError`, a full disk as `StoppedEarly`.
    """

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._now = now

    def lock(self) -> FileLock | None:
        """The right to make and send jobs; None while another process has it.

        Makes the folder, so that no other user can read the requests.
        """
        with os_errors(self.folder):
            new = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
            for path in reversed(new):
                path.mkdir(mode=0o700, exist_ok=True)
            return FileLock.take(self.folder / _LOCK)

    def names(self) -> list[str]:
        """The uuids of the jobs that are there."""
        return sorted(path.stem for path in self.folder.glob("[!.]*.json"))

    def prepare(
        self, lines: Iterable[tuple[str, bytes]], *, model: str, dialect: JSON, max_bytes: int
    ) -> tuple[JobRecord, list[str]] | None:
        """Write as many of the lines as fit into `max_bytes`; None where not even one does.

        Returns the job, which is not in the journal yet, and the keys of its requests. The lock
        must be held: to other processes this is a leftover.
        """
        name, keys, n_bytes = uuid.uuid4().hex, [], 0
        with atomic_file(self.requests(name)) as stream:
            for key, line in lines:
                n_bytes += len(line)
                if n_bytes > max_bytes:
                    break
                stream.write(line)
                keys.append(key)
        if not keys:
            self.remove(name)
            return None
        now = self._now()
        return JobRecord(name, "prepared", model, len(keys), now, now, dialect), keys

    def note(self, record: JobRecord, status: JobStatus, batch_id: str | None = None) -> JobRecord:
        """The record after a step, which is durable when this returns."""
        written = dataclasses.replace(
            record, status=status, written_at=self._now(), batch_id=batch_id
        )
        value = {"v": VERSION, **dataclasses.asdict(written)}
        write_text(self.record_path(record.uuid), json.dumps(value, indent=1) + "\n")
        return written

    def read(self, name: str) -> JobRecord | None:
        """A job, or None where it is gone.

        A damaged record reads as "creating": the server is asked by uuid for the job.
        """
        path = self.record_path(name)
        try:
            with os_errors(path):
                value = json.loads(path.read_bytes())
            if value["v"] > VERSION:
                raise ConfigError(f"{path}: written by a newer claimscore; use that one")
            return JobRecord.from_json(value)
        except ConfigError:
            if not path.exists():
                return None
            raise
        except (ValueError, KeyError, TypeError, RecursionError):
            return JobRecord(name, "creating", "", len(self.keys(name)), 0.0, 0.0)

    def keys(self, name: str) -> list[str]:
        """The keys of a job's requests; empty where it is gone meanwhile."""
        path = self.requests(name)
        with os_errors(path):
            try:
                with path.open("rb") as stream:
                    lines = (line for line in stream if line.startswith(_ID_START))
                    return [line[_ID].decode("ascii", "replace") for line in lines]
            except FileNotFoundError:
                return []

    def requests(self, name: str) -> Path:
        """The file that the server gets."""
        return self.folder / f"{name}.jsonl"

    def record_path(self, name: str) -> Path:
        """The file that says that the job may cost money."""
        return self.folder / f"{name}.json"

    def remove(self, name: str) -> None:
        """Forget a job: its record first, so that a kill leaves a leftover and not a job."""
        for path in (self.record_path(name), self.requests(name)):
            with os_errors(path):
                path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove the files that kills left behind; the lock must be held."""
        kept = {_LOCK, *(f"{name}{end}" for name in self.names() for end in (".json", ".jsonl"))}
        with os_errors(self.folder):
            for path in self.folder.iterdir():
                if path.name not in kept and not path.is_dir():
                    path.unlink(missing_ok=True)


def journal_folder(cache_dir: Path, namespace: str) -> Path:
    """Where the batch jobs of one server are noted: beside the answers that they will bring."""
    return cache_dir / "batches" / hashlib.sha256(namespace.encode()).hexdigest()[:16]


def paid_twice_online(folder: Path, model: str) -> str | None:
    """The warning for a user who asks a model online while batch jobs to it are under way."""
    journal = JobJournal(folder)
    records = [record for name in journal.names() if (record := journal.read(name)) is not None]
    waiting = [record for record in records if record.model == model]
    if not waiting:
        return None
    n_requests = sum(record.n_requests for record in waiting)
    return (
        f"{n_requests:,} requests to {model} are in {job_names(waiting)}; asked online they are "
        f"paid for again; --llm openai-batch:{model} collects them"
    )


def job_names(records: list[JobRecord]) -> str:
    """Jobs in a sentence, by the names that the server gave them."""
    names = [record.batch_id or record.uuid for record in records]
    if len(names) == 1:
        return f"batch {names[0]}"
    some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} batches ({some})"
