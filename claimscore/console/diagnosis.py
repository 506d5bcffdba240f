"""Reports for diagnosis: what `--verbose` writes to standard error, above bars where there are any.

They are records of Python's standard logging under the name `claimscore`. Neither keys nor texts
of records are in them: a server is named by its address, a request by its key in the cache.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable

from claimscore.console import harmless

LOGGER = logging.getLogger("claimscore")


class _ErrorStream(logging.Handler):
    """Lines on standard error; a terminal that is gone is no reason to stop."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            print(harmless(self.format(record)), file=sys.stderr, flush=True)


def log_to_terminal() -> Callable[[], None]:
    """Write each step, and each request that fails; returns a function that ends it."""
    handler, level = _ErrorStream(), LOGGER.level
    handler.setFormatter(logging.Formatter("claimscore: %(asctime)s %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)

    def end() -> None:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)

    return end
