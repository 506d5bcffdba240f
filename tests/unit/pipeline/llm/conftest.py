"""Engines in virtual time: hours of waiting take no time, and figures are those of every run."""

import random
from collections.abc import Callable, Sized
from typing import Any

import anyio
import pytest

from tests.support.virtual_time import VIRTUAL_TIME, at_once


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL_TIME


@pytest.fixture(autouse=True)
def the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same draws, and no thread: virtual time would not wait for it."""
    random.seed(7)
    monkeypatch.setattr(anyio.to_thread, "run_sync", at_once)


class SlowDisk:
    """A write takes a while, once it is allowed; `sizes` are those of the transactions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed = anyio.Event()
        self.sizes: list[int] = []
        monkeypatch.setattr(anyio.to_thread, "run_sync", self._write)

    async def _write(self, put: Callable[..., Any], entries: Sized, **_: Any) -> None:
        await self.allowed.wait()
        await anyio.sleep(0.01)
        self.sizes.append(len(entries))
        put(entries)


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(monkeypatch)
