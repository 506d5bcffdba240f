"""Which files an input names, of which format, and whether they stayed the same."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import glob
import io
import os
import select
import stat
import sys
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import polars as pl

from claimscore.atomic import atomic_file, os_errors, reason
from claimscore.errors import InputError
from claimscore.object_stores import (
    check_address,
    file_error,
    first_words,
    is_address,
    store_error,
)

Format = Literal["jsonl", "json", "csv", "tsv", "parquet", "rows"]

_LINES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
}
ENDINGS = _LINES | {f"{name}.gz": kind for name, kind in _LINES.items()} | {".parquet": "parquet"}

#: The name of the copy of standard input, and how the name of an address's copy begins.
SPOOLED, _COPIED = "stdin.jsonl", "input-"


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class InputFile:
    """One input file of this machine as it was when it was first looked at.

    `name` is for messages: what the user named, where `path` is a copy of that.
    """

    path: Path
    name: str
    format: Format
    size: int
    version: str

    @property
    def compressed(self) -> bool:
        return self.path.name.lower().endswith(".gz")

    def check_unchanged(self) -> None:
        """A file that changed between the passes would mix two inputs in one run."""
        if _version(_stat(self.path, self.name)) != self.version:
            raise InputError(
                f"{self.name}: the file changed while it was being used; "
                "let its writer finish, then run the same command again"
            )


def find_files(source: str, spool: Path | None = None) -> tuple[InputFile, ...]:
    """The files of a path, an address or a pattern, sorted by name; all of one format.

    What lies at an address is copied to this machine first: into the folder `spool`, else where
    temporary files are. A copy is removed with its `InputFile`.
    """
    if not source:
        raise InputError("no input was named; give a file, a glob, or - for JSONL on stdin")
    if "\0" in source:
        raise InputError(f"{source!r}: a file name cannot hold a NUL character")
    if is_address(source):
        return _copied(source, spool)
    if os.path.lexists(source) or not glob.has_magic(source):
        return (input_file(Path(source)),)
    paths = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - the pattern may be absolute
    if not paths:
        raise InputError(f"{source}: no file matches this pattern")
    files = tuple(input_file(Path(path)) for path in paths)
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
    status = _stat(path, shown)
    if stat.S_ISDIR(status.st_mode):
        raise InputError(
            f"{shown}: this is a folder; name a file in it or a pattern such as "
            f"'{path / '*.jsonl'}'"
        )
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            f"{shown}: not a regular file, and it is read twice; send JSONL to standard "
            "input and name the input -"
        )
    return InputFile(path, shown, _format(path.name, shown), status.st_size, _version(status))


def spool_stdin(spool: Path, stdin: BinaryIO | None) -> InputFile:
    """Copy standard input, which is JSONL, into the folder `spool`."""
    target, source = spool / SPOOLED, stdin or sys.stdin.buffer
    with atomic_file(target) as stream:
        while part := _next_part(source):
            stream.write(part)
    return input_file(target, name="standard input")


def _next_part(source: BinaryIO) -> bytes:
    """What comes next; the wait is cut in pieces, since a read that waits would hide a signal."""
    if isinstance(source, io.BufferedReader) and os.name == "posix":
        while not select.select([source], (), (), 0.1)[0]:
            pass
        return source.read1(1 << 20)
    return source.read(1 << 20)


def _version(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns}"


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


# -- what lies at an address, in an object store or on a web server: polars reads it, once


def _copied(address: str, spool: Path | None) -> tuple[InputFile, ...]:
    """Copies of the files at an address or of a pattern (`*`, `**`, `[...]`), sorted by name;
    Parquet files of a pattern as one.

    Raises `InputError` where nothing is there or it cannot be read, `ConfigError` for a wrong
    address and a refusal of the store, `StoppedEarly` where it is not reached.
    """
    check_address(address)
    if not address.partition("://")[2].partition("/")[2]:
        raise InputError(f"{address}: this is not a file; name one, or a pattern such as *.jsonl")
    kind = _format(address, address)
    if spool is not None:  # a process that was killed left them
        for left in spool.glob(f"{_COPIED}*"):
            left.unlink()
    copies: dict[str, Path] = {}
    try:
        _copy_address(address, kind, spool, copies)
        if not copies:
            raise InputError(f"{address}: no file matches this pattern, or all of them are empty")
        files = tuple(input_file(copies[name], name) for name in sorted(copies))
    except BaseException:
        for path in copies.values():
            path.unlink(missing_ok=True)
        raise
    for file in files:
        weakref.finalize(file, file.path.unlink, missing_ok=True)
    return files


def _copy_address(address: str, kind: Format, spool: Path | None, copies: dict[str, Path]) -> None:
    """Put the copy of each file into `copies`, by its name; no empty one of a pattern."""

    def copy_of(name: str) -> Path:
        if name not in copies:
            with os_errors(spool or tempfile.gettempdir()):
                handle, path = tempfile.mkstemp(f".{kind}", _COPIED, spool)
            os.close(handle)
            copies[name] = Path(path)
        return copies[name]

    is_pattern = glob.has_magic(address)
    with _address_errors(address):
        if kind == "parquet":
            pl.scan_parquet(address).sink_parquet(copy_of(address))
            return
        if not is_pattern:
            copy_of(address)
        scan = pl.scan_lines(address, include_file_paths="file")
        for batch in scan.collect_batches(maintain_order=True):
            for (file,), rows in batch.group_by("file", maintain_order=True):
                path = copy_of(str(file) if is_pattern else address)
                with os_errors(path), path.open("ab") as stream:
                    stream.writelines(f"{line}\n".encode() for line in rows["line"])


@contextlib.contextmanager
def _address_errors(address: str) -> Iterator[None]:
    """Map polars' error to one of ours; one of the network, or an unknown one of it, stops."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as exc:
        known = file_error(address, exc) or store_error(address, exc)
        raise known or InputError(f"{address}: {first_words(exc)}") from None
