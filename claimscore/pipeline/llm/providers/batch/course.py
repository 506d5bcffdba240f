"""The course of one batch: to the server, and until the server has ended it.

Every step is on disk before and after it is made, so this goes on from wherever a killed
process, or a cancelled task, has left it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from anyio import lowlevel, to_thread

from claimscore.atomic import os_errors
from claimscore.errors import (
    ClaimscoreError,
    ConfigError,
    OutageError,
    RejectedError,
    TransientError,
)
from claimscore.pipeline.llm.providers.batch.files import BatchFolder, BatchState, Lock
from claimscore.pipeline.llm.providers.batch.lines import ENDED, GoneError, ServerBatch, is_no_room
from claimscore.pipeline.llm.providers.batch.waiting import Job

if TYPE_CHECKING:
    from claimscore.pipeline.llm.providers.batch.api import BatchAPI

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

FIRST_POLL_S = 5.0
LONGEST_POLL_S = 60.0
POLL_GROWTH = 1.5
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0

#: How long after a lost answer to "create" the server's list of batches is surely complete.
SETTLE_S = 15.0

#: After so long, OpenAI deletes an uploaded file; a batch that was never created is forgotten.
FORGET_S = 30 * 86_400.0


class NoRoomError(Exception):
    """The server will take no (such large) batch now; nothing was paid."""


class Batch(Job):
    """One batch as this process sees it. `lock` is held until it is created."""

    def __init__(self, state: BatchState, keys: frozenset[str], lock: Lock | None) -> None:
        super().__init__()
        self.state = state
        self.keys = keys
        self.lock = lock
        self.server: ServerBatch | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the server has looked through it and taken it."""
        return self.server is not None and self.server.status not in ("validating", "failed")

    def release(self) -> None:
        """Let other processes see to it."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None


class Patience:
    """Repeats calls while their errors may pass. `trouble` is the last of them."""

    def __init__(self, max_outage_s: float, clock: Callable[[], float], sleep: Sleep) -> None:
        self.max_outage_s = max_outage_s
        self.trouble = ""
        self._clock = clock
        self._sleep = sleep

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the call returns; `OutageError` after `max_outage_s` without that."""
        began, wait_s = self._clock(), FIRST_RETRY_S
        while True:
            try:
                result = await call()
            except TransientError as exc:
                self.trouble = str(exc)
                pause_s = max(exc.retry_after_s or 0.0, wait_s * random.uniform(0.5, 1.0))
                if self._clock() + pause_s - began > self.max_outage_s:
                    raise OutageError(
                        f"tried in vain for {self.max_outage_s:,.0f} s (--max-outage-s): {exc}"
                    ) from None
                await self._sleep(pause_s)
                wait_s = min(2 * wait_s, LONGEST_RETRY_S)
            else:
                if wait_s > FIRST_RETRY_S:
                    self.trouble = ""
                return result


