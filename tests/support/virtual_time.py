"""An event loop whose time passes only when no task has anything to do: hours in milliseconds.

    @pytest.fixture
    def anyio_backend():
        return VIRTUAL_TIME

For code without sockets: a loop with nothing to wait for but those has come to an end. Work in
threads is to be done at once: `monkeypatch.setattr(anyio.to_thread, "run_sync", at_once)`.
"""

import asyncio  # noqa: TID251 - its loop is what anyio runs here
import selectors
from collections.abc import Callable
from typing import Any

from anyio import lowlevel


class _Skipping(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Skips the time until the next timer instead of waiting for it."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "all tasks wait for something that will never happen"
            self.skipped_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock begins at 0.0."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped_s

    async def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """As `asyncio.to_thread` wants it."""
        return await at_once(func, *args)


async def at_once(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
    """A function's result, without a thread; others have their turns before and after."""
    await lowlevel.checkpoint()
    result = function(*args)
    await lowlevel.checkpoint()
    return result


VIRTUAL_TIME = ("asyncio", {"loop_factory": VirtualLoop})
