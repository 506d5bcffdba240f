"""The chunks of a map on their way: rows, questions, engine, answers, parts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.to_thread
import polars as pl

from claimscore.errors import StoppedEarly
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.mapping.parts import Parts
from claimscore.pipeline.mapping.questions import ERROR_COLUMN, Answers, Outcome, Questions
from claimscore.pipeline.progress import Progress
from claimscore.types import JSON, Completion

#: Chunks that may be open beyond those that keep the engine busy: their last rows are slow.
LINGERING = 7


@dataclasses.dataclass
class MapProgress(Progress):
    """The state of a map: `rows_done` of `rows_total` have an answer or an error.

    `rows_done` counts on while a chunk is at work, `rows_total` all rows of the input.
    """

    rows_total: int = 0
    rows_done: int = 0

    def tick(self) -> None:
        """Note how far it is; called a few times a second."""
        super().tick()
        self.llm_pace.see(self.rows_done, self.started + self.elapsed_s)

    def remaining_s(self) -> float | None:
        """Seconds to the end at the recent pace, and no less than the limits and a pause allow;
        None where nothing was done lately, or is left."""
        left = self.rows_total - self.rows_done
        paced = self.llm_pace.seconds_for(left) if left else None
        least = self.engine.least_s(left) if self.engine else 0.0
        return None if paced is None or least is None else max(paced, least)

    def snapshot(self) -> JSON:
        """Everything as plain JSON, for `claimscore status` in another terminal."""
        return {**super().snapshot(), "rows": [self.rows_done, self.rows_total]}


class Chunks:
    """Asks for the rows of one chunk after the other. One use: `await Chunks(...).run(todo)`.

    The next chunk is opened when half of the rows of one are answered, so the engine never
    starves at a chunk's end and few rows are in memory.
    """

    def __init__(
        self, parts: Parts, questions: Questions, engine: Engine, progress: MapProgress
    ) -> None:
        self._parts = parts
        self._questions = questions
        self._engine = engine
        self._progress = progress
        self._error: Exception | None = None

    async def run(self, todo: Sequence[int], *, chunk_rows: int) -> None:
        """Do all of these; raise what stopped them, after what was in flight has landed."""
        # As many as have, half answered, a row for each request that may be in flight.
        busy = math.ceil(2 * self._engine.max_concurrency / chunk_rows)
        young, opened = anyio.Semaphore(busy), anyio.Semaphore(busy + LINGERING)
        async with anyio.create_task_group() as group:
            for chunk in todo:
                await young.acquire()
                await opened.acquire()
                if self._error is not None:
                    break
                group.start_soon(self._chunk, chunk, chunk * chunk_rows, young, opened)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Ask for a stop: no new requests; what is in flight lands, what is done stays done."""
        self._progress.phase = "stopping: finishing what is in flight (Ctrl-C again: at once)"
        self.fail(StoppedEarly("interrupted"))

    def fail(self, error: Exception) -> None:
        """Stop for this reason unless there is one already.

        No chunk raises while another has requests in flight: that would cancel them.
        """
        self._error = self._error or error
        self._engine.stop()

    async def _chunk(
        self, chunk: int, first_row: int, young: anyio.Semaphore, opened: anyio.Semaphore
    ) -> None:
        turn = _Turn(young.release)
        try:
            answers = await self._answers(chunk, first_row, turn)
            await anyio.to_thread.run_sync(self._write, chunk, answers)
        except Exception as exc:  # raised again by `run`
            self.fail(exc)
        finally:
            turn.end()
            opened.release()

    async def _answers(self, chunk: int, first_row: int, turn: _Turn) -> Answers:
        """What becomes of the chunk's rows; rows whose answer is kept are not asked again."""
        frame, kept = await anyio.to_thread.run_sync(self._read, chunk)
        if kept is None:
            return await self._ask(frame, range(first_row, first_row + frame.height), turn)
        open_rows = kept[ERROR_COLUMN].is_not_null().arg_true().to_list()
        self._progress.rows_done += kept.height - len(open_rows)
        numbers = [first_row + row for row in open_rows]
        new = await self._ask(frame[open_rows], numbers, turn)
        order = list(range(kept.height))
        for position, row in enumerate(open_rows):
            order[row] = kept.height + position
        return new._replace(columns=pl.concat([kept, new.columns])[order])

    async def _ask(self, frame: pl.DataFrame, numbers: Sequence[int], turn: _Turn) -> Answers:
        asked = self._questions.ask(frame, self._engine.provider)
        n_counted = 0

        def parse(completion: Completion) -> dict[str, Any]:
            nonlocal n_counted
            answer = self._questions.parse(completion)
            n_counted += 1
            self._progress.rows_done += 1
            if 2 * n_counted >= len(asked.rows):
                turn.end()
            return answer

        answered = await self._engine.answer_all(asked.requests, parse)
        outcomes: dict[int, Outcome] = {**asked.failures}
        outcomes.update(zip(asked.rows, answered, strict=True))
        self._progress.rows_done += frame.height - n_counted
        return self._questions.answers([outcomes[row] for row in range(frame.height)], numbers)

    def _read(self, chunk: int) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        return self._parts.read(chunk), self._parts.kept(chunk)

    def _write(self, chunk: int, answers: Answers) -> None:
        self._parts.write(chunk, answers)
        self._parts.write_state()


class _Turn:
    """A chunk's turn to keep the engine busy; it ends once."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def end(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None