class Course:
    """Brings batches to one server. `api` makes the client when it is first needed."""

    def __init__(
        self,
        api: Callable[[], BatchAPI],
        folder: BatchFolder,
        patience: Patience,
        *,
        now: Callable[[], float],
        sleep: Sleep,
    ) -> None:
        self.folder = folder
        self._api = api
        self._patience = patience
        self._now = now
        self._sleep = sleep

    async def submitted(self, batch: Batch) -> bool:
        """Bring it to the server, or wait for the process that does.

        False where it is gone, or where not all of it is wanted any more: it has cost nothing
        and may be forgotten. Raises what the server refuses it with; then it has cost nothing
        either, unless its status is "creating".
        """
        while batch.state.status != "created":
            if batch.lock is None:
                batch.lock = self.folder.lock(batch.state.uuid)
            if batch.lock is None:
                await self._sleep(FIRST_POLL_S)
            state = self.folder.read(batch.state.uuid)
            if state is None:
                return False
            batch.state = state
            if state.status != "created" and batch.lock is not None:
                return await self._submit(batch)
        batch.release()
        return True

    async def found(self, batch: Batch) -> bool:
        """Whether a batch whose process has ended is on the server after all."""
        state = self.folder.read(batch.state.uuid)
        if state is None:
            return False
        batch.state = state
        server = await self._find(batch)
        if server is not None:
            self._note_created(batch, server)
        elif batch.state.status == "creating":
            batch.state = self.folder.moved(batch.state, "uploaded")
        return batch.state.status == "created"

    def is_stale(self, batch: Batch) -> bool:
        """Whether it is so old that the server has deleted its file."""
        return self._now() - batch.state.prepared_at > FORGET_S

    async def ended(self, batch: Batch) -> ServerBatch:
        """What the server says of it when it has ended."""
        wait_s = FIRST_POLL_S
        while True:
            server = await self._patience(lambda: self.looked_at(batch))
            if server.status in ENDED:
                return server
            await self._sleep(wait_s)
            wait_s = min(wait_s * POLL_GROWTH, LONGEST_POLL_S)

    async def looked_at(self, batch: Batch) -> ServerBatch:
        """What the server says of it now."""
        assert batch.state.batch_id is not None, "created before"
        batch.server = await self._api().retrieve(batch.state.batch_id)
        return batch.server

    # -- steps; the lock is held

    async def _submit(self, batch: Batch) -> bool:
        server = await self._patience(lambda: self._find(batch))
        if server is None:
            wanted = bool(batch.keys) and batch.keys <= batch.waiters.keys()
            if not wanted or not await to_thread.run_sync(self.folder.is_whole, batch.state):
                return False
            server = await self._send(batch)
        self._note_created(batch, server)
        return True

    async def _send(self, batch: Batch) -> ServerBatch:
        try:
            await self._patience(lambda: self._upload(batch))
            return await self._patience(lambda: self._create(batch))
        except GoneError as exc:
            raise ConfigError(f"no Batch API there ({exc}); use --llm openai:MODEL") from None
        except RejectedError as exc:
            if is_no_room(str(exc)):
                raise NoRoomError(str(exc)) from None
            raise ConfigError(f"the batch was refused: {exc}") from None

    async def _upload(self, batch: Batch) -> None:
        """Send the file, unless an attempt to do so has succeeded unseen."""
        state, file_id = batch.state, None
        if state.status in ("uploaded", "creating"):
            return
        if state.status == "uploading":
            file_id = await self._api().find_file(state.file_name, state.n_bytes)
        if file_id is None:
            batch.state = self.folder.moved(state, "uploading")
            path = self.folder.requests(state.uuid)
            with os_errors(path):
                file_id = await self._api().upload(path, state.file_name)
        batch.state = self.folder.moved(batch.state, "uploaded", file_id=file_id)

    async def _create(self, batch: Batch) -> ServerBatch:
        """The one step that costs money: written ahead, and never repeated blindly."""
        server = await self._find(batch)
        if server is not None:
            return server
        await lowlevel.checkpoint_if_cancelled()  # after a stop, no step costs money
        batch.state = self.folder.moved(batch.state, "creating")
        assert batch.state.file_id is not None, "uploaded before"
        try:
            return await self._api().create(batch.state.file_id, batch.state.uuid)
        except TransientError:
            raise  # it may be there all the same
        except (ClaimscoreError, GoneError):
            batch.state = self.folder.moved(batch.state, "uploaded")
            raise

    async def _find(self, batch: Batch) -> ServerBatch | None:
        """The batch, where an attempt to create it may have succeeded unseen."""
        state = batch.state
        if state.status != "creating":
            return None
        age_s = self._now() - state.written_at
        if age_s < SETTLE_S:
            await self._sleep(min(SETTLE_S, SETTLE_S - age_s))
        return await self._api().find_batch(state.uuid)

    def _note_created(self, batch: Batch, server: ServerBatch) -> None:
        batch.server = server
        batch.state = self.folder.moved(batch.state, "created", batch_id=server.id)
        batch.release()
