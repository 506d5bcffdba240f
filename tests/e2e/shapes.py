"""Shapes of results: what of them a caller's code relies on, without the values."""

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import polars as pl

#: A shape: the types of a plain value ("null|number"), a list's one shape, or an object's keys.
Shape = str | list["Shape"] | dict[str, "Shape"]


#: Numbers that are null until enough time has passed.
TIMES = {"remaining_s", "requests_per_s"}


def shape(value: Any) -> Shape:
    """The keys and types of a JSON value; the elements of a list are merged into one shape.

    A key that only some elements have ends in `?`.
    """
    if isinstance(value, Mapping):
        items = sorted(value.items())
        return {key: "null|number" if key in TIMES else shape(item) for key, item in items}
    if isinstance(value, list):
        return [_merged([shape(item) for item in value])] if value else []
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "bool"
    return "number" if isinstance(value, int | float) else "string"


def _merged(shapes: list[Shape]) -> Shape:
    """One shape that all of these have: of objects, of lists, or of plain values."""
    objects = [one for one in shapes if isinstance(one, dict)]
    if objects and len(objects) == len(shapes):
        keys = sorted({key for one in objects for key in one})
        return {
            key + ("" if all(key in one for one in objects) else "?"): _merged(
                [one[key] for one in objects if key in one]
            )
            for key in keys
        }
    lists = [one for one in shapes if isinstance(one, list)]
    if lists and len(lists) == len(shapes):
        items = [item for one in lists for item in one]
        return [_merged(items)] if items else []
    return "|".join(sorted({part for one in shapes for part in _types(one)}))


def _types(one: Shape) -> list[str]:
    if isinstance(one, str):
        return one.split("|")
    return ["object" if isinstance(one, dict) else "list"]


def tables(out: Path) -> dict[str, dict[str, str]]:
    """Column -> type of every Parquet and CSV table in a folder, or of one file.

    Parquet files in a subfolder are parts of one table, named by the folder. Raises
    AssertionError where two parts of a table differ.
    """
    known: dict[str, dict[str, str]] = {}
    for path in sorted(out.rglob("*")) if out.is_dir() else [out]:
        if path.suffix not in (".parquet", ".csv"):
            continue
        within = path.relative_to(out) if path != out else Path(path.name)
        name = within.as_posix() if len(within.parts) == 1 else within.parent.as_posix() + "/"
        columns = _columns(path)
        assert known.setdefault(name, columns) == columns, f"parts of {name} differ: {path}"
    return known


def _columns(path: Path) -> dict[str, str]:
    if path.suffix == ".csv":
        header = pl.read_csv(path, n_rows=0, infer_schema=False).columns
        return dict.fromkeys(header, "text")
    return {name: str(dtype) for name, dtype in pl.read_parquet_schema(path).items()}


def commands(group: click.Command, path: tuple[str, ...] = ()) -> list[str]:
    """The full name of every command; their options are those of docs/reference/cli.md."""
    if not isinstance(group, click.Group):
        return [" ".join(path)]
    below = sorted(group.commands.items())
    return [full for name, command in below for full in commands(command, (*path, name))]


#: Of classes that callers open and hand on: the members that are for them. The rest is between
#: our own modules.
MEMBERS_FOR_CALLERS = {
    "DiskCache": {"close", "get_many", "put_many", "stats"},
    "Engine": {"answer_all", "request", "stop"},
    "MapConfig": {"load_prompt"},
    "MemoryCache": {"close", "get_many", "put_many", "stats"},
}


def public_names(module: Any) -> dict[str, Any]:
    """Every name of `module.__all__` -> its signature, and a class's public members."""
    return {name: _interface(getattr(module, name)) for name in sorted(module.__all__)}


def _interface(thing: Any) -> dict[str, Any]:
    if not inspect.isclass(thing):
        return {"call": _call(thing)}
    bases = [base for base in thing.__mro__ if base.__module__ != "builtins"]
    members = {name: vars(base)[name] for base in bases[::-1] for name in vars(base)}
    shown = {name for name in members if not name.startswith("_")}
    shown &= MEMBERS_FOR_CALLERS.get(thing.__name__, shown)
    return {
        **({"call": _call(thing)} if inspect.isfunction(thing.__init__) else {}),
        "bases": [base.__name__ for base in bases[1:]],
        "members": {
            name: _call(members[name]) if inspect.isfunction(members[name]) else "value"
            for name in sorted(shown)
        },
    }


def _call(thing: Any) -> str:
    """`(a: int, b=1)`; the mark of a coroutine function comes first."""
    text = re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(thing)))
    return f"async {text}" if inspect.iscoroutinefunction(thing) else text


def differences(before: Any, now: Any, path: str = "") -> list[str]:
    """A line for each place where two JSON values differ: `path: before -> now`."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted({*before, *now})
        pairs = [(f"{path}/{key}", before.get(key, "none"), now.get(key, "none")) for key in keys]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        both = zip(before, now, strict=True)
        pairs = [(f"{path}/{place}", old, new) for place, (old, new) in enumerate(both)]
    else:
        return [] if before == now else [f"{path}: {str(before)[:200]} -> {str(now)[:200]}"]
    return [line for name, old, new in pairs for line in differences(old, new, name)]
