"""Processes that tests start."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def killed_at_last(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """None outlives its test, however that ends."""
    with process:
        try:
            yield process
        finally:
            process.kill()
