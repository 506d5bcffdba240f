"""A run directory at an address: a folder of this machine, and its copy in an object store.

    run.toml  <table>/part-*.parquet  .state/...          as in the folder
    .state/writer.json                       the marker of the one writer: host, time, token
    .state/answers/<token>-<time>.jsonl.gz   new answers, as `claimscore cache export` writes them
    .state/batches/<server>/<job>.json       batch jobs whose answers are not kept yet

A run works in the folder, and a thread sends what is new, parts before the manifest that names
them. So a reader finds all that the manifest names, or begins again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from claimscore.atomic import os_errors, write_text
from claimscore.cache.maintenance import export_rows, import_answers
from claimscore.cache.store import DiskCache, NewRow
from claimscore.config import user_state_dir
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.file_lock import FileLock
from claimscore.runs.folder import FILES, LOCK, MANIFEST, SPEND
from claimscore.runs.manifest import Manifest
from claimscore.runs.objects import Objects
from claimscore.runs.parts import PART_FILE, PART_TABLES, Checksum

Tell = Callable[[str], None]

#: Seconds between two sends, and the age of a marker whose process `status` takes for dead.
SEND_S, _DEAD_S = 45.0, 300.0

_MARKER, _RECORD, _SNAPSHOT = ".state/writer.json", ".state/remote.json", ".state/manifest.new"
_ANSWERS_FOLDER, _JOBS_FOLDER = ".state/answers", ".state/batches"
#: The folder beside a cache whose empty files name the exports that it has taken.
_TAKEN = "taken"

#: Patterns of the names of parts, exports of answers, and batch jobs.
_PART = rf"({'|'.join(sorted(PART_TABLES))})/{PART_FILE}"
_ANSWERS = r"\.state/answers/([0-9a-f]{16})-\d{19}\.jsonl\.gz"
_JOB = r"\.state/batches/[0-9a-f]{16}/[0-9a-f]{32}\.json"

logger = logging.getLogger(__name__)


def local_folder(address: str) -> Path:
    """The folder of this machine for what is at an address."""
    address = address.rstrip("/")
    name = re.sub(r"[^\w.-]", "_", address.rpartition("/")[2])
    return user_state_dir() / "runs" / f"{name}-{_digest(address.encode())[:16]}"


def fetch(address: str) -> None:
    """Bring what lies at the address into its folder, for a reader; where a process of this machine
    works in the folder, it has all."""
    copy = RemoteCopy(address, logger.warning)
    with os_errors(copy.folder):
        (copy.folder / ".state").mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock.take(copy.folder / LOCK)
    if lock is not None:
        with lock:
            copy.bring()


class RemoteCopy:
    """The copy of a folder at an address; the caller holds the folder's lock. Threads may share it.

    As a context manager it sends a last time at the end. A send that fails loses nothing: the next
    one sends it too. `ledger`, where it is set, gives a short form of the ledger, which is sent in
    its place.
    """

    def __init__(self, address: str, tell: Tell) -> None:
        self.address = address.rstrip("/")
        self.folder = local_folder(address)
        self.ledger: Callable[[], bytes] | None = None
        self._tell, self._objects = tell, Objects(self.address)
        #: The name of the folder, and digests of manifest and ledger that it last had in common
        #: with the address.
        self._record: dict[str, Any] = {"token": secrets.token_hex(8), "common": []}
        with contextlib.suppress(OSError, ValueError):
            self._record |= json.loads((self.folder / _RECORD).read_bytes())
        self._sent: dict[str, Any] = {}  # what tells whether a file has changed since, by name
        self._rows: list[NewRow] = []
        self._ended_jobs: list[str] = []
        self._is_lost = False
        self._mutex, self._turn, self._ended = threading.Lock(), threading.Lock(), threading.Event()

    @classmethod
    def take(cls, address: str, *, take_over: bool, tell: Tell) -> RemoteCopy:
        """Become the one writer, bring what lies at the address, and send from now on.

        `ConfigError` where another folder is at work there, unless `take_over`. `tell` hears where
        work that was never sent is set aside.
        """
        copy = cls(address, tell)
        copy._save(copy._record["common"])
        marker = copy.marker()
        if not marker and not copy._objects.create(_MARKER, copy._sign()):
            marker = copy.marker()
        if marker and marker["token"] != copy._record["token"] and not take_over:
            at = datetime.fromtimestamp(marker["time"], UTC).isoformat(timespec="seconds")
            raise ConfigError(
                f"{copy.address} is in use by {marker['host']}, which sent last at {at}; where "
                "that process is dead, --take-over goes on from what it has sent"
            )
        copy._objects.put(_MARKER, copy._sign())
        copy.bring(for_writing=True)
        threading.Thread(target=copy._keep_sending, name="send", daemon=True).start()
        return copy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Send a last time, and let others in. `StoppedEarly` where that fails; after an error,
        which matters more, it is told."""
        if self._ended.is_set():
            return
        self._ended.set()
        try:
            self.send()
            self._objects.delete([_MARKER])
        except ClaimscoreError as exc:
            advice = f"; {self.folder} has all of the run: run the same command again"
            text = f"{exc}{'' if self._is_lost else advice}"
            if error is None:
                raise StoppedEarly(text) from exc
            self._tell(text)

    # What lies there

    def marker(self) -> dict[str, Any]:
        """The marker; empty where there is none, or claimscore did not write it."""
        with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
            marker = json.loads(self._objects.get(_MARKER) or b"")
            datetime.fromtimestamp(marker["time"], UTC)
            if re.fullmatch(r"[\w.-]{1,253} [0-9a-f]{16}", f"{marker['host']} {marker['token']}"):
                return {name: marker[name] for name in ("host", "time", "token")}
        return {}

    def _sign(self) -> bytes:
        marker = {"host": socket.gethostname(), "time": time.time(), "token": self._record["token"]}
        return json.dumps(marker).encode()

    def is_at_work(self) -> bool:
        """Whether another machine has sent lately."""
        marker = self.marker()
        is_other = marker.get("token", self._record["token"]) != self._record["token"]
        return is_other and bool(time.time() - marker["time"] < _DEAD_S)

    def bring(self, *, for_writing: bool = False) -> None:
        """Make the folder what lies at the address, unless it is as new or newer."""
        snapshot = self.folder / _SNAPSHOT
        for is_last in (False, False, True):  # a run at work may replace parts meanwhile
            names, state = self._objects.names(), self._state()
            for name in names if for_writing else ():
                if re.fullmatch(_JOB, name):
                    self._objects.fetch(name, self.folder / name)
            if not self._objects.fetch(MANIFEST, snapshot):
                if self._record["common"]:
                    self._set_aside()
                return
            parts = _parts(snapshot)
            self._sent = {name: parts[name] for name in names if name in parts}
            if state == self._record["common"]:
                return
            if self._has_news():
                self._set_aside()
            elif self._fetch(parts) or is_last:
                snapshot.replace(self.folder / MANIFEST)
                self._save(state)
                return

    def _state(self) -> list[str]:
        return [_digest(self._objects.get(name) or b"") for name in (MANIFEST, SPEND)]

    def _has_news(self) -> bool:
        """Whether steps were finished in the folder since it was as the address."""
        path = self.folder / MANIFEST
        return path.exists() and _digest(path.read_bytes()) not in self._record["common"]

    def _fetch(self, parts: Mapping[str, Checksum]) -> bool:
        """Bring the parts and the files; whether the parts are as the manifest says."""
        is_whole = True
        for name, checksum in parts.items():
            path = self.folder / name
            if not _is(path, checksum):
                is_whole &= self._objects.fetch(name, path) and _is(path, checksum)
        for name in FILES:
            if not self._objects.fetch(name, self.folder / name):
                (self.folder / name).unlink(missing_ok=True)
        return is_whole

    def _set_aside(self) -> None:
        aside = self.folder.with_name(f"{self.folder.name}-{time.strftime('%Y%m%d-%H%M%S')}")
        with os_errors(aside):
            aside.mkdir(mode=0o700)
            for path in self.folder.iterdir():
                if path.name != LOCK:
                    path.rename(aside / path.name)
            (self.folder / ".state").mkdir(mode=0o700)
        self._save([])
        self._tell(
            f"{self.address}: another machine has gone on with this run, or it was removed there; "
            f"what this machine did is set aside in {aside}"
        )

    def _save(self, common: Sequence[str]) -> None:
        self._record["common"] = common
        write_text(self.folder / _RECORD, json.dumps(self._record))

    def import_into(self, cache: DiskCache) -> None:
        """Take the answers that other machines have sent into a cache of this one, once."""
        taken = cache.folder / _TAKEN
        taken.mkdir(mode=0o700, exist_ok=True)
        for name in self._objects.names():
            answers, path = re.fullmatch(_ANSWERS, name), self.folder / name
            mark = taken / path.name
            if answers and answers[1] != self._record["token"] and not mark.exists():
                if self._objects.fetch(name, path):
                    with contextlib.suppress(ConfigError):  # damaged: the rest is asked again
                        import_answers(cache, path)
                    path.unlink()
                mark.touch()

    def jobs(self, server: str) -> list[Path]:
        """The records of batch jobs that other machines have sent, by the name of the folder of
        their server's journal."""
        return sorted((self.folder / _JOBS_FOLDER / server).glob("*.json"))

    # What goes there

    def check(self) -> None:
        """`StoppedEarly` where another machine has taken the run over."""
        if self._is_lost:
            raise StoppedEarly(
                f"{self.address}: another machine has taken this run over; what this one did is in "
                f"{self.folder}"
            )

    def _look(self) -> None:
        self._is_lost = self._is_lost or self.marker().get("token") != self._record["token"]
        self.check()

    def add_answers(self, rows: Sequence[NewRow]) -> None:
        """Send these answers with the next send."""
        with self._mutex:
            self._rows += rows

    def send_job(self, path: Path) -> None:
        """Send what is new, the ledger too, and then the record of a batch job, before it is made;
        where the record is gone, the next send, which has its answers, removes it there."""
        self.check()
        name = f"{_JOBS_FOLDER}/{path.parent.name}/{path.name}"
        if not path.exists():
            (self.folder / name).unlink(missing_ok=True)
            self._ended_jobs.append(name)
            return
        self.send()
        self._objects.put(name, path)

    def send(self) -> None:
        """Send what is new. Raises as `check` does, and where the store refuses or is away."""
        with self._turn:
            self._look()
            snapshot = self.folder / _SNAPSHOT
            shutil.copyfile(self.folder / MANIFEST, snapshot)
            ended_jobs = self._ended_jobs.copy()  # whose answers this send has
            for name, checksum in _parts(snapshot).items():
                if self._sent.get(name) != checksum:
                    self._objects.put(name, self.folder / name)
                    self._sent[name] = checksum
            self._look()
            self._objects.put(MANIFEST, snapshot)
            _, ledger = self._record["common"] or ("", _digest(b""))
            ledger = self._send_files() or ledger
            self._send_answers()
            self._save([_digest(snapshot.read_bytes()), ledger])
            self._objects.put(_MARKER, self._sign())
            self._objects.delete(ended_jobs)
            del self._ended_jobs[: len(ended_jobs)]

    def _send_files(self) -> str | None:
        """Send the files that have changed; the digest of the ledger, where that was sent."""
        digest = None
        for name in FILES:
            path = self.folder / name
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if self._sent.get(name) != (status.st_size, status.st_mtime_ns):
                    content: bytes | Path = path
                    if name == SPEND:
                        content = self.ledger() if self.ledger else path.read_bytes()
                        digest = _digest(content)
                    self._objects.put(name, content)
                    self._sent[name] = status.st_size, status.st_mtime_ns
        return digest

    def _send_answers(self) -> None:
        with self._mutex:
            rows, self._rows = self._rows, []
        folder = self.folder / _ANSWERS_FOLDER
        if rows:
            folder.mkdir(mode=0o700, exist_ok=True)
            export_rows(rows, folder / f"{self._record['token']}-{time.time_ns()}.jsonl.gz")
        for path in folder.glob(f"{self._record['token']}-*.gz"):
            self._objects.put(f"{_ANSWERS_FOLDER}/{path.name}", path)
            path.unlink()

    def _keep_sending(self) -> None:
        while not (self._ended.wait(SEND_S) or self._is_lost):
            try:
                self.send()
            except ClaimscoreError as exc:  # the last send raises it again
                logger.info("not sent: %s", exc)

    def remove(self) -> None:
        """Remove all of ours that lies at the address, and send nothing more."""
        self._ended.set()
        with self._turn:
            self._look()
            self._objects.delete([MANIFEST])
            is_ours = re.compile("|".join((*map(re.escape, FILES), _PART, _ANSWERS, _JOB)))
            self._objects.delete([*filter(is_ours.fullmatch, self._objects.names()), _MARKER])


def _parts(manifest: Path) -> dict[str, Checksum]:
    """The parts that a manifest names."""
    return {part.name: part.checksum for part in Manifest(manifest).parts()}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is(path: Path, checksum: Checksum) -> bool:
    return path.is_file() and Checksum.of(path) == checksum
