"""Reports for diagnosis: what `--verbose` and `--log-file` write.

They are records of Python's standard logging under the name `claimscore`. Neither keys nor texts
of records are in them: a server is named by its address, a request by its key in the cache.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

LOGGER = logging.getLogger("claimscore")


class _ErrorStream(logging.Handler):
    """Lines on standard error, above bars where there are any."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


def log_to_terminal() -> Callable[[], None]:
    """Write the main steps to standard error; returns a function that ends it."""
    return _add(_ErrorStream(), logging.Formatter("claimscore: %(message)s"), logging.INFO)


def log_to_file(path: Path) -> Callable[[], None]:
    """Append each step, and each request that fails, to a file that only its owner may read.

    Returns a function that ends it; raises `OSError` where the file cannot be written.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    handler = logging.FileHandler(path, encoding="utf-8")
    line = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    line.converter = time.gmtime
    line.default_time_format, line.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    ends = [_add(handler, line, logging.DEBUG)]
    if len(LOGGER.handlers) == 1:  # warnings go on being shown
        ends.append(_add(_ErrorStream(), logging.Formatter(), logging.WARNING))

    def end() -> None:
        for stop in ends:
            stop()

    return end


def _add(handler: logging.Handler, line: logging.Formatter, level: int) -> Callable[[], None]:
    before = LOGGER.level
    handler.setLevel(level)
    handler.setFormatter(line)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(min(level, before or level))

    def end() -> None:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)
        handler.close()

    return end
