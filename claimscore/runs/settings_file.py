"""The settings of a run, in run.toml, and the differences between two runs."""

from __future__ import annotations

import copy
import functools
import tomllib
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from claimscore.atomic import os_errors, write_bytes
from claimscore.errors import ConfigError

#: The folder of a run directory for what concerns the run alone.
STATE = ".state"

RUN_TOML = "run.toml"

#: The one table of settings whose lists and tables may grow between runs.
ADDITIVE = "additive"

#: It names the format of the whole run directory.
HEADER = "# Written by claimscore, format 3: everything that determines the results of this run.\n"
_CHECK = b"# CRC-32 of the lines above: "

#: No run writes a longer one, and to read it would take minutes.
_MOST_BYTES = 1 << 22

_ABSENT = object()


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Replace run.toml by other settings; its last line says whether it is whole."""
    text = (HEADER + tomli_w.dumps(settings)).encode()
    if settings != read_settings(folder):
        write_bytes(folder / RUN_TOML, text + _CHECK + f"{zlib.crc32(text):08x}\n".encode())


def read_settings(folder: Path) -> dict[str, Any] | None:
    """The settings, None where there is no run.toml; `ConfigError` where it is damaged."""
    path = folder / RUN_TOML
    with os_errors(path):
        if not path.exists():
            return None
        if path.stat().st_size > _MOST_BYTES:
            raise unusable(folder, "not what was written")
        text, _, check = path.read_bytes().rpartition(_CHECK)
    if check.strip() == b"%08x" % zlib.crc32(text):
        if not text.startswith(HEADER.encode()):
            raise ConfigError(
                f"{folder}: made by another version of claimscore; go on with that version, or "
                "name another --out and run again"
            )
        try:
            settings = tomllib.loads(text.decode())
        except (ValueError, RecursionError):
            raise unusable(folder, "not what was written") from None
        tables = settings.get("records", {}), settings.get(ADDITIVE, {})
        if all(isinstance(table, dict) for table in tables) and _is_additive(tables[1]):
            return settings
    raise unusable(folder, "not what was written")


def _is_additive(table: Mapping[str, Any]) -> bool:
    """Whether metrics and tasks are lists of texts, and all else tables whose names are texts."""
    return all(
        isinstance(value, list) and all(isinstance(item, str) for item in value)
        if name in ("metrics", "tasks")
        else isinstance(value, dict)
        and all(isinstance(value.get(key, ""), str) for key in ("name", "model"))
        for name, value in table.items()
    )


def unusable(folder: Path, why: str) -> ConfigError:
    """The error of a run.toml that was changed, damaged or removed, with what to do."""
    return ConfigError(
        f"{folder / RUN_TOML}: {why}; undo the change, or name another --out and run again "
        "(answers are in the cache)"
    )


def as_stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they will be read back: lists for tuples, nothing for None; `TypeError` for
    what TOML does not know."""
    return tomllib.loads(tomli_w.dumps(_without_none(settings)))


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _without_none(item) for key, item in value.items() if item is not None}
    return value


def models_asked(settings: Mapping[str, Any]) -> str:
    """The language models of a run in words, with their tasks where there are several; "" where
    none is asked."""
    tasks: dict[str, list[str]] = {}
    for task, llm in settings[ADDITIVE].get("llm", {}).items():
        at_server = f"{llm['provider']}:{llm['model']} at {llm['namespace']}"
        name = at_server if "params" in llm else llm["model"]
        tasks.setdefault(name, []).append(task)
    if len(tasks) < 2:
        return "".join(tasks)
    return "; ".join(f"{name} ({', '.join(names)})" for name, names in tasks.items())


def agreed(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], where: str, called: Mapping[str, str]
) -> dict[str, Any]:
    """Both together; `ConfigError` with every difference where they are not equal, except that
    lists and tables under `additive` may grow.

    A list keeps its old order, and new items follow; a table gets new names, but a name
    that it has keeps its value. `called` is the option of a setting, by its dotted name; `where`
    names the run directory.
    """
    differences: dict[str, tuple[Any, Any]] = {}
    value: dict[str, Any] = _merged(stored, wanted, "", differences)
    if differences:
        shown = "; ".join(
            f"{called.get(name, name)}: was {_shown(was)}, now {_shown(now)}"
            for name, (was, now) in differences.items()
        )
        raise ConfigError(
            f"{where} was made with other settings: {shown}; "
            "give the old ones again, or name another --out"
        )
    return value


def _merged(old: Any, new: Any, name: str, differences: dict[str, tuple[Any, Any]]) -> Any:
    was, now = ({} if value is _ABSENT else value for value in (old, new))
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        both = {}
        for key in dict.fromkeys((*was, *now)):
            inner = f"{name}.{key}" if name else key
            values = was.get(key, _ABSENT), now.get(key, _ABSENT)
            both[key] = _merged(*values, inner, differences)
        return both
    if name.startswith(f"{ADDITIVE}."):
        if _ABSENT in (old, new):
            return new if old is _ABSENT else old
        if isinstance(old, list) and isinstance(new, list):
            return [*old, *(item for item in new if item not in old)]
    if old != new or isinstance(old, bool) is not isinstance(new, bool):
        differences[name] = old, new
    return old


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "not set"
    if isinstance(value, Mapping):
        return "a table"
    text = tomli_w.dumps({"v": value}).removeprefix("v = ").strip()
    text = " ".join(text.split())
    return text if len(text) <= 200 else text[:200] + "…"


def without(settings: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The settings without those of the dotted names."""
    kept = copy.deepcopy(dict(settings))
    for name in names:
        *tables, key = name.split(".")
        table = functools.reduce(lambda outer, inner: outer.get(inner, {}), tables, kept)
        table.pop(key, None)
    return kept
