"""Which files an input names, of which format, and whether they stayed the same."""

from __future__ import annotations

import dataclasses
import difflib
import glob
import os
import re
import select
import shutil
import stat
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from claimscore.atomic import atomic_file, reason
from claimscore.errors import InputError
from claimscore.storage import is_remote, open_file

if TYPE_CHECKING:
    from claimscore.storage.objects import ObjectStorage

Format = Literal["jsonl", "json", "csv", "tsv", "parquet", "rows"]

ENDINGS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonl.gz": "jsonl",
    ".ndjson.gz": "jsonl",
    ".json": "json",
    ".json.gz": "json",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "tsv",
    ".tsv.gz": "tsv",
    ".parquet": "parquet",
}


#: The name of the copy of standard input.
SPOOLED = "stdin.jsonl"


@dataclasses.dataclass(frozen=True, slots=True)
class InputFile:
    """One input file as it was when it was first looked at; `name` is for messages.

    `where` is what polars reads: a path, or the address of an object `key` in a `store`.
    """

    where: Path | str
    name: str
    format: Format
    size: int
    version: str
    store: ObjectStorage | None = dataclasses.field(default=None, compare=False, repr=False)
    key: str = ""

    @property
    def file_name(self) -> str:
        """The last part of the path or address."""
        return Path(self.key or self.where).name

    @property
    def compressed(self) -> bool:
        return self.file_name.lower().endswith(".gz")

    def open(self) -> BinaryIO:
        """The file's bytes; of a remote one a few MiB are in memory at a time."""
        if self.store is None:
            return Path(self.where).open("rb", buffering=1 << 20)
        try:
            return self.store.open(self.key)
        except FileNotFoundError:
            raise self._changed() from None

    def check_unchanged(self) -> None:
        """A file that changed between the passes would mix two inputs in one run."""
        if self.store is None:
            version = _local_version(_stat(Path(self.where), self.name))
        else:
            version = _remote_input(self.store, self.key).version
        if version != self.version:
            raise self._changed()

    def _changed(self) -> InputError:
        return InputError(
            f"{self.name}: the file changed while it was being used; "
            "let its writer finish, then run the same command again"
        )


def find_files(source: str) -> tuple[InputFile, ...]:
    """The files of a path, an address or a pattern, sorted by name; all of one format."""
    if not source:
        raise InputError("no input was named; give a file, a glob, or - for JSONL on stdin")
    if "\0" in source:
        raise InputError(f"{source!r}: a file name cannot hold a NUL character")
    if is_remote(source):
        return _of_one_format(source, _find_remote(source))
    if os.path.lexists(source) or not glob.has_magic(source):
        return (input_file(Path(source)),)
    paths = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - the pattern may be absolute
    if not paths:
        raise InputError(f"{source}: no file matches this pattern")
    return _of_one_format(source, tuple(input_file(Path(path)) for path in paths))


def _of_one_format(source: str, files: tuple[InputFile, ...]) -> tuple[InputFile, ...]:
    for other in files[1:]:
        if other.format != files[0].format:
            raise InputError(
                f"{source}: files of different formats match ({files[0].name} is "
                f"{files[0].format}, {other.name} is {other.format}); name one ending"
            )
    return files


def input_file(path: Path, name: str | None = None) -> InputFile:
    """Look at one file; `InputError` where it is absent, a folder, or of no known format."""
    shown = name or str(path)
    found = _stat(path, shown)
    if stat.S_ISDIR(found.st_mode):
        raise InputError(
            f"{shown}: this is a folder; name a file in it or a pattern such as "
            f"'{path / '*.jsonl'}'"
        )
    if not stat.S_ISREG(found.st_mode):
        raise InputError(
            f"{shown}: not a regular file, and it is read twice; send JSONL to standard "
            "input and name the input -"
        )
    return InputFile(path, shown, _format(path.name, shown), found.st_size, _local_version(found))


def spool_stdin(spool: Path, stdin: BinaryIO | None) -> InputFile:
    """Copy standard input, which is JSONL, into the folder `spool`."""
    target = spool / SPOOLED
    with atomic_file(target) as stream:
        _copy(stdin or sys.stdin.buffer, stream)
    return input_file(target, name="standard input")


def _copy(source: Any, target: BinaryIO) -> None:
    """Copy a stream as it comes. A read that waits does not notice a signal that came just before
    it, so a wait for a pipe ends every half second."""
    try:
        source.fileno()
    except OSError:  # no file of the system
        shutil.copyfileobj(source, target, 1 << 20)
        return
    while True:
        if select.select([source], [], [], 0.5)[0]:
            block = source.read1(1 << 20)
            if not block:
                return
            target.write(block)


def _local_version(found: os.stat_result) -> str:
    return f"{found.st_size} {found.st_mtime_ns}"


def _format(name: str, shown: str) -> Format:
    lowered = name.lower()
    for ending in sorted(ENDINGS, key=len, reverse=True):
        if lowered.endswith(ending):
            return ENDINGS[ending]
    raise InputError(
        f"{shown}: the format is not known from this ending; known endings: {', '.join(ENDINGS)}"
    )


def _stat(path: Path, shown: str) -> os.stat_result:
    try:
        return path.stat()
    except FileNotFoundError:
        raise InputError(f"{shown}: there is no such file{_similar(path)}") from None
    except OSError as exc:
        raise InputError(f"{shown}: {reason(exc)}") from exc


def _similar(path: Path) -> str:
    try:
        names = [entry.name for entry in os.scandir(path.parent)]
    except OSError:
        return f"; the folder {path.parent} cannot be read or does not exist"
    close = difflib.get_close_matches(path.name, names, n=3)
    if not close:
        return ""
    return "; did you mean " + " or ".join(str(path.with_name(name)) for name in close) + "?"


# -- files that are named by an address: in an object store, or on a web server

_MAGIC = re.compile("[*?[]")


def _find_remote(source: str) -> tuple[InputFile, ...]:
    """The files of an address or a pattern, sorted by name.

    `*`, `?`, `[...]` stay within one part of a name, `**` is any number of folders. Raises
    `InputError` where nothing is there, and what a store's refusal is (`claimscore.storage`).
    """
    store, name = open_file(source)
    if not name:
        raise InputError(f"{source}: this is not a file; name one, or a pattern such as *.jsonl")
    if not _MAGIC.search(name) or (store.writable and store.exists(name)):
        return (_remote_input(store, name),)
    if not store.writable:
        raise InputError(
            f"{source}: a web server does not say which files it has; name one without * and ["
        )
    patterns = name.split("/")
    fixed = next(n for n, part in enumerate(patterns) if _MAGIC.search(part))
    names = store.sizes("/".join(patterns[:fixed]))
    found = [name for name in names if _matches(name.split("/"), patterns)]
    if not found:
        raise InputError(f"{source}: no file matches this pattern")
    return tuple(_remote_input(store, name) for name in found)


def _remote_input(store: ObjectStorage, key: str) -> InputFile:
    """Look at one file; `InputError` where there is none, with a suggestion where there is one."""
    address = str(store.address(key))
    try:
        found = store.stat(key)
    except FileNotFoundError:
        raise InputError(f"{address}: there is no such file{store.suggestion(key)}") from None
    form = _format(key, address)
    return InputFile(address, address, form, found.size, found.version, store, key)


def _matches(parts: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_matches(parts[n:], patterns[1:]) for n in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])
