"""run.toml and its copy: each ends with a line that says whether it is what was written."""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from claimscore.errors import ConfigError
from claimscore.runs.home import STATE
from claimscore.runs.settings import to_toml
from claimscore.storage import Storage

NAME = "run.toml"

#: The copy is written first, so what is in run.toml is never newer.
NAMES = (NAME, f"{STATE}/{NAME}")

_HEADER = "# Written by claimscore: everything that determines the results of this run.\n"
_CHECK = b"# CRC-32 of the lines above: "


class Found(NamedTuple):
    """The settings, None where there is no file; whether both files are whole; and what is wrong
    with run.toml, for people."""

    settings: dict[str, Any] | None
    whole: bool = True
    damage: str = ""


class _File(NamedTuple):
    settings: dict[str, Any] | None
    checked: bool = False
    why: str = ""


def write(folder: Storage, settings: Mapping[str, Any]) -> None:
    """Replace both files."""
    text = (_HEADER + to_toml(settings)).encode()
    content = text + _CHECK + f"{zlib.crc32(text):08x}\n".encode()
    for name in reversed(NAMES):
        folder.write(name, content)


def are_there(folder: Storage) -> bool:
    """Whether there is one of the files."""
    return any(map(folder.exists, NAMES))


def read(folder: Storage) -> Found:
    """The settings by whichever file is whole; run.toml of an older version has no such line, and
    counts as whole where there is no copy. `ConfigError` where no file says anything."""
    main = _read(folder, NAMES[0])
    if main.settings is not None and main.checked:
        return Found(main.settings, folder.exists(NAMES[1]))
    copy = _read(folder, NAMES[1])
    if copy.settings is not None and copy.checked:
        why = main.why or "damaged: not what was written"
        return Found(copy.settings, False, f"{folder.address(NAME)}: {why}")
    if main.settings is not None:
        return Found(main.settings)
    if main.why == _MISSING:
        return Found(None)
    raise ConfigError(
        f"{folder.address(NAME)}: {main.why}; name another --out and run again (answers are in "
        "the cache)"
    )


_MISSING = "missing"


def _read(folder: Storage, name: str) -> _File:
    try:
        content = folder.read(name)
    except FileNotFoundError:
        return _File(None, why=_MISSING)
    text, mark, check = content.rpartition(_CHECK)
    if mark and check.strip() != b"%08x" % zlib.crc32(text):
        return _File(None, why="damaged: not what was written")
    try:
        found = tomllib.loads(content.decode())
        return _File(found if mark or found else None, bool(mark), "damaged: empty")
    except ValueError as exc:
        return _File(None, why=f"damaged: {exc}")
