"""Files that are either whole or not there.

A writer fills a temporary file in the same folder; it is synced, renamed over the
target, and the folder is synced too. After a crash, of the process or of the machine,
a reader finds the old file or the new one, never a part. The price is two syncs a file,
and a temporary file may be left behind by a kill (`remove_leftovers` takes it away).

This is also the one place where an operating system's refusal becomes an error of ours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from claimscore.errors import ConfigError, StoppedEarly

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EFBIG: "files may not become so large here; raise the limit (ulimit -f)",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "permission denied; choose a folder that you may write to",
    errno.EPERM: "permission denied; choose a folder that you may write to",
    errno.ENOLCK: "the file system knows no locks; choose another folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder, not a file",
}


def reason(error: OSError) -> str:
    """The error and what to do, without Python's `[Errno 28]`."""
    if error.errno is None:
        return " ".join(str(error).split()) or type(error).__name__
    return _ADVICE.get(error.errno) or error.strerror or os.strerror(error.errno)


@contextlib.contextmanager
def os_errors(path: Path | str) -> Iterator[None]:
    """Map `OSError` to an error of ours: one line that names the path and the reason.

    A full disk is a `StoppedEarly` (make room and go on), all else a `ConfigError`.
    """
    try:
        yield
    except OSError as exc:
        full = exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise (StoppedEarly if full else ConfigError)(f"{path}: {reason(exc)}") from exc


#: Folders that go with this process.
_fleeting: set[Path] = set()


@contextlib.contextmanager
def fleeting(folder: Path) -> Iterator[None]:
    """While the block lasts nothing in the folder has to survive a power cut: no disk is waited
    for."""
    _fleeting.add(folder)
    try:
        yield
    finally:
        _fleeting.discard(folder)


def sync_file(descriptor: int, path: Path) -> None:
    """Make what was written to an open file, or to a folder, survive a power cut."""
    if _fleeting.isdisjoint((path, *path.parents)):
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make a rename within the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync_file(descriptor, folder)
    finally:
        os.close(descriptor)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _refuse_no_file(path: Path) -> None:
    """`ConfigError` for a folder, a device or a pipe: a rename would put a file in its place."""
    with os_errors(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            return
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "")
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path}: it is a device or a pipe; name a file")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path to write to, for writers that want a path.

    When the block ends the file takes `path`'s place; when it raises, `path` is as before.
    A folder, a device or a pipe is refused.
    """
    _refuse_no_file(path)
    temporary = _temporary(path)
    with os_errors(path):
        try:
            yield temporary
            with temporary.open("rb") as written:
                sync_file(written.fileno(), path)
            temporary.replace(path)
            sync_folder(path.parent)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes `path`'s place when the block ends without an error."""
    with atomic_path(path) as temporary, temporary.open("xb") as stream:
        yield stream


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Replace `path` by `data`, wholly or not at all."""
    with atomic_file(path) as stream:
        stream.write(data)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` as UTF-8, wholly or not at all."""
    write_bytes(path, text.encode("utf-8"))


def remove_files(paths: Iterable[Path]) -> None:
    """Delete files; a missing one is no error."""
    folders = set()
    for path in paths:
        with os_errors(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
            folders.add(path.parent)
    for folder in folders:
        with os_errors(folder):
            sync_folder(folder)


def remove_leftovers(folder: Path, names: str) -> None:
    """Delete what a killed writer left of files whose names match `names`, a regular expression.

    Only the owner of these files may call this. Links, folders and files of others stay.
    """
    pattern = re.compile(rf"\.({names})\.[0-9a-f]{{8}}\.tmp")
    with os_errors(folder):
        for path in folder.iterdir():
            if pattern.fullmatch(path.name) and stat.S_ISREG(path.lstat().st_mode):
                path.unlink()
