"""What becomes of requests that their batch has not answered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly, TransientError
from claimscore.pipeline.llm.providers.batch.collecting import Collection
from claimscore.pipeline.llm.providers.batch.course import Batch, Patience
from claimscore.pipeline.llm.providers.batch.known import KnownBatches
from claimscore.pipeline.llm.providers.batch.lines import (
    LineReader,
    Result,
    ServerBatch,
    is_no_room,
)
from claimscore.pipeline.llm.providers.batch.room import Room
from claimscore.pipeline.llm.providers.errors import Refusal

#: A refusal of a whole batch that is no fault of ours.
_PASSES = re.compile(r"internal|server_error|timeout|timed out|unavailable|try again")


class Unanswered:
    """Brings them into the next batch, or gives them their error.

    `teaches` says whether a complaint is about how we ask, and lets the next batch ask otherwise;
    `tell` is for what happens seldom.
    """

    def __init__(
        self,
        known: KnownBatches,
        collection: Collection,
        room: Room,
        patience: Patience,
        *,
        reader: LineReader,
        teaches: Callable[[Batch, Refusal | None], bool],
        tell: Callable[..., None],
    ) -> None:
        self._known = known
        self._collection = collection
        self._room = room
        self._patience = patience
        self._reader = reader
        self._teaches = teaches
        self._tell = tell

    def settle(
        self, batch: Batch, server: ServerBatch, complaints: Mapping[str, Result], n_answered: int
    ) -> None:
        """What was not answered is asked again, in another dialect or as it was, or not at all."""
        unheard = TransientError(
            f"{self._reader.base_url}: {server.id} is {server.status}, without it"
        )
        stop: Exception | None = None
        for waiter in list(batch.waiters.values()):
            result = complaints.get(waiter.key)
            error = unheard if result is None else result.outcome
            assert isinstance(error, ClaimscoreError), "answers have found their waiters"
            if n_answered == 0 and result is not None and self._teaches(batch, result.complaint):
                self._collection.join(waiter)
            elif isinstance(error, TransientError):
                self._collection.try_again(waiter, error)
            else:
                waiter.settle(error)
                if isinstance(error, ConfigError | StoppedEarly):
                    stop = error
        if stop is not None:
            self._collection.close(stop)

    def refused(self, batch: Batch, server: ServerBatch) -> None:
        """The server would not begin with a batch."""
        self._known.drop(batch)
        results = [self._reader.refusal(fault) for fault in server.faults]
        words = "; ".join(str(result.outcome) for result in results) or "no reason given"
        lower = " ".join(result.complaint.words for result in results if result.complaint)
        self._tell("batch refused", batch=server.id, reason=words)
        if is_no_room(lower):
            self.no_room(batch, words)
            return
        if any(self._teaches(batch, result.complaint) for result in results):
            self.collect_anew(batch)
            return
        for result in results:
            if isinstance(result.outcome, ConfigError | StoppedEarly):
                raise result.outcome
        if results and not _PASSES.search(lower):
            raise ConfigError(f"the batch was refused: {words}")
        for waiter in list(batch.waiters.values()):
            self._collection.try_again(waiter, TransientError(f"the batch was refused: {words}"))

    def no_room(self, batch: Batch, words: str) -> None:
        """The server would not take so much now; nothing was paid."""
        self._known.drop(batch)
        self._patience.trouble = words
        self._room.refused(batch, self._known, words)
        self.collect_anew(batch)

    def collect_anew(self, batch: Batch) -> None:
        """Forget a batch that costs nothing; its requests are collected like new ones."""
        self._known.drop(batch)
        for waiter in list(batch.waiters.values()):
            self._collection.join(waiter)
