"""A folder on a disk: files are synced and renamed into place."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from claimscore.atomic import atomic_file, os_errors, sync_folder, write_bytes
from claimscore.file_lock import FileLock
from claimscore.storage.interface import Stat, checked

#: What file systems answer that know no second name for a file.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


class LocalStorage:
    """A `Storage` on a disk that one machine, or several by NFS or the like, have in common."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._path)!r})"

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def local(self) -> Path:
        return self._path

    @property
    def writable(self) -> bool:
        return True

    def address(self, name: str = "") -> Path:
        return self._path / checked(name) if name else self._path

    def child(self, prefix: str) -> LocalStorage:
        return LocalStorage(self.address(prefix))

    def read(self, name: str) -> bytes:
        with self._reading(name) as path:
            return path.read_bytes()

    def open(self, name: str) -> BinaryIO:
        with self._reading(name) as path:
            return path.open("rb")

    def size(self, name: str) -> int:
        return self.stat(name).size

    def stat(self, name: str) -> Stat:
        with self._reading(name) as path:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError
            return Stat(found.st_size, f"{found.st_size} {found.st_mtime_ns}")

    def exists(self, name: str) -> bool:
        path = self._path / checked(name)
        with os_errors(path):
            return path.is_file()

    def version(self, name: str) -> str | None:
        try:
            return hashlib.sha256(self.read(name)).hexdigest()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes | memoryview) -> None:
        write_bytes(self._with_parents(name), data)

    def upload(self, name: str, path: Path) -> None:
        target = self._with_parents(name)
        with atomic_file(target) as copy, path.open("rb") as source:
            shutil.copyfileobj(source, copy, 1 << 20)

    def create(self, name: str, data: bytes | memoryview) -> bool:
        path = self._with_parents(name)
        if os.path.lexists(path):
            return False
        ready = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new.tmp")
        write_bytes(ready, data)
        try:
            with os_errors(path):
                return _linked(ready, path)
        finally:
            with contextlib.suppress(OSError):
                ready.unlink()

    def replace_if(self, name: str, data: bytes | memoryview, version: str) -> str | None:
        path = self._path / checked(name)
        if not path.parent.is_dir():
            return None
        with _locked(path):
            if self.version(name) != version:
                return None
            write_bytes(path, data)
        return hashlib.sha256(data).hexdigest()

    def delete(self, *names: str) -> None:
        folders = set()
        for name in names:
            path = self._path / checked(name)
            with os_errors(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
                folders.add(path.parent)
        for folder in folders:
            with os_errors(folder):
                sync_folder(folder)

    def names(self, prefix: str = "") -> Iterator[str]:
        folder = self.address(prefix)
        with os_errors(folder):
            found = [
                Path(where, file).relative_to(self._path).as_posix()
                for where, _, files in os.walk(folder)
                for file in files
                if not file.startswith(".")
            ]
        return iter(sorted(found))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        found = {}
        for name in self.names(prefix):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found[name] = self.size(name)
        return found

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[Path]:
        path = self._path / checked(name)
        try:
            yield path
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        except OSError:
            with os_errors(path):
                raise

    def _with_parents(self, name: str) -> Path:
        path = self._path / checked(name)
        missing = []
        folder = path.parent
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        with os_errors(path.parent):
            for folder in reversed(missing):
                folder.mkdir(exist_ok=True)
                sync_folder(folder.parent)
        return path


def _linked(ready: Path, path: Path) -> bool:
    """Give a finished file its name, unless another has it: a link never replaces."""
    try:
        os.link(ready, path)
    except FileExistsError:
        return False
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        with _locked(path):
            if os.path.lexists(path):
                return False
            ready.replace(path)
    sync_folder(path.parent)
    return True


def _locked(path: Path) -> FileLock:
    """One process, or thread, at a time compares and replaces a file."""
    lock = None
    with os_errors(path):
        while lock is None:
            lock = FileLock.take(
                path.with_name(f".{path.name}.lock"), patience_s=60.0, required=False
            )
    return lock
