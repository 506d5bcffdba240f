"""The journal of batch jobs: which requests may cost money, on disk until their answers are kept.

    FOLDER/<name>.json    a job: written before the server is asked to make it, and again, with
                          the server's id of it, when it has
    FOLDER/lock           held while a job is made

A job costs money from the moment it is made on the server, so it is here before that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from claimscore.atomic import os_errors, remove_leftovers, write_text
from claimscore.errors import ConfigError
from claimscore.file_lock import FileLock
from claimscore.pipeline.llm.batch_jobs.server import JobRecord
from claimscore.pipeline.llm.providers.base import Provider

VERSION = 3

#: The folder of all journals, beside the cache.
JOURNALS = "batches"


class JobJournal:
    """The batch jobs of one server and account; several processes may use it.

    File system errors are raised as `ConfigError`, a full disk as `StoppedEarly`.
    """

    def __init__(self, folder: Path, on_write: Callable[[Path], None] = lambda _: None) -> None:
        """`on_write` gets the file of each record that was written or removed."""
        self.folder, self._on_write = folder, on_write

    def lock(self) -> FileLock | None:
        """The right to make jobs; None while another process has it."""
        with os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock.take(self.folder / "lock")
        if lock is not None:
            remove_leftovers(self.folder, r"[0-9a-f]{32}\.json")
        return lock

    def read(self) -> list[JobRecord]:
        """All jobs. Raises `ConfigError` for a record that cannot be read: it may stand for a job
        that was paid."""
        records = (self._record(path) for path in sorted(self.folder.glob("[!.]*.json")))
        return [record for record in records if record is not None]

    def write(self, record: JobRecord) -> JobRecord:
        """Note a job, or what has become of it; it is durable when this returns."""
        value = {"v": VERSION, **dataclasses.asdict(record)}
        write_text(self.path(record), json.dumps(value) + "\n")
        self._on_write(self.path(record))
        return record

    def take(self, paths: Iterable[Path]) -> None:
        """Note the jobs in files of another journal; one that is no record of a job is left out."""
        with os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            with contextlib.suppress(ConfigError):
                if (record := self._record(path)) is not None:
                    self.write(record)

    def path(self, record: JobRecord) -> Path:
        """The file that says that a job may cost money."""
        return self.folder / f"{record.name}.json"

    def remove(self, record: JobRecord) -> None:
        """Forget a job; nothing happens where another process has done so."""
        with os_errors(self.folder):
            self.path(record).unlink(missing_ok=True)
        self._on_write(self.path(record))

    def _record(self, path: Path) -> JobRecord | None:
        with os_errors(path):
            try:
                text = path.read_bytes()
            except FileNotFoundError:  # collected meanwhile
                return None
        try:
            value = json.loads(text)
            if value.pop("v") != VERSION:
                raise ValueError
            record = JobRecord(**{**value, "name": path.stem, "keys": tuple(value["keys"])})
            words = record.model, record.batch_id, *record.keys
            if not (all(isinstance(word, str) for word in words) and math.isfinite(record.sent_at)):
                raise ValueError
            if not re.fullmatch(r"[\w:=+~-]*", record.batch_id):  # it becomes part of an address
                raise ValueError
            return record
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ConfigError(
                f"{path}: damaged, or of another version of claimscore; it stands for a batch job "
                "that may be paid for; delete it to buy its requests again"
            ) from None


def journal_folder(cache_dir: Path, provider: Provider) -> Path:
    """Where the batch jobs of one server are noted: beside the answers that they will bring."""
    server = f"{provider.family} {provider.namespace}".encode()
    return cache_dir / JOURNALS / hashlib.sha256(server).hexdigest()[:16]
