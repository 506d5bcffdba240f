"""Files that are named by an address: in an object store, or on a web server."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from claimscore.errors import InputError
from claimscore.storage import open_file

if TYPE_CHECKING:
    from claimscore.storage.objects import ObjectStorage

_MAGIC = re.compile("[*?[]")


class RemoteFile(NamedTuple):
    """A file of a bucket, as it was when it was first looked at."""

    folder: ObjectStorage
    key: str
    size: int
    version: str

    @property
    def address(self) -> str:
        return str(self.folder.address(self.key))


def find_remote(source: str) -> list[RemoteFile]:
    """The files of an address or a pattern, sorted by name.

    `*`, `?`, `[...]` stay within one part of a name, `**` is any number of folders. Raises
    `InputError` where nothing is there, and what a store's refusal is (`claimscore.storage`).
    """
    folder, name = open_file(source)
    if not name:
        raise InputError(f"{source}: this is not a file; name one, or a pattern such as *.jsonl")
    if not _MAGIC.search(name) or (folder.writable and folder.exists(name)):
        return [remote_file(folder, name)]
    if not folder.writable:
        raise InputError(
            f"{source}: a web server does not say which files it has; name one without * and ["
        )
    patterns = name.split("/")
    fixed = next(n for n, part in enumerate(patterns) if _MAGIC.search(part))
    names = folder.names("/".join(patterns[:fixed]))
    found = [name for name in names if _matches(name.split("/"), patterns)]
    if not found:
        raise InputError(f"{source}: no file matches this pattern")
    return [remote_file(folder, name) for name in found]


def remote_file(folder: ObjectStorage, key: str) -> RemoteFile:
    """Look at one file; `InputError` where there is none, with a suggestion where there is one."""
    try:
        found = folder.stat(key)
    except FileNotFoundError:
        raise InputError(
            f"{folder.address(key)}: there is no such file{folder.suggestion(key)}"
        ) from None
    return RemoteFile(folder, key, found.size, found.version)


def _matches(parts: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_matches(parts[n:], patterns[1:]) for n in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])
