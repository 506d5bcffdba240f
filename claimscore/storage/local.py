"""Files on a disk, synced and renamed into place."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from claimscore.atomic import atomic_path, os_errors, sync_folder, write_bytes
from claimscore.storage.interface import Stat, checked


class LocalStorage:
    """A `Storage` in a folder, also one that several machines share (NFS or the like)."""

    writable = True

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

    def stat(self, name: str) -> Stat:
        with self._reading(name) as path:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError
            return Stat(found.st_size, f"{found.st_size} {found.st_mtime_ns}")

    def exists(self, name: str) -> bool:
        path = self.address(checked(name))
        with os_errors(path):
            return path.is_file()

    def write(self, name: str, data: bytes | memoryview) -> None:
        write_bytes(self._with_parents(name), data)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        with atomic_path(self._with_parents(name)) as path:
            yield path

    def delete(self, *names: str) -> None:
        folders = set()
        for name in names:
            path = self.address(checked(name))
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
                found[name] = self.stat(name).size
        return found

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[Path]:
        path = self.address(checked(name))
        try:
            yield path
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        except OSError:
            with os_errors(path):
                raise

    def _with_parents(self, name: str) -> Path:
        """The path, in a folder that is there and survives a power cut."""
        path = self.address(checked(name))
        parents = (path.parent, *path.parent.parents)
        missing = [folder for folder in parents if not folder.exists()]
        with os_errors(path.parent):
            for folder in reversed(missing):
                folder.mkdir(mode=0o700, exist_ok=True)
                sync_folder(folder.parent)
        return path
