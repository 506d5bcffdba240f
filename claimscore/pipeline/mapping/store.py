"""A map whose file is in an object store.

The unfinished work lies on this machine, in the user's state folder, and the finished file is
sent by one atomic PUT. A file that is there already is fetched first: it knows its settings, and
its failed rows may be tried again. So the store has the last finished file, whole, at any
moment, and this machine nothing when it is done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from claimscore.atomic import atomic_path, os_errors, write_text
from claimscore.config import user_state_dir
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.pipeline.mapping.config import MapConfig, MapResult
from claimscore.pipeline.mapping.finished import failures_path
from claimscore.pipeline.mapping.parts import parts_path
from claimscore.storage import Folder, open_file

_BLOCK = 1 << 20


def to_store(config: MapConfig, do: Callable[[MapConfig], MapResult]) -> MapResult:
    """Do a map with a file on this machine, then send it to where it belongs."""
    address = str(config.out)
    place = work_path(address)
    out = _RemoteOut(address, place)
    with os_errors(place.parent):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with named(address, place), _locked(place):
        try:
            out.fetch_unless_newer()
            result = do(dataclasses.replace(config, out=place))
            out.publish()
        finally:
            out.clear_unless_needed()
    failures = str(out.folder.address(out.failures)) if result.failed else None
    summary = {**result.summary, "out": address, "failures": failures}
    return dataclasses.replace(result, path=address, summary=summary)


@contextlib.contextmanager
def looked_up(config: MapConfig) -> Iterator[MapConfig]:
    """The same map with what there is of its file on this machine, for who only looks."""
    address = str(config.out)
    place = work_path(address)
    if parts_path(place).exists():
        yield dataclasses.replace(config, out=place)
        return
    with tempfile.TemporaryDirectory(prefix="claimscore-") as scratch:
        here = Path(scratch, place.name)
        with named(address, here):
            _RemoteOut(address, here).fetch_unless_newer()
            yield dataclasses.replace(config, out=here)


def work_path(address: str) -> Path:
    """Where the work for an address lies on this machine until it is sent."""
    digest = hashlib.sha256(address.encode()).hexdigest()[:16]
    return user_state_dir() / "maps" / digest / address.rpartition("/")[2]


def is_unsent(place: Path) -> bool:
    """Whether the finished file at `place` is not what the store has."""
    if not place.exists():
        return False
    marker = _marker_path(place)
    return _digest(place) != (marker.read_text() if marker.exists() else "")


class _RemoteOut:
    """A file in a store and its copy at `place`."""

    def __init__(self, address: str, place: Path) -> None:
        self.folder, self.key = _open(address)
        self.failures = f"{self.key.removesuffix('.parquet')}.failures.parquet"
        self._address = address
        self._place = place
        self._marker = _marker_path(place)

    def fetch_unless_newer(self) -> None:
        """Copy what the store has, unless there is unfinished or unsent work here.

        The marker has the digest of what the store has, and is written before a copy gets its
        name: a file that is not what the marker says was made here.
        """
        if parts_path(self._place).exists() or is_unsent(self._place):
            return
        self._forget()
        self._fetch(self.failures, failures_path(self._place))
        self._fetch(self.key, self._place, self._marker)

    def publish(self) -> None:
        """Send what was made here, the failures first, as they are written on a disk."""
        if not is_unsent(self._place):
            return
        failures = failures_path(self._place)
        if failures.exists():
            self.folder.upload(self.failures, failures)
        self.folder.upload(self.key, self._place)
        if not failures.exists():
            self.folder.delete(self.failures)
        write_text(self._marker, _digest(self._place))

    def clear_unless_needed(self) -> None:
        """Leave nothing on this machine but work that is unfinished or not sent yet."""
        if parts_path(self._place).exists() or is_unsent(self._place):
            return
        self._forget()
        with contextlib.suppress(OSError):
            _lock_path(self._place).unlink()
            self._place.parent.rmdir()

    def _forget(self) -> None:
        for path in (self._place, failures_path(self._place), self._marker):
            path.unlink(missing_ok=True)

    def _fetch(self, key: str, path: Path, marker: Path | None = None) -> None:
        try:
            source = self.folder.open(key)
        except FileNotFoundError:
            return
        with source, atomic_path(path) as temporary:
            with temporary.open("xb") as copy:
                shutil.copyfileobj(source, copy, _BLOCK)
            if marker is not None:
                write_text(marker, _digest(temporary))


def _marker_path(place: Path) -> Path:
    return place.with_name(f"{place.name}.fetched")


def _lock_path(place: Path) -> Path:
    return place.with_name(".lock")


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """One process of this machine at a time; the lock ends with the process."""
    path = _lock_path(place)
    busy = ConfigError(f"{place} is in use by another process; wait for it, or stop it")
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno not in (errno.EAGAIN, errno.EACCES):
                return (yield)  # a file system without locks
            raise busy from None
        if not (path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno()))):
            raise busy  # who held it has just removed it
        yield


def _open(address: str) -> tuple[Folder, str]:
    folder, key = open_file(address)
    if not folder.writable:
        raise ConfigError(f"--out {address}: a web server's files can only be read")
    return folder, key


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def named(address: str, place: Path) -> Iterator[None]:
    """Errors about the copy are about the file that the user named."""
    try:
        yield
    except (ConfigError, StoppedEarly) as exc:
        text = re.sub(re.escape(str(place)) + r"(?!\.parts)", lambda _: address, str(exc))
        if text == str(exc):
            raise
        raise type(exc)(text) from exc
