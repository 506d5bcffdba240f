"""A run directory at an address: a folder of this machine, and its copy in an object store.

    run.toml  <table>/part-*.parquet  .state/...          as in the folder
    .state/writer.json                       the marker of the one writer: host, time, token
    .state/answers/<token>-<time>.jsonl.gz   new answers, as `claimscore cache export` writes them
    .state/batches/<server>/<job>.json       batch jobs whose answers are not kept yet

A run works in the folder, and a thread sends what is new, parts before the manifest that names
them. So a reader finds all that the manifest names, or begins again. Credentials and endpoints come
from the variables that polars reads. This is the home of obstore.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import logging
import math
import os
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from claimscore.atomic import atomic_file, os_errors, write_bytes, write_text
from claimscore.cache.maintenance import export_rows, import_answers
from claimscore.cache.store import DiskCache, NewRow
from claimscore.config import names_aws_key, store_allows_http, user_state_dir
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.file_lock import FileLock
from claimscore.object_stores import check_store, first_words, store_error
from claimscore.runs.folder import FILES, LOCK, MANIFEST, SPEND
from claimscore.runs.manifest import Manifest
from claimscore.runs.parts import PART_FILE, PART_TABLES, Checksum

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

#: Seconds between two sends, and the age of a marker whose process is taken for dead.
SEND_S, DEAD_S = 45.0, 300.0

#: Each request has a time limit, and is tried again for half a minute.
RETRY: RetryConfig = {"max_retries": 8, "retry_timeout": timedelta(seconds=30)}
CLIENT: ClientConfig = {
    "timeout": timedelta(seconds=60),
    "connect_timeout": timedelta(seconds=10),
}
#: How the names of a store's environment variables begin.
_PREFIX = {"s3": "AWS", "gs": "GOOGLE"}

_MARKER, _RECORD, _SNAPSHOT = ".state/writer.json", ".state/remote.json", ".state/manifest.new"
_ANSWERS_FOLDER, _JOBS_FOLDER = ".state/answers", ".state/batches"

#: Patterns of the names of parts, exports of answers, and batch jobs.
_PART = rf"({'|'.join(sorted(PART_TABLES))})/{PART_FILE}"
_ANSWERS = r"\.state/answers/([0-9a-f]{16})-\d{19}\.jsonl\.gz"
_JOB = r"\.state/batches/[0-9a-f]{16}/[0-9a-f]{32}\.json"

logger = logging.getLogger(__name__)


class Objects:
    """The objects below an address, by their names. Threads may share it.

    Raises `ConfigError` for an address that cannot be, a missing bucket and a refusal, and
    `StoppedEarly` for a store that is not reached.
    """

    def __init__(self, address: str) -> None:
        check_store(address)
        self.address = address
        with self._errors():
            self._store: Any = _connect(address)

    def get(self, name: str) -> bytes | None:
        """The content; None where there is no such object."""
        with contextlib.suppress(FileNotFoundError), self._errors():
            return bytes(self._store.get(name).bytes())
        return None

    def fetch(self, name: str, path: Path) -> bool:
        """Bring an object to a path, whole or not at all; False where there is none. A file of its
        size and time is taken for the object."""
        with contextlib.suppress(FileNotFoundError), self._errors():
            reply = self._store.get(name)
            size, at = reply.meta["size"], reply.meta["last_modified"].timestamp()
            if path.exists() and (path.stat().st_size, path.stat().st_mtime) == (size, at):
                return True
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic_file(path) as file:
                for block in reply.stream():
                    file.write(block)
            os.utime(path, (at, at))
            return True
        return False

    def put(self, name: str, content: bytes | Path) -> None:
        """Replace an object, wholly or not at all."""
        try:
            with self._errors():
                self._store.put(name, content)
        except FileNotFoundError:
            raise ConfigError(f"{self.address}: there is no such bucket") from None

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; a missing one is no error."""
        with contextlib.suppress(FileNotFoundError), self._errors():
            if names:
                self._store.delete(list(names))

    def names(self) -> list[str]:
        """The names of all objects."""
        with self._errors():
            return [meta["path"] for meta in self._store.list().collect()]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """A store's errors as ours; `FileNotFoundError` only where its bucket is there."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, FileNotFoundError) as exc:
            if isinstance(exc, FileNotFoundError) and "NoSuchBucket" not in str(exc):
                raise
            unknown = ConfigError(f"{self.address}: {first_words(exc)}")
            raise store_error(self.address, exc) or unknown from None


def _connect(address: str) -> Any:
    from obstore.store import from_url

    scheme = address.partition("://")[0]
    client = CLIENT | {"allow_http": store_allows_http(_PREFIX.get(scheme, "AZURE"))}
    options: dict[str, Any] = {"client_options": client, "retry_config": RETRY}
    if scheme == "s3" and not names_aws_key() and importlib.util.find_spec("boto3"):
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider

        try:
            options["credential_provider"] = Boto3CredentialProvider()
        except (ValueError, BotoCoreError) as exc:
            why = exc if isinstance(exc, BotoCoreError) else "no credentials were found"
            raise ConfigError(f"{address}: {why}; see docs/reference/object-stores.md") from None
    return from_url(address, **options)


def local_folder(address: str) -> Path:
    """The folder of this machine for what is at an address."""
    address = address.rstrip("/")
    name = re.sub(r"[^\w.-]", "_", address.rpartition("/")[2])
    return user_state_dir() / "runs" / f"{name}-{_digest(address.encode())[:16]}"


def fetch(address: str) -> None:
    """Bring what lies at the address into its folder, for a reader; where a process of this machine
    works in the folder, it has all."""
    copy = RemoteCopy(address)
    with os_errors(copy.folder):
        (copy.folder / ".state").mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock.take(copy.folder / LOCK)
    if lock is not None:
        with lock:
            copy.bring()


class RemoteCopy:
    """The copy of a folder at an address; the caller holds the folder's lock. Threads may share it.

    As a context manager it is the one writer: it brings what lies there, sends what is new from
    time to time, and a last time at the end. A send that fails loses nothing: the next one sends it
    too.
    """

    def __init__(self, address: str, tell: Callable[[str], None] = logger.warning) -> None:
        self.address = address.rstrip("/")
        self.folder = local_folder(address)
        self._tell, self._objects = tell, Objects(self.address)
        #: The name of the folder, and digests of manifest and ledger that it last had in common
        #: with the address.
        self._record: dict[str, Any] = {"token": secrets.token_hex(8), "common": [_digest(b"")] * 2}
        with contextlib.suppress(OSError, ValueError):
            self._record |= json.loads((self.folder / _RECORD).read_bytes())
        self._sent: dict[str, Any] = {}  # what tells whether a file has changed since, by name
        self._rows: list[NewRow] = []
        self._jobs: dict[str, Path] = {}
        self._is_lost = False
        self._mutex, self._turn, self._ended = threading.Lock(), threading.Lock(), threading.Event()

    def __enter__(self) -> Self:
        """`ConfigError` where another machine is at work there."""
        host, _, age_s = self._marker()
        if self.is_elsewhere:
            raise ConfigError(
                f"{self.address} is in use by {host}, which sent last {age_s:.0f} s ago; where it "
                f"is dead, run the same command again in {DEAD_S - age_s:.0f} s"
            )
        self._save(self._record["common"])
        self._sign()
        self.bring()
        threading.Thread(target=self._keep_sending, name="send", daemon=True).start()
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

    def _marker(self) -> tuple[str, str, float]:
        """The host and the token of the one writer, and the seconds since it was there; "" where
        there is none."""
        with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
            marker = json.loads(self._objects.get(_MARKER) or b"")
            host, token, age_s = marker["host"], marker["token"], time.time() - marker["time"]
            if re.fullmatch(r"[\w.-]{1,253} [0-9a-f]{16}", f"{host} {token}"):
                return host, token, abs(age_s)
        return "", "", math.inf

    def _sign(self) -> None:
        marker = {"host": socket.gethostname(), "time": time.time(), "token": self._record["token"]}
        self._objects.put(_MARKER, json.dumps(marker).encode())

    @property
    def is_elsewhere(self) -> bool:
        """Whether another machine has sent lately."""
        _, token, age_s = self._marker()
        return token != self._record["token"] and age_s < DEAD_S

    def bring(self) -> None:
        """Make the folder what lies at the address, unless it is as new or newer; `ConfigError`
        where both went on."""
        snapshot, manifest = self.folder / _SNAPSHOT, self.folder / MANIFEST
        if not self._objects.fetch(MANIFEST, snapshot):
            write_bytes(snapshot, b"")
        there = snapshot.read_bytes(), self._objects.get(SPEND) or b""
        common, parts = list(map(_digest, there)), _parts(snapshot)
        self._sent = {name: parts[name] for name in self._objects.names() if name in parts}
        if common == self._record["common"]:
            return
        if manifest.exists() and _digest(manifest.read_bytes()) not in self._record["common"]:
            raise ConfigError(
                f"{self.address}: another machine has gone on with this run, or it was removed "
                f"there, and {self.folder} has work that was never sent; move that folder away and "
                "run the same command again"
            )
        for name, checksum in parts.items():
            path = self.folder / name
            if not (path.is_file() and Checksum.of(path) == checksum):
                self._objects.fetch(name, path)
        for name in FILES:
            if not self._objects.fetch(name, self.folder / name):
                (self.folder / name).unlink(missing_ok=True)
        snapshot.replace(manifest)
        self._save(common)

    def _save(self, common: Sequence[str]) -> None:
        self._record["common"] = common
        write_text(self.folder / _RECORD, json.dumps(self._record))

    def import_into(self, cache: DiskCache) -> None:
        """Take the answers that other machines have sent into a cache of this one."""
        for name in self._objects.names():
            answers, path = re.fullmatch(_ANSWERS, name), self.folder / name
            if answers and answers[1] != self._record["token"] and self._objects.fetch(name, path):
                with contextlib.suppress(ConfigError):  # damaged: the rest is asked again
                    import_answers(cache, path)
                path.unlink()

    def jobs(self, server: str) -> list[Path]:
        """The records of batch jobs that other machines have sent, by the name of the folder of
        their server's journal."""
        folder = f"{_JOBS_FOLDER}/{server}/"
        names = [name for name in self._objects.names() if re.fullmatch(_JOB, name)]
        here = {name: self.folder / name for name in names if name.startswith(folder)}
        return [path for name, path in here.items() if self._objects.fetch(name, path)]

    # What goes there

    def check(self) -> None:
        """`StoppedEarly` where another machine has taken the run over."""
        if self._is_lost:
            raise StoppedEarly(
                f"{self.address}: another machine has taken this run over; what this one did is in "
                f"{self.folder}"
            )

    def _look(self) -> None:
        self._is_lost = self._is_lost or self._marker()[1] != self._record["token"]
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
        self._jobs[name] = path
        if path.exists():
            self.send()
            self._objects.put(name, path)

    def send(self) -> None:
        """Send what is new. Raises as `check` does, and where the store refuses or is away."""
        with self._turn:
            self._look()
            snapshot, ledger = self.folder / _SNAPSHOT, self._record["common"][1]
            shutil.copyfile(self.folder / MANIFEST, snapshot)
            ended_jobs = [name for name, path in self._jobs.copy().items() if not path.exists()]
            for name, checksum in _parts(snapshot).items():
                if self._sent.get(name) != checksum:
                    self._objects.put(name, self.folder / name)
                    self._sent[name] = checksum
            self._look()
            self._objects.put(MANIFEST, snapshot)
            for name in FILES:
                path = self.folder / name
                with contextlib.suppress(FileNotFoundError):
                    seen = path.stat().st_size, path.stat().st_mtime_ns
                    if self._sent.get(name) != seen:
                        content = path.read_bytes() if name == SPEND else path
                        ledger = _digest(content) if isinstance(content, bytes) else ledger
                        self._objects.put(name, content)
                        self._sent[name] = seen
            self._send_answers()
            self._save([_digest(snapshot.read_bytes()), ledger])
            self._sign()
            self._objects.delete(ended_jobs)
            for name in ended_jobs:
                del self._jobs[name]

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
