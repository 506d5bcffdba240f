"""Fields of settings dataclasses that are options of the command line.

A field made by `option` is an option of every command that takes its dataclass:
`commands/options.py` reads name, type, default, help and panel from the field, so each is written
once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any


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
