"""Files that are not what a run writes, and what the system refuses, as errors for people."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

import polars as pl

from claimscore.atomic import os_errors, reason
from claimscore.errors import ConfigError
from claimscore.runs.index import Place

P = ParamSpec("P")
T = TypeVar("T")

#: How often reading begins.
_TRIES = 3

#: The advice about files of a run directory that another program damaged.
ADVICE = "the same command that began it makes it again (answers are in the cache)"


class DamagedPart(ConfigError):
    """A part that is not what was written, or is not there: `table` and `place` say which."""

    def __init__(self, address: Path | str, why: str, table: str, place: Place) -> None:
        super().__init__(f"{address}: {why}; {ADVICE}")
        self.address = address
        self.why = why
        self.table = table
        self.place = place

    def __reduce__(self) -> tuple[type[DamagedPart], tuple[Path | str, str, str, Place]]:
        return DamagedPart, (self.address, self.why, self.table, self.place)


@contextlib.contextmanager
def damage_as_error(path: Path | str) -> Iterator[None]:
    """Files of a run directory that are not what a run writes, as one clear `ConfigError`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as exc:
        raise ConfigError(
            f"{path}: a file of this run directory is damaged ({type(exc).__name__}: "
            f"{_first_line(exc)}); {ADVICE}"
        ) from exc


def again_where_merged(read: Callable[P, T]) -> Callable[P, T]:
    """Let a function that only reads run directories begin again where a file is gone that was
    there when it looked: a run at work has put others in the place of it.

    The third time the error is raised: then the file is missing.
    """

    @functools.wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            try:
                return read(*args, **kwargs)
            except (ConfigError, OSError) as exc:
                if not _is_gone(exc):
                    raise
        return read(*args, **kwargs)

    return reading


def _is_gone(error: BaseException | None) -> bool:
    """Whether the error, or what it was raised from, is that of a missing file or object."""
    while error is not None:
        if isinstance(error, FileNotFoundError):
            return True
        error = error.__cause__
    return False


@contextlib.contextmanager
def polars_errors(path: Path | str) -> Iterator[None]:
    """Polars wraps some of the system's refusals in errors of its own."""
    try:
        with os_errors(path):
            yield
    except pl.exceptions.ComputeError as exc:
        with os_errors(path):
            _raise_system_error(exc)
        raise ConfigError(f"{path}: {why(exc)}") from exc


def why(exc: Exception) -> str:
    """The message of polars or the system, in one line without Python's `[Errno 28]`."""
    try:
        _raise_system_error(exc)
    except OSError as system_error:
        return reason(system_error)
    return reason(exc) if isinstance(exc, OSError) else _first_line(exc)


def _raise_system_error(exc: Exception) -> None:
    """The system's refusal that polars' error quotes, if it quotes one."""
    number = re.search(r"\(os error (\d+)\)", str(exc))
    if number:
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from exc


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0]
