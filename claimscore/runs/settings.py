"""Settings of a run as TOML, and what differs between two runs. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import tomli_w

from claimscore.errors import ConfigError

#: The one table of settings whose lists and tables may grow between runs.
ADDITIVE = "additive"

_ABSENT = object()


class Merged(NamedTuple):
    """The settings to store, and why they cannot be (empty where they can)."""

    value: dict[str, Any]
    differences: list[str]


def to_toml(settings: Mapping[str, Any]) -> str:
    """TOML text; `None`, which TOML does not know, is left out."""
    return tomli_w.dumps(_without_none(settings))


def as_stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they will be read back: lists for tuples, nothing for None."""
    return tomllib.loads(to_toml(settings))


def merge(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> Merged:
    """Both must be equal except that lists and tables under `additive` may grow.

    A list keeps its old order, and new items follow; a table gets new names, but a name
    that it has keeps its value.
    """
    differences = [
        f"{name}: was {_shown(old)}, now {_shown(new)}"
        for name, old, new in _pairs(_flat(_fixed(stored)), _flat(_fixed(wanted)))
        if not _same(old, new)
    ]
    value = dict(stored)
    if ADDITIVE in stored or ADDITIVE in wanted:
        value[ADDITIVE] = _grown(
            ADDITIVE, stored.get(ADDITIVE, {}), wanted.get(ADDITIVE, {}), differences
        )
    return Merged(value, differences)


def agreed(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], where: str, called: Mapping[str, str]
) -> dict[str, Any]:
    """Both together; `ConfigError` with every difference where they do not agree.

    `called` is what users call a setting, by its dotted name; `where` names the run directory.
    """
    merged, differences = merge(stored, wanted)
    if differences:
        shown = "; ".join(_as_called(difference, called) for difference in differences)
        raise ConfigError(
            f"{where} was made with other settings: {shown}; "
            "name another --out, or go back to the old settings"
        )
    return merged


def _as_called(difference: str, called: Mapping[str, str]) -> str:
    name, colon, rest = difference.partition(":")
    return called.get(name, name) + colon + rest


def without(settings: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The settings without those of the dotted names."""
    dropped = set(names)
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        if key in dropped:
            continue
        inner = [name.partition(".")[2] for name in dropped if name.startswith(f"{key}.")]
        kept[key] = without(value, inner) if inner and isinstance(value, Mapping) else value
    return kept


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    if isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a setting cannot be a {type(value).__name__}: {value!r}")


def _fixed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != ADDITIVE}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _pairs(stored: dict[str, Any], wanted: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    names = dict.fromkeys((*stored, *wanted))
    return [(name, stored.get(name, _ABSENT), wanted.get(name, _ABSENT)) for name in names]


def _same(old: Any, new: Any) -> bool:
    return bool(old == new) and isinstance(old, bool) is isinstance(new, bool)


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "not set"
    if isinstance(value, Mapping):
        return "a table"
    text = tomli_w.dumps({"v": value}).removeprefix("v = ").strip()
    text = " ".join(text.split())
    return text if len(text) <= 200 else text[:200] + "…"


def _grown(name: str, old: Any, new: Any, differences: list[str]) -> Any:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        grown = {**old, **{key: value for key, value in new.items() if key not in old}}
        for key in old:
            if key in new:
                grown[key] = _grown(f"{name}.{key}", old[key], new[key], differences)
        return grown
    if isinstance(old, list) and isinstance(new, list):
        return [*old, *(item for item in new if item not in old)]
    if not _same(old, new):
        differences.append(f"{name}: was {_shown(old)}, now {_shown(new)}")
    return old
