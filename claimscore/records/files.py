"""Which files an input names, of which format, and whether they stayed the same."""

from __future__ import annotations

import dataclasses
import difflib
import glob
import os
import stat
from pathlib import Path
from typing import Literal

from claimscore.atomic import reason
from claimscore.errors import InputError

Format = Literal["jsonl", "csv", "tsv", "parquet"]

ENDINGS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonl.gz": "jsonl",
    ".ndjson.gz": "jsonl",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "tsv",
    ".tsv.gz": "tsv",
    ".parquet": "parquet",
}


@dataclasses.dataclass(frozen=True, slots=True)
class InputFile:
    """One input file as it was when it was first looked at; `name` is for messages."""

    path: Path
    name: str
    format: Format
    size: int
    mtime_ns: int

    @property
    def compressed(self) -> bool:
        return self.path.name.lower().endswith(".gz")

    def check_unchanged(self) -> None:
        """A file that changed between the passes would mix two inputs in one run."""
        now = _stat(self.path, self.name)
        if (now.st_size, now.st_mtime_ns) != (self.size, self.mtime_ns):
            raise InputError(
                f"{self.name}: the file changed while it was being used; "
                "let its writer finish, then run the same command again"
            )


def find_files(source: str) -> tuple[InputFile, ...]:
    """The files of a path or glob, sorted by name; all of one format."""
    if not source:
        raise InputError("no input was named; give a file, a glob, or - for JSONL on stdin")
    if "://" in source:
        raise InputError(f"{source}: only local files can be read; download it first")
    if "\0" in source:
        raise InputError(f"{source!r}: a file name cannot hold a NUL character")
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
    return InputFile(path, shown, _format(path, shown), found.st_size, found.st_mtime_ns)


def _format(path: Path, shown: str) -> Format:
    lowered = path.name.lower()
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
