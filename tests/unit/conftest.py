"""Unit tests start no process, open no connection and import no torch: a guard fails those that do.

It keeps this tier fast on every machine. The interpreter reports such events to an audit hook,
which is active while a file of this folder is collected and while a test of it runs.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PROCESSES = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system"})
CONNECTIONS = frozenset({"socket.bind", "socket.connect"})
HEAVY = frozenset({"torch", "transformers", "ray", "playwright"})

_guarded = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _guarded:
        return
    if event in PROCESSES:
        _refuse(f"starts a process ({event})")
    elif event in CONNECTIONS:
        _refuse(f"uses the network ({event} {arguments[1]!r})")
    elif event == "import" and arguments[0] in HEAVY:
        _refuse(f"imports {arguments[0]}")


def _refuse(deed: str) -> None:
    pytest.fail(f"a unit test {deed}: it belongs into tests/integration or tests/e2e")


# The standard library starts `uname` when it is first asked for the processor, as the SDK of
# OpenAI does; the answer is kept for the process.
platform.processor()
sys.addaudithook(_audit)


def _guard(active: bool) -> None:
    global _guarded
    _guarded = active


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Importing a test file of this tier is guarded."""
    _guard(collector.path.is_relative_to(HERE))
    try:
        return (yield)
    finally:
        _guard(False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test of this tier is guarded, with its fixtures."""
    _guard(item.path.is_relative_to(HERE))
    try:
        return (yield)
    finally:
        _guard(False)
