"""Shapes of results: what of them a caller's code relies on, without the values."""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
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


def commands(group: click.Command, path: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """Every command by its full name -> its parameters; help texts are left out."""
    if isinstance(group, click.Group):
        below: dict[str, dict[str, Any]] = {}
        for name in sorted(group.commands):
            below |= commands(group.commands[name], (*path, name))
        return below
    params = [param.to_info_dict() for param in group.get_params(click.Context(group))]
    known = {_title(info): _parameter(info) for info in params if "--help" not in info["opts"]}
    return {" ".join(path): known}


def _title(info: dict[str, Any]) -> str:
    """`-o --out`; an argument by its name."""
    return " ".join([*info["opts"], *info["secondary_opts"]])


def _parameter(info: dict[str, Any]) -> dict[str, Any]:
    """What click tells of a parameter, as far as people's scripts rely on it."""
    kind = info["type"].get("choices") or info["type"]["name"]
    known = {"type": "flag" if info.get("is_flag") else kind}
    known |= {name: True for name in ("required", "multiple") if info.get(name)}
    known |= {"several": True} if info["nargs"] == -1 else {}
    if isinstance(info["default"], int | float | str) and not info.get("is_flag"):
        known["default"] = info["default"]
    return known


#: Of classes that callers open and hand on: the members that are for them. The rest is between
#: our own modules.
MEMBERS_FOR_CALLERS = {
    "DiskCache": {"close", "get_many", "put_many", "stats"},
    "Engine": {"answer", "answer_all", "request", "stop"},
    "MapConfig": {"load_prompt"},
    "MemoryCache": {"close", "get_many", "put_many", "stats"},
}


def public_names(module: Any) -> dict[str, Any]:
    """Every name of `module.__all__` -> its signature, fields and public methods.

    Types of parameters are left out: a class may get another name where callers never write it.
    """
    return {name: _interface(getattr(module, name)) for name in sorted(module.__all__)}


def _interface(thing: Any) -> dict[str, Any]:
    if not inspect.isclass(thing):
        return {"call": _call(thing)}
    known: dict[str, Any] = {"bases": [base.__name__ for base in thing.__mro__[1:-1]]}
    if dataclasses.is_dataclass(thing):
        known["fields"] = {f.name: _field(f) for f in dataclasses.fields(thing)}
    elif hasattr(thing, "_fields"):
        known["fields"] = list(thing._fields)
    elif "__init__" in vars(thing):
        known["call"] = _call(thing)
    known["members"] = dict(_members(thing))
    return known


def _members(thing: type) -> Iterable[tuple[str, Any]]:
    """Public methods and properties of the class, but for those of Python's own bases."""
    bases = [base for base in thing.__mro__ if base.__module__ == "builtins"]
    hidden = {name for base in bases for name in dir(base)} | set(getattr(thing, "_fields", ()))
    if dataclasses.is_dataclass(thing):
        hidden |= {field.name for field in dataclasses.fields(thing)}
    known = MEMBERS_FOR_CALLERS.get(thing.__name__)
    for name in dir(thing):
        if name.startswith("_") or name in hidden:
            continue
        if known is None or name in known:
            member = inspect.getattr_static(thing, name)
            if isinstance(member, staticmethod | classmethod):
                member = member.__func__
            yield name, _call(member) if inspect.isfunction(member) else "value"


def _field(field: Any) -> str:
    """`type`, or `type = default`."""
    kind = str(field.type)
    if field.default is not dataclasses.MISSING:
        return f"{kind} = {field.default!r}"
    return kind if field.default_factory is dataclasses.MISSING else f"{kind} = ..."


def _call(thing: Any) -> str:
    """`(a, b=1, *, c)`; the mark of a coroutine function comes first."""
    signature = inspect.signature(thing)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_default(parameter.default))
        for parameter in signature.parameters.values()
    ]
    text = str(inspect.Signature(bare)).replace("Ellipsis", "...")
    return f"async {text}" if inspect.iscoroutinefunction(thing) else text


def _default(value: Any) -> Any:
    """A default as it is where it is plain, else `...`."""
    plain = isinstance(value, bool | int | float | str | None)
    return value if plain or value is inspect.Parameter.empty else ...


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
