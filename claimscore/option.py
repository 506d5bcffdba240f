"""Fields of settings dataclasses: options of the command line, and checks of their values.

A field made by `option` is an option of every command that takes its dataclass:
`commands/options.py` reads name, type, default, help and panel from the field, so each is written
once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from claimscore.errors import ConfigError


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """How a field of a settings dataclass is given on the command line.

    `kind` says how a text becomes the value where the field's type leaves that open (a folder, a
    duration); `choices` are the only values that it may have. A tuple is a comma-separated list, or
    the values of an option that is `repeated`; one `by_task` may have a value for each task, as
    `verify=600`. A `hidden` option is in `--help-all` only.
    """

    help: str
    panel: str | None = None
    name: str | None = None
    short: str | None = None
    metavar: str | None = None
    kind: str | None = None
    choices: Sequence[str] = ()
    repeated: bool = False
    hidden: bool = False
    positional: bool = False
    by_task: bool = False


def option(
    default: Any = dataclasses.MISSING, *, help: str, repr: bool = True, **details: Any
) -> Any:
    """A field with an option; required without a default. `details` are fields of `Option`.

    A default that may not be shared (a dict) is given as its class.
    """
    metadata = {"option": Option(help, **details)}
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, repr=repr, metadata=metadata)
    return dataclasses.field(default=default, repr=repr, metadata=metadata)


# Options by the panel of the help pages that they stand in.
essential_option = functools.partial(option, panel="Essential")
limit_option = functools.partial(option, panel="Limits")
llm_option = functools.partial(option, panel="Language model")
machine_option = functools.partial(option, panel="Machines")
metric_option = functools.partial(option, panel="Metrics")
model_option = functools.partial(option, panel="Models")


def argument(*, help: str, **details: Any) -> Any:
    """A field that is given by its place on the command line: required, several where a tuple."""
    return option(help=help, positional=True, **details)


def like(settings: type, name: str) -> Any:
    """A field with the option and the default of a field of other settings."""
    (field,) = (one for one in dataclasses.fields(settings) if one.name == name)
    return dataclasses.field(default=field.default, metadata=field.metadata)


def nested(settings: type, *, only: Sequence[str]) -> Any:
    """A field that holds other settings, of which the command takes some options only."""
    return dataclasses.field(default_factory=settings, metadata={"only": tuple(only)})


# Values


@functools.cache
def types_of(settings: type) -> dict[str, Any]:
    """The type of each field of settings."""
    return get_type_hints(settings)


def take_texts(settings: Any) -> None:
    """Make the types of the fields of texts: of names with commas a tuple, of a path a `Path`, of a
    model its settings. `ConfigError` says what a field accepts where it holds another type.
    """
    for name, hint in types_of(type(settings)).items():  # type: ignore[arg-type]  # a type is hashable
        value = getattr(settings, name)
        hint = _NAMES if hint == _NAMES | None else hint
        if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, str):
            value = hint(*[value])
        if get_origin(hint) is tuple and isinstance(value, str | Path):
            value = value.split(",") if isinstance(value, str) else [value]
            value = tuple(one.strip() for one in value if one.strip()) if hint == _NAMES else value
        if get_origin(hint) is tuple and isinstance(value, Sequence):
            value = tuple(map(Path, value)) if hint == _PATHS else tuple(value)
        elif hint == Path | None and isinstance(value, str):
            value = Path(value)
        object.__setattr__(settings, name, value)
    check_types(settings)


_NAMES, _PATHS = tuple[str, ...], tuple[Path, ...]


def check_types(settings: Any) -> None:
    """`ConfigError` that says what is accepted where a field of settings has another type."""
    for name, hint in types_of(type(settings)).items():  # type: ignore[arg-type]  # a type is hashable
        value = getattr(settings, name)
        if not fits(value, hint):
            raise ConfigError(
                f"{name} must be {_accepted(hint)}, not {value!r:.60} of type "
                f"{type(value).__name__}"
            )


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has a type. Floats take integers, and no number takes a boolean."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or hint is type(None):
        return hint is Any or value is None
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in args)
    if origin is Literal:
        return value in args
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            fits(key, args[0]) and fits(item, args[1]) for key, item in value.items()
        )
    if origin in (tuple, Sequence):
        return isinstance(value, Sequence) and all(fits(item, args[0]) for item in value)
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, hint)


def _accepted(hint: Any) -> str:
    """A type in words."""
    args = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_accepted(one) for one in args)
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, args))
    if args:
        names = " to ".join(_accepted(one) for one in args if one is not ...)
        return f"{'a dict' if get_origin(hint) is Mapping else 'a list'} of {names}"
    words = {str: "text", int: "a whole number", float: "a number", bool: "True or False"}
    return str({**words, Path: "a path", type(None): "None"}.get(hint, hint.__name__))


def check_least(settings: Any, **least: float) -> None:
    """`ConfigError` where a field of settings is less than the least that it may be, or no
    number; None is not compared."""
    for name, bound in least.items():
        value = getattr(settings, name)
        if value is not None and not bound <= value < math.inf:
            raise ConfigError(f"--{_option(settings, name)} must be at least {bound}, not {value}")


def check_above_zero(settings: Any, *names: str) -> None:
    """The same where a field is not above zero."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 < value < math.inf:
            option = _option(settings, name)
            raise ConfigError(f"--{option} must be a number above zero, not {value}")


def _option(settings: Any, name: str) -> str:
    """The name of a field's option."""
    (field,) = (field for field in dataclasses.fields(settings) if field.name == name)
    named = field.metadata["option"].name if "option" in field.metadata else None
    return str(named or name).replace("_", "-")
