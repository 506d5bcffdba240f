"""Damaged files and refusals of the system, as errors for people."""

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

P = ParamSpec("P")
T = TypeVar("T")

#: How often reading begins.
_TRIES = 3

#: What reading values that are not what was written raises.
_DAMAGE = KeyError, TypeError, ValueError, AttributeError, RecursionError

#: The advice about files of a run directory that another program damaged.
ADVICE = "the same command that began it makes it again (answers are in the cache)"


@contextlib.contextmanager
def damage_as_error(path: Path | str) -> Iterator[None]:
    """Turn the errors of reading a damaged file of a run directory into one clear `ConfigError`."""
    try:
        yield
    except (*_DAMAGE, pl.exceptions.PolarsError) as exc:
        raise ConfigError(
            f"{path}: a file of this run directory is damaged ({type(exc).__name__}: "
            f"{first_line(exc)}); {ADVICE}"
        ) from exc


def retry_if_compacted(read: Callable[P, T]) -> Callable[P, T]:
    """Let a function that only reads run directories begin again where a part has disappeared: a
    run at work has replaced it by a compacted one.

    The third time the error is raised: then the part is missing.
    """

    @functools.wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            try:
                return read(*args, **kwargs)
            except (ConfigError, OSError) as exc:
                if not _is_missing_file(exc):
                    raise
        return read(*args, **kwargs)

    return reading


def _is_missing_file(error: BaseException | None) -> bool:
    """Whether the error or one of its causes is that of a missing file or object."""
    while error is not None:
        if isinstance(error, FileNotFoundError):
            return True
        error = error.__cause__
    return False


@contextlib.contextmanager
def polars_errors(path: Path | str) -> Iterator[None]:
    """Map an `OSError`, also one that polars wraps, to an error of ours that names `path`."""
    with os_errors(path):
        try:
            yield
        except pl.exceptions.ComputeError as exc:
            if number := re.search(r"\(os error (\d+)\)", str(exc)):
                raise OSError(int(number[1]), os.strerror(int(number[1]))) from exc
            raise ConfigError(f"{path}: {first_line(exc)}") from exc


def first_line(exc: Exception) -> str:
    """The message of polars or the system, in one line without Python's `[Errno 28]`."""
    return reason(exc) if isinstance(exc, OSError) else str(exc).strip().partition("\n")[0]
