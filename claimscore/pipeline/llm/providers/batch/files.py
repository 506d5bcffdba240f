"""What is known of every batch on disk, from before it is sent until its answers are kept.

    FOLDER/<uuid>/requests.jsonl   the lines as the server gets them; a line's `custom_id` is
                                   the request's key
    FOLDER/<uuid>/state.json       how far it has come; written before and after every step
    FOLDER/<uuid>/lock             held by the process that submits it
    FOLDER/lock                    held for the moment in which requests are claimed

A batch is there as long as its `state.json` is. Locks end with their process, however it ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from claimscore.atomic import atomic_file, os_errors, write_text
from claimscore.errors import ConfigError
from claimscore.types import JSON

#: What may have happened on the server: "uploading" and "creating" are written ahead, so after
#: them the server must be asked what came of it. Only "creating" and "created" can cost money.
Status = Literal["prepared", "uploading", "uploaded", "creating", "created"]

VERSION = 1
_REQUESTS, _STATE, _LOCK = "requests.jsonl", "state.json", "lock"
_KEY_HEX = 64
_ID_START = b'{"custom_id": "'


@dataclasses.dataclass(frozen=True, slots=True)
class BatchState:
    """One batch. `written_at` is when this state was written; `dialect` how its lines ask."""

    uuid: str
    status: Status
    model: str
    n_requests: int
    n_bytes: int
    sha256: str
    prepared_at: float
    written_at: float
    dialect: JSON = dataclasses.field(default_factory=dict)
    file_id: str | None = None
    batch_id: str | None = None

    @property
    def file_name(self) -> str:
        """The name under which the server gets the requests; nobody else uses it."""
        return f"claimscore-{self.uuid}.jsonl"

    def to_json(self) -> JSON:
        return {"v": VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, value: JSON) -> BatchState:
        fields = {name: value[name] for name in cls.__dataclass_fields__}
        if fields["status"] not in get_args(Status):
            raise ValueError(f"status {fields['status']!r}")
        return cls(**fields)


class Prepared(NamedTuple):
    """A batch that was just written, locked for the process that wrote it."""

    state: BatchState
    keys: list[str]
    lock: Lock


class Lock:
    """An advisory lock on a file, until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Lock | None:
        """None where somebody holds it, or where the folder of the file is gone."""
        with os_errors(path):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:
                return None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                os.close(descriptor)
                if exc.errno in (errno.EAGAIN, errno.EACCES):
                    return None
                raise
        return cls(descriptor)

    def release(self) -> None:
        """May be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class BatchFolder:
    """The batches of one server and account; several processes may use it."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._now = now

    def make(self) -> None:
        """Create the folder so that nobody else can read the requests."""
        with os_errors(self.path):
            new = [path for path in (self.path, *self.path.parents) if not path.exists()]
            for path in reversed(new):
                path.mkdir(mode=0o700, exist_ok=True)

    def claim(self) -> Lock | None:
        """The right to add batches; None while another process has it."""
        return Lock.take(self.path / _LOCK)

    def lock(self, name: str) -> Lock | None:
        """The right to submit a batch; None while its process lives, or where it is gone."""
        return Lock.take(self.path / name / _LOCK)

    def names(self) -> list[str]:
        """The batches that are there."""
        return sorted(path.parent.name for path in self.path.glob(f"*/{_STATE}"))

    def prepare(
        self, lines: Iterable[tuple[str, bytes]], *, model: str, dialect: JSON, max_bytes: int
    ) -> Prepared | None:
        """Write as many of the lines as fit into one file; None where not even one does.

        The claim must be held: a folder without a state is a leftover to everybody else.
        """
        name = uuid.uuid4().hex
        folder = self.path / name
        with os_errors(folder):
            folder.mkdir(mode=0o700)
        keys: list[str] = []
        digest, n_bytes = hashlib.sha256(), 0
        with atomic_file(folder / _REQUESTS) as stream:
            for key, line in lines:
                if n_bytes + len(line) > max_bytes:
                    break
                stream.write(line)
                digest.update(line)
                n_bytes += len(line)
                keys.append(key)
        lock = self.lock(name) if keys else None
        if lock is None:
            self.remove(name)
            return None
        now = self._now()
        state = BatchState(
            uuid=name,
            status="prepared",
            model=model,
            n_requests=len(keys),
            n_bytes=n_bytes,
            sha256=digest.hexdigest(),
            prepared_at=now,
            written_at=now,
            dialect=dialect,
        )
        self.write(state)
        return Prepared(state, keys, lock)

    def write(self, state: BatchState) -> None:
        """Durable when it returns."""
        write_text(self.path / state.uuid / _STATE, json.dumps(state.to_json(), indent=1) + "\n")

    def moved(self, state: BatchState, status: Status, **changes: Any) -> BatchState:
        """The state after a step, written."""
        new = dataclasses.replace(state, status=status, written_at=self._now(), **changes)
        self.write(new)
        return new

    def read(self, name: str) -> BatchState | None:
        """A batch, or None where it is gone.

        A damaged state reads as "creating": the server is asked by name what it has.
        """
        path = self.path / name / _STATE
        try:
            with os_errors(path):
                value = json.loads(path.read_bytes())
            if value["v"] > VERSION:
                raise ConfigError(f"{path}: written by a newer claimscore; use that one")
            return BatchState.from_json(value)
        except ConfigError:
            if not path.exists():
                return None
            raise
        except (ValueError, KeyError, TypeError):
            return self._unknown(name)

    def keys(self, name: str) -> list[str]:
        """The keys of a batch's requests; empty where it is gone meanwhile."""
        try:
            with self.requests(name).open("rb") as stream:
                return list(_keys(stream))
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise ConfigError(f"{self.requests(name)}: {exc}") from exc

    def is_whole(self, state: BatchState) -> bool:
        """Whether the requests are still what was written."""
        try:
            with self.requests(state.uuid).open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest() == state.sha256
        except OSError:
            return False

    def requests(self, name: str) -> Path:
        """The file that the server gets."""
        return self.path / name / _REQUESTS

    def remove(self, name: str) -> None:
        """Forget a batch: its state first, so that a kill leaves a leftover, not a batch."""
        folder = self.path / name
        with os_errors(folder):
            (folder / _STATE).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what kills left behind; the claim must be held."""
        with os_errors(self.path):
            for folder in self.path.iterdir():
                if folder.is_dir() and not (folder / _STATE).exists():
                    shutil.rmtree(folder, ignore_errors=True)

    def _unknown(self, name: str) -> BatchState:
        n_requests = len(self.keys(name))
        return BatchState(name, "creating", "", n_requests, 0, "", 0.0, 0.0)


def batch_folder(cache_dir: Path, namespace: str) -> Path:
    """Where the batches of one server lie: beside the answers that they will bring."""
    return cache_dir / "batches" / hashlib.sha256(namespace.encode()).hexdigest()[:16]


def paid_twice_online(path: Path, model: str) -> str | None:
    """What a user should know who asks a model online while batches to it are under way."""
    folder = BatchFolder(path)
    states = [state for name in folder.names() if (state := folder.read(name)) is not None]
    waiting = [s for s in states if s.model == model and s.status in ("creating", "created")]
    if not waiting:
        return None
    n_requests = sum(state.n_requests for state in waiting)
    return (
        f"{n_requests:,} requests to {model} are in {named(waiting)}; asked online they are paid "
        f"for again; --llm openai-batch:{model} collects them"
    )


def named(states: list[BatchState]) -> str:
    """Batches in a sentence, by the names that the server gave them."""
    names = [state.batch_id or state.uuid for state in states]
    if len(names) == 1:
        return f"batch {names[0]}"
    some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} batches ({some})"


def _keys(stream: Iterable[bytes]) -> Iterator[str]:
    start = len(_ID_START)
    for line in stream:
        with contextlib.suppress(UnicodeDecodeError):
            key = line[start : start + _KEY_HEX].decode("ascii")
            if line.startswith(_ID_START) and len(key) == _KEY_HEX:
                yield key
