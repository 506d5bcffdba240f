"""Reports for diagnosis: what `--verbose` and `--log-file` write.

They are records of Python's standard logging under the name `claimscore`. Neither keys nor texts
of records are in them: a server is named by its address, a request by its key in the cache.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from claimscore.console import harmless

LOGGER = logging.getLogger("claimscore")


class _ErrorStream(logging.Handler):
    """Lines on standard error, above bars where there are any."""

    def emit(self, record: logging.LogRecord) -> None:
        _tell(harmless(self.format(record)))


class _PrivateFile(logging.Handler):
    """Lines at the end of a file that only its owner may read; none after one that failed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        # without a buffer: what a full disk does not take is not tried again at the end
        self._file = open(path, "ab", buffering=0, opener=_open_private)  # noqa: SIM115

    def emit(self, record: logging.LogRecord) -> None:
        if self._file.closed:
            return
        try:
            self._file.write(f"{self.format(record)}\n".encode("utf-8", "backslashreplace"))
        except OSError as exc:
            self.close()
            _tell(f"claimscore: --log-file {self._path} ends here: {exc.strerror}")

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # a terminal that is gone is no reason to stop
        print(line, file=sys.stderr, flush=True)


def log_to_terminal() -> Callable[[], None]:
    """Write the main steps to standard error; returns a function that ends it."""
    return _add(_ErrorStream(), logging.Formatter("claimscore: %(message)s"), logging.INFO)


def log_to_file(path: Path) -> Callable[[], None]:
    """Append each step, and each request that fails, to a file that only its owner may read.

    Returns a function that ends it; raises `OSError` where the file cannot be opened. A file that
    cannot be written to any more ends with one line on standard error, and the work goes on.
    """
    line = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    line.converter = time.gmtime
    line.default_time_format, line.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    ends = contextlib.ExitStack()
    ends.callback(_add(_PrivateFile(path), line, logging.DEBUG))
    if len(LOGGER.handlers) == 1:  # warnings go on being shown
        ends.callback(_add(_ErrorStream(), logging.Formatter(), logging.WARNING))
    return ends.close


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
