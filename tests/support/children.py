"""Processes that tests start."""

import multiprocessing
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext


@contextmanager
def killed_at_last(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """None outlives its test, however that ends."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def processes_with(*modules: str) -> ForkServerContext:
    """Makes real processes that need not import `modules` each for itself.

    They are forked off one that has done it, and has no threads; the environment is that of the
    first test that asks.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context
