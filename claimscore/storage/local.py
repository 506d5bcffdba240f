"""Files on a disk, synced and renamed into place."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from claimscore.atomic import atomic_path, os_errors, sync_folder, write_bytes
from claimscore.storage.interface import checked


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

    def read(self, name: str) -> bytes:
        with self.open(name) as stream, os_errors(self.address(name)):
            return stream.read()

    def open(self, name: str) -> BinaryIO:
        path = self.address(checked(name))
        try:
            return path.open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        except OSError:
            with os_errors(path):
                raise

    def suggestion(self, name: str) -> str:
        return ""

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

    def sizes(self, prefix: str = "") -> dict[str, int]:
        folder, found = self.address(prefix), {}
        with os_errors(folder):
            for where, _, files in os.walk(folder):
                for path in (Path(where, file) for file in files if not file.startswith(".")):
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        name = path.relative_to(self._path).as_posix()
                        found[name] = path.stat().st_size
        return dict(sorted(found.items()))

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
