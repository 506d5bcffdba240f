"""Files that are not what a run writes, and what the system refuses, as errors for people."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from claimscore.atomic import os_errors, reason
from claimscore.errors import ConfigError

#: What to do about a run directory that somebody else damaged.
ADVICE = "name another --out and run again (answers are in the cache)"


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
    """What polars or the system says, in one line without Python's `[Errno 28]`."""
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
