"""The result of a validation, kept beside a run that has copied the records.

The run that is taken up again needs the digest, the number and the columns of its records, not
the records, as long as the input is the one that was validated. So neither a million records nor
a bucket is read a second time.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from claimscore import __version__
from claimscore.atomic import write_text
from claimscore.errors import ClaimscoreError
from claimscore.records.dataset import Dataset, Required
from claimscore.records.files import InputFile, find_files

_FILE = "input.json"


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Records that were validated before and lie in a run directory."""

    n_records: int
    columns: tuple[str, ...]
    digest: str


def keep(dataset: Dataset, required: Required, folder: Path) -> None:
    """Note what was found; nothing where the input cannot be recognised (standard input)."""
    files = _identities(dataset.files)
    if files is None or dataset.source == "-":
        return
    found = {
        "claimscore": __version__,
        "files": files,
        "required": sorted(_columns(required)),
        "n_records": dataset.n_records,
        "columns": list(dataset.columns),
        "digest": dataset.digest,
    }
    write_text(folder / _FILE, json.dumps(found, indent=1) + "\n")


def recall(source: str, required: Required, folder: Path) -> Prepared | None:
    """The stored result, where the files are still those that were validated; else None.

    None too where a column is needed now that was not asked for then, and where another version
    of claimscore looked. Raises as `find_files` does.
    """
    if source == "-":
        return None
    files = _identities(find_files(source))
    try:
        found = json.loads((folder / _FILE).read_bytes())
        same = (
            found["claimscore"] == __version__
            and found["files"] == files
            and _columns(required) <= set(found["required"])
        )
        known = Prepared(int(found["n_records"]), tuple(found["columns"]), str(found["digest"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not there, or damaged: the input says it again
    return known if same else None


def _columns(required: Required) -> set[str]:
    return {column for columns in required.values() for column in columns}


def _identities(files: Iterable[InputFile]) -> list[dict[str, Any]] | None:
    """A stamp that changes with a file's content; None where there is none for some file."""
    found = [_identity(file) for file in files]
    known = [one for one in found if one is not None]
    return known if len(known) == len(found) else None


def _identity(file: InputFile) -> dict[str, Any] | None:
    """The stamp of one file; of a local one also its inode and its last change, which
    no user can set back. A store's version changes with the content."""
    seen = {"format": file.format, "size": file.size, "version": file.version}
    try:
        file.check_unchanged()
        if file.remote is not None:
            return {"address": str(file.where), **seen}
        path = Path(file.where).resolve()
        now = path.stat()
    except (OSError, ClaimscoreError):
        return None
    return {"path": str(path), **seen, "ctime_ns": now.st_ctime_ns, "inode": now.st_ino}
