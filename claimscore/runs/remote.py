"""A run directory at an address: a folder of this machine, and its copy in an object store.

    run.toml  <table>/part-*.parquet  .state/...          as in the folder
    .state/writer.json                       the marker of the one writer: host, time, token
    .state/answers/<token>-<time>.jsonl.gz   new answers, as `claimscore cache export` writes them
    .state/batches/<server>/<job>.json       batch jobs whose answers are not kept yet

A run works in the folder, and a thread sends what is new. Parts go before the manifest that names
them; those that it names no more are removed after it. So a reader finds all that the manifest
names, or begins again.
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
from typing import Any

from claimscore.atomic import os_errors, write_bytes, write_text
from claimscore.cache.maintenance import export_rows, import_answers
from claimscore.cache.store import DiskCache, NewRow
from claimscore.config import user_state_dir
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.file_lock import FileLock, is_locked
from claimscore.runs.folder import LOCK
from claimscore.runs.manifest import Manifest
from claimscore.runs.objects import Objects
from claimscore.runs.parts import PART_FILE, PART_TABLES, Checksum

Tell = Callable[[str], None]

#: Seconds between two sends, and the age of a marker whose process `status` takes for dead.
SEND_S, _DEAD_S = 45.0, 300.0

#: How often reading or sending begins, where a part is replaced meanwhile.
_TRIES = 3

_MARKER, _MANIFEST, _SPEND = ".state/writer.json", ".state/manifest.log", ".state/spend.jsonl"
_SNAPSHOT, _RECORD = ".state/manifest.new", ".state/remote.json"

#: The files that go beside the manifest and the parts, in this order.
_FILES = (
    *(".state/run.toml", "run.toml", _SPEND, ".state/plan.json", ".state/scores.json"),
    *("scores.parquet", "scores.csv", "summary.json", "report.html", "events.jsonl"),
    ".state/now.json",
)
#: Patterns of the names of parts, exports of answers, and batch jobs.
_PART = rf"({'|'.join(sorted(PART_TABLES))})/{PART_FILE}"
_ANSWERS_FOLDER = ".state/answers"
_ANSWERS = r"\.state/answers/[0-9a-f]{16}-\d{19}\.jsonl\.gz"
_JOB = r"\.state/batches/[0-9a-f]{16}/[0-9a-f]{32}\.json"

logger = logging.getLogger(__name__)


def local_folder(address: str) -> Path:
    """The folder of this machine for what is at an address."""
    address = address.rstrip("/")
    name = re.sub(r"[^\w.-]", "_", address.rpartition("/")[2])
    return user_state_dir() / "runs" / f"{name}-{_digest(address.encode())[:16]}"


def fetch(address: str) -> Path:
    """The folder for a reader: as it is where a process of this machine works in it, else with
    what lies at the address."""
    copy = RemoteCopy(address)
    with os_errors(copy.folder):
        (copy.folder / ".state").mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock.take(copy.folder / LOCK)
    if lock is not None:
        with lock:
            copy.bring(logger.warning)
            write_text(copy.folder / _MARKER, json.dumps(copy.marker()))
    return copy.folder


def is_at_work(folder: Path) -> bool:
    """Whether a process works on a run directory, in this folder or where it was fetched from."""
    marker = _read_json(folder / _MARKER)
    is_elsewhere = marker.get("token") != _read_json(folder / _RECORD).get("token")
    is_alive = is_elsewhere and time.time() - marker.get("time", 0) < _DEAD_S
    return is_alive or is_locked(folder / LOCK)


class RemoteCopy:
    """The copy of a folder at an address; the caller holds the folder's lock. Threads may share it.

    A send that fails loses nothing: the next one sends it too. `ledger`, where it is set, gives a
    short form of the ledger, which is sent in its place.
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self.folder = local_folder(address)
        self.ledger: Callable[[], bytes] | None = None
        self._objects = Objects(self.address)
        #: The name of the folder, and digests of manifest and ledger that it last had in common
        #: with the address.
        self._record: dict[str, Any] = {"token": secrets.token_hex(8), "common": []}
        self._record |= _read_json(self.folder / _RECORD)
        self._sent: dict[str, Any] = {}
        self._rows: list[NewRow] = []
        self._old_jobs: set[str] = set()
        self._is_lost = False
        self._mutex, self._turn, self._ended = threading.Lock(), threading.Lock(), threading.Event()

    @classmethod
    def take(cls, address: str, *, take_over: bool, tell: Tell) -> RemoteCopy:
        """Become the one writer, bring what lies at the address, and send from now on.

        `ConfigError` where another folder is at work there, unless `take_over`. `tell` hears where
        work that was never sent is set aside.
        """
        copy = cls(address)
        write_text(copy.folder / _RECORD, json.dumps(copy._record))
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
        copy.bring(tell, for_writing=True)
        threading.Thread(target=copy._keep_sending, name="send", daemon=True).start()
        return copy

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

    def bring(self, tell: Tell, *, for_writing: bool = False) -> None:
        """Make the folder what lies at the address, unless it is as new or newer."""
        snapshot = self.folder / _SNAPSHOT
        for tries_left in reversed(range(_TRIES)):
            names, state = self._objects.names(), self._state()
            for name in names if for_writing else ():
                path = self.folder / name
                if re.fullmatch(_JOB, name) or (re.fullmatch(_ANSWERS, name) and not path.exists()):
                    self._objects.fetch(name, path)
            if not self._objects.fetch(_MANIFEST, snapshot):
                if self._record["common"]:
                    self._set_aside(tell)
                return
            parts = _parts(snapshot)
            self._sent = {name: parts.get(name) for name in names if re.fullmatch(_PART, name)}
            if state == self._record["common"]:
                return
            if self._has_news():
                self._set_aside(tell)
            elif (self._fetch(parts) and self._state() == state) or not tries_left:
                snapshot.replace(self.folder / _MANIFEST)
                self._save(state)
                return

    def _state(self) -> list[str]:
        return [_digest(self._objects.get(name) or b"") for name in (_MANIFEST, _SPEND)]

    def _has_news(self) -> bool:
        """Whether steps were finished in the folder since it was as the address."""
        path = self.folder / _MANIFEST
        return path.exists() and _digest(path.read_bytes()) not in self._record["common"]

    def _fetch(self, parts: Mapping[str, Checksum]) -> bool:
        """Bring the parts and the files; whether the parts are as the manifest says."""
        is_whole = True
        for name, checksum in parts.items():
            path = self.folder / name
            if not _is(path, checksum):
                is_whole &= self._objects.fetch(name, path) and _is(path, checksum)
        for name in _FILES:
            if not self._objects.fetch(name, self.folder / name):
                (self.folder / name).unlink(missing_ok=True)
        return is_whole

    def _set_aside(self, tell: Tell) -> None:
        aside = self.folder.with_name(f"{self.folder.name}-{time.strftime('%Y%m%d-%H%M%S')}")
        with os_errors(aside):
            aside.mkdir(mode=0o700)
            for path in self.folder.iterdir():
                if path.name != LOCK:
                    path.rename(aside / path.name)
            (self.folder / ".state").mkdir(mode=0o700)
        self._save([])
        tell(
            f"{self.address}: another machine has gone on with this run, or it was removed there; "
            f"what this machine did is set aside in {aside}"
        )

    def _save(self, common: Sequence[str]) -> None:
        self._record["common"] = common
        write_text(self.folder / _RECORD, json.dumps(self._record))

    def import_answers(self, cache: DiskCache) -> None:
        """Take the answers that other machines have sent into a cache of this one."""
        for path in sorted((self.folder / _ANSWERS_FOLDER).glob("*.gz")):
            if path.stat().st_size and not path.name.startswith(self._record["token"]):
                with contextlib.suppress(ConfigError):  # damaged: what is missing is asked again
                    import_answers(cache, path)
                path.write_bytes(b"")  # as a sign

    def take_jobs(self, journals: Path) -> None:
        """Put the batch jobs that other machines have sent into the journals of this one."""
        for path in (self.folder / ".state/batches").glob("*/*.json"):
            target = journals / path.parent.name / path.name
            with os_errors(journals):
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_bytes(target, path.read_bytes())
            path.unlink()

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
        """Send the record of a batch job now; where it is gone, the next send removes it there."""
        self.check()
        name = f".state/batches/{path.parent.name}/{path.name}"
        if path.exists():
            self._objects.put(name, path)
        else:
            self._old_jobs.add(name)

    def send(self) -> None:
        """Send what is new. Raises as `check` does, and where the store refuses or is away."""
        with self._turn:
            self._write_answers()
            for tries_left in reversed(range(_TRIES)):
                try:
                    self._send()
                    return
                except FileNotFoundError as exc:  # a part was compacted meanwhile
                    if not tries_left:
                        raise ConfigError(f"{exc.filename}: missing; it cannot be sent") from exc

    def _write_answers(self) -> None:
        with self._mutex:
            rows, self._rows = self._rows, []
        folder = self.folder / _ANSWERS_FOLDER
        if rows:
            folder.mkdir(mode=0o700, exist_ok=True)
            export_rows(rows, folder / f"{self._record['token']}-{time.time_ns()}.jsonl.gz")

    def _send(self) -> None:
        self._look()
        snapshot, old_jobs = self.folder / _SNAPSHOT, set(self._old_jobs)
        shutil.copyfile(self.folder / _MANIFEST, snapshot)
        parts = _parts(snapshot)
        for name, checksum in parts.items():
            if self._sent.get(name) != checksum:
                self._objects.put(name, self.folder / name)
                self._sent[name] = checksum
        self._look()
        self._objects.put(_MANIFEST, snapshot)
        for name in _FILES:
            stamp = _stamp(self.folder / name)
            if stamp is not None and self._sent.get(name) != stamp:
                ledger = self.ledger if name == _SPEND else None
                self._objects.put(name, ledger() if ledger else self.folder / name)
                self._sent[name] = stamp
        for path in (self.folder / _ANSWERS_FOLDER).glob(f"{self._record['token']}-*.gz"):
            if path.stat().st_size:
                self._objects.put(f"{_ANSWERS_FOLDER}/{path.name}", path)
                path.write_bytes(b"")
        self._save(self._state())
        self._objects.put(_MARKER, self._sign())
        superseded = {name for name in self._sent if re.fullmatch(_PART, name)} - parts.keys()
        self._objects.delete([*superseded, *old_jobs])
        self._old_jobs -= old_jobs
        for name in superseded:
            del self._sent[name]

    def _keep_sending(self) -> None:
        while not (self._ended.wait(SEND_S) or self._is_lost):
            try:
                self.send()
            except ClaimscoreError as exc:  # the last send raises it again
                logger.info("not sent: %s", exc)

    def close(self) -> None:
        """Send a last time, and let others in. `StoppedEarly` where that fails."""
        self._ended.set()
        try:
            self.send()
            self._objects.delete([_MARKER])
        except ClaimscoreError as exc:
            self.check()
            raise StoppedEarly(
                f"{exc}; {self.folder} has all of the run: run the same command again"
            ) from exc

    def remove(self) -> None:
        """Remove all of ours that lies at the address, and send nothing more."""
        self._ended.set()
        with self._turn:
            self._look()
            self._objects.delete([_MANIFEST])
            is_ours = re.compile("|".join((*map(re.escape, _FILES), _PART, _ANSWERS, _JOB)))
            self._objects.delete([*filter(is_ours.fullmatch, self._objects.names()), _MARKER])


def _parts(manifest: Path) -> dict[str, Checksum]:
    """The parts that a manifest names."""
    sets = Manifest(manifest).sets()
    return {parts.name(table): sums for parts in sets for table, sums in parts.checksums.items()}


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a file of ours; empty where there is none."""
    with contextlib.suppress(OSError, ValueError):
        content: dict[str, Any] = json.loads(path.read_bytes())
        return content
    return {}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _stamp(path: Path) -> tuple[int, int] | None:
    """The size of a file and the time of its last change."""
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return None


def _is(path: Path, checksum: Checksum) -> bool:
    return path.is_file() and Checksum.of(path) == checksum
