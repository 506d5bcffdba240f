"""The batches that are under way, as one process knows them: in step with the folder."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator

from anyio import to_thread

from claimscore.pipeline.llm.providers.batch.course import Batch, Sleep
from claimscore.pipeline.llm.providers.batch.files import BatchFolder, Prepared

_CLAIM_POLL_S = 0.2


class KnownBatches:
    """All batches of a folder, whoever has sent them."""

    def __init__(self, folder: BatchFolder, sleep: Sleep) -> None:
        self.folder = folder
        self._sleep = sleep
        self._batches: dict[str, Batch] = {}

    def __iter__(self) -> Iterator[Batch]:
        """As they are now: others may come and go meanwhile."""
        return iter(list(self._batches.values()))

    @contextlib.asynccontextmanager
    async def claim(self) -> AsyncIterator[None]:
        """The right to add batches, so that no two processes send the same request."""
        self.folder.make()
        while (lock := self.folder.claim()) is None:
            await self._sleep(_CLAIM_POLL_S)
            self.folder.make()
        try:
            yield
        finally:
            lock.release()

    async def refresh(self) -> None:
        """See what other processes have sent, and have done with."""
        names = set(await to_thread.run_sync(self.folder.names))
        for name in self._batches.keys() - names:
            batch = self._batches[name]
            if not batch.waiters and not batch.led:
                batch.release()
                del self._batches[name]
        missing = names - self._batches.keys()  # those that ended meanwhile cannot be read
        for batch in await to_thread.run_sync(self._read, missing):
            self._batches[batch.state.uuid] = batch

    def _read(self, names: Iterable[str]) -> list[Batch]:
        states = [state for name in names if (state := self.folder.read(name)) is not None]
        return [Batch(state, frozenset(self.folder.keys(state.uuid)), None) for state in states]

    def add(self, prepared: Prepared) -> Batch:
        """One that was just written."""
        batch = Batch(prepared.state, frozenset(prepared.keys), prepared.lock)
        self._batches[prepared.state.uuid] = batch
        return batch

    def drop(self, batch: Batch) -> None:
        """It is done with: nothing of it is needed any more, here or on disk."""
        self.folder.remove(batch.state.uuid)
        self._batches.pop(batch.state.uuid, None)
        batch.release()

    def release(self) -> None:
        """Let other processes see to all of them."""
        for batch in self:
            batch.release()
