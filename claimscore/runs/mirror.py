"""The files that grow on this machine, written into an object store every few seconds."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from claimscore.errors import ClaimscoreError
from claimscore.storage import Storage

#: Seconds between two copies; longer where copying takes more than a twentieth of the time.
COPY_S = 5.0

#: Gives a file's content, or None where it has not changed.
Content = Callable[[], bytes | None]


class Mirror:
    """Writes in a thread from `start` to `stop`. What fails is tried again the next time."""

    def __init__(self, folder: Storage) -> None:
        self._folder = folder
        self._contents: dict[str, Content] = {}
        self._unsent: dict[str, bytes] = {}
        self._given: dict[str, bytes] = {}
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="mirror", daemon=True)

    def add(self, name: str, content: Content) -> None:
        """Write this too, under this name; `content` replaces an earlier one of that name."""
        with self._mutex:
            self._contents[name] = content

    @property
    def names(self) -> frozenset[str]:
        """The names of the mirrored files."""
        with self._mutex:
            return frozenset(self._contents)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Copy a last time; raises what the store does."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.copy()

    def copy(self) -> None:
        """Copy now what has changed."""
        with self._mutex:
            for name, content in self._contents.items():
                new = content()
                if new is not None and new != self._given.get(name):
                    self._unsent[name] = self._given[name] = new
            while self._unsent:
                name = next(iter(self._unsent))
                self._folder.write(name, self._unsent[name])
                del self._unsent[name]

    def _keep(self) -> None:
        wait_s = COPY_S
        while not self._ended.wait(wait_s):
            began = time.monotonic()
            with contextlib.suppress(ClaimscoreError):  # said by who writes what counts
                self.copy()
            wait_s = max(COPY_S, 19 * (time.monotonic() - began))
