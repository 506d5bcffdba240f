"""Telling how far the work is: who listens hears it, files keep it for other terminals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

import anyio

from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.progress import Progress

P = TypeVar("P", bound=Progress)

#: Seconds between two calls of who listens.
PROGRESS_INTERVAL_S = 0.2

#: Seconds between two notes for `claimscore status` in another terminal.
NOTE_INTERVAL_S = 1.0


class Journal(Protocol):
    """Where the news is kept: a run directory, or the parts of a map."""

    def event(self, kind: str, **fields: object) -> None:
        """A line in events.jsonl."""
        ...

    def write_note(self, note: Mapping[str, object]) -> None:
        """How far it is, for who asks meanwhile."""
        ...


class Teller(Generic[P]):
    """The state of the work, and whoever wants to hear of it."""

    def __init__(self, progress: P, listener: Callable[[P], None] | None) -> None:
        self.progress = progress
        self._listener = listener

    def phase(self, name: str, journal: Journal) -> None:
        """Say what is done now."""
        self.progress.phase = name
        journal.write_note(self.progress.snapshot())
        self._tell()

    def notice(self, text: str) -> None:
        """Show people what they should know now."""
        self.progress.notice = text
        self._tell()

    def hear(self, journal: Journal) -> Callable[..., None]:
        """What the engine tells its events: all are kept, a notice is shown to people too."""

        def hear(kind: str, **fields: object) -> None:
            journal.event(kind, **fields)
            if "notice" in fields:
                self.progress.notice = str(fields["notice"])

        return hear

    async def keep_telling(self, journal: Journal, engine: Engine | None) -> None:
        """Tell the listener several times a second, and leave a note every second."""
        noted = -NOTE_INTERVAL_S
        while True:
            if engine is not None:
                engine.observe()
            self.progress.tick()
            self._tell()
            if time.monotonic() - noted >= NOTE_INTERVAL_S:
                noted = time.monotonic()
                journal.write_note(self.progress.snapshot())
            await anyio.sleep(PROGRESS_INTERVAL_S)

    def leave(self, journal: Journal) -> None:
        """The last note: the work is over, however it ended."""
        self.progress.tick()
        journal.write_note({**self.progress.snapshot(), "phase": "ended"})

    def _tell(self) -> None:
        """Tell who listens; a terminal that is gone is no reason to stop."""
        if self._listener is None:
            return
        try:
            self._listener(self.progress)
        except OSError:
            self._listener = None
