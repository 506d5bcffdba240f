"""What a run is doing, as plain numbers; whoever wants to draws them."""

from __future__ import annotations

import dataclasses
import time

from claimscore.pipeline.llm.engine import EngineStats


@dataclasses.dataclass
class Progress:
    """The state of a run. Counts are of this invocation unless they say `total`."""

    phase: str = "reading"
    llm_chunks_todo: int = 0
    llm_chunks_done: int = 0
    model_chunks_todo: int = 0
    model_chunks_done: int = 0
    model_chunk_share: float = 0.0
    pairs_done: int = 0
    engine: EngineStats | None = None
    started: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    def remaining_s(self) -> float | None:
        """Seconds to the end at the pace so far of the slower stage; None while one of them
        has not done anything yet."""
        stages = [
            (self.llm_chunks_done, self.llm_chunks_todo),
            (self.model_chunks_done + self.model_chunk_share, self.model_chunks_todo),
        ]
        working = [(done, todo) for done, todo in stages if todo]
        if not working or not all(done for done, _ in working):
            return None
        return max(self.elapsed_s / done * (todo - done) for done, todo in working)
