"""One prompt over one table, from input to file, and its cost. Running again is resuming."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import anyio
import anyio.to_thread
import polars as pl
from anyio import lowlevel

from claimscore import __version__
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.budget.ledger import SPEND_FILE, Ledger, read_ledger
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import Provider, load_provider
from claimscore.pipeline.llm.question import ParseWord
from claimscore.pipeline.llm.session import open_engine
from claimscore.pipeline.map.input_table import find_source, scratch_source
from claimscore.pipeline.map.map_files import (
    NO_FAILURES,
    FinishedMap,
    MapFiles,
    MapParts,
)
from claimscore.pipeline.map.settings import MapConfig, map_settings
from claimscore.pipeline.map.table_prompt import RowOutcome, RowRequests, TablePrompt, check_tasks
from claimscore.pipeline.progress import Progress, ProgressReporter
from claimscore.pipeline.repair import repair
from claimscore.pipeline.supervision import run_blocking, signals_held, supervised
from claimscore.runs import RunDirectory
from claimscore.types import JSON, Completion

if TYPE_CHECKING:
    from claimscore.pipeline.estimate import Estimate

#: Chunks, and rows of them, that may be open beyond those that keep the engine busy: their last
#: rows are slow.
LINGERING, LINGERING_ROWS = 7, 10_000


@dataclasses.dataclass(frozen=True)
class MapResult:
    """A finished file: how many rows it has, and how many failed, by kind."""

    path: Path | str
    rows: int
    failed: Mapping[str, int]
    summary: JSON

    @property
    def failed_rows(self) -> int:
        return sum(self.failed.values())

    @property
    def answered_rows(self) -> int:
        return self.rows - self.failed_rows

    def frame(self) -> pl.LazyFrame:
        """The rows: the input's columns, the answers, `request_key` and `error`."""
        return pl.scan_parquet(self.path, glob=False)

    def failures(self) -> pl.LazyFrame:
        """The rows without an answer: row number, kind, message, attempts, key, raw answer."""
        if not self.failed:
            return NO_FAILURES.lazy()
        return pl.scan_parquet(self.summary["failures"], glob=False)


@dataclasses.dataclass
class MapProgress(Progress):
    """The state of a map: `rows_done` of `rows_total` rows have an answer or an error.

    `rows_done` counts on while a chunk is at work.
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


class _OpenChunk(NamedTuple):
    """A chunk on its way: how many rows it has, and their requests."""

    number: int
    n_rows: int
    asked: RowRequests


def map(
    config: MapConfig,
    *,
    provider: Provider | None = None,
    stdin: BinaryIO | None = None,
    on_progress: Callable[[MapProgress], None] | None = None,
) -> MapResult:
    """Ask a prompt about every row of a table; write the rows with their answers.

    `provider` takes the place of the one that `config.llm` names. Finished chunks and paid
    answers are kept: after an interrupt, a crash or a kill, the same call goes on where it
    was. Raises `ConfigError` for wrong input or settings (before anything is spent) and
    `StoppedEarly` when stopped.
    """
    prompt, llm = config.load_prompt(), config.llm
    provider = provider or load_provider(llm)
    check_tasks(prompt, provider)
    settings = functools.partial(map_settings, config, prompt, provider)
    files = MapFiles(config.out)
    files.check()
    progress = MapProgress()
    reporter = ProgressReporter(progress, on_progress)
    finished = files.finished()
    wants_retry = config.retry_failed and finished is not None and finished.failed
    if finished is not None and not wants_retry and not files.has_parts:
        with scratch_source(config.input, stdin) as source:
            finished.refuse_others(settings(source.digest(), finished.rows))
        return _result(files, finished, progress)
    with RunDirectory(files.parts, reporter.notice, take_over=config.take_over) as directory:
        repair(directory, reporter)
        files.remove_leftovers()
        reporter.phase("reading", directory)
        parts = MapParts(files, directory)
        source = find_source(config.input, directory.state, stdin)
        table_prompt = parts.take(source, settings, prompt)
        todo = parts.todo(retry_failed=config.retry_failed)
        if finished is not None:
            frames = (parts.read(number) for number in todo)
            asked = _estimate(config, table_prompt, provider, frames).total
            try:
                finished.refuse_paying_again(asked)
            except ConfigError:
                if not parts.n_done:
                    directory.remove()
                raise
        progress.rows_total, progress.rows_done = parts.n_rows, parts.n_done
        directory.event("started", rows=parts.n_rows, chunks_todo=len(todo))

        async def answer(ledger: Ledger) -> None:
            async with open_engine(
                llm,
                provider,
                config.cache_dir,
                ledger=ledger,
                copy=directory.remote,
                retry_failed=config.retry_failed,
                on_event=reporter.event_listener(directory),
            ) as engine:
                progress.engine = engine.stats
                asker = _ChunkAsker(parts, table_prompt, engine, progress)
                async with supervised(engine, directory, reporter, stop=engine.stop):
                    await asker.run(todo)

        if todo:
            with (
                reporter.running(directory, progress.spent),
                contextlib.closing(Ledger(directory.state / SPEND_FILE)) as ledger,
                signals_held(),
            ):
                run_blocking(answer, ledger)
        reporter.phase("writing", directory)
        finished = parts.write_files()
        spent = read_ledger(directory.state / SPEND_FILE)[0].to_json()
        directory.remove()
        return _result(files, finished, progress, spent)


def _result(
    files: MapFiles, finished: FinishedMap, progress: MapProgress, spent: JSON | None = None
) -> MapResult:
    """The result of a call; without `spent`, the file was finished before."""
    failed = dict(finished.failed)
    n_failed = sum(failed.values())
    summary = {
        "claimscore": __version__,
        "out": str(files.where),
        "failures": str(files.failures) if n_failed else None,
        "rows": finished.rows,
        "answered": finished.rows - n_failed,
        "failed": failed,
        "failure_examples": files.failure_examples() if n_failed else {},
        "was_finished": spent is None,
        **progress.spent(),
        "spent_in_all": spent,
        "seconds": round(progress.elapsed_s, 3),
    }
    return MapResult(finished.where, finished.rows, failed, summary)


class _ChunkAsker:
    """Asks about the rows of chunk after chunk, and writes their answers.

    The next chunk is ready when the engine runs short of rows. So the engine never starves, and few
    rows are in memory.
    """

    def __init__(
        self, parts: MapParts, table_prompt: TablePrompt, engine: Engine, progress: MapProgress
    ) -> None:
        self._parts = parts
        self._prompt = table_prompt
        self._engine = engine
        self._progress = progress

    async def run(self, todo: Sequence[int]) -> None:
        """Do these chunks; raise what stops one of them."""
        size = self._parts.chunk_rows
        enough = math.ceil(2 * self._engine.max_concurrency / size)
        slots = anyio.Semaphore(enough + min(LINGERING, math.ceil(LINGERING_ROWS / size)))
        async with anyio.create_task_group() as group:
            for number in todo:
                await slots.acquire()
                chunk = await anyio.to_thread.run_sync(self._open, number)
                await self._engine.runs_short()
                group.start_soon(self._ask, chunk, slots)
                await lowlevel.checkpoint()  # the engine hears of these rows before the next ones

    def _open(self, number: int) -> _OpenChunk:
        rows = self._parts.read(number)
        return _OpenChunk(number, rows.height, self._prompt.requests(rows, self._engine.provider))

    async def _ask(self, chunk: _OpenChunk, slots: anyio.Semaphore) -> None:
        n_counted = 0

        def parse(completion: Completion) -> dict[str, Any]:
            nonlocal n_counted
            answer = self._prompt.parse(completion)
            n_counted += 1
            self._progress.rows_done += 1
            return answer

        answered = await self._engine.answer_all(
            chunk.asked.requests,
            ParseWord(parse) if self._prompt.prompt.label_words else parse,
            max_tokens_limit=self._prompt.prompt.settings.max_tokens_limit,
        )
        outcomes: dict[int, RowOutcome] = {**chunk.asked.failures}
        outcomes.update(zip(chunk.asked.rows, answered, strict=True))
        self._progress.rows_done += chunk.n_rows - n_counted
        await anyio.to_thread.run_sync(self._write, chunk, outcomes)
        slots.release()

    def _write(self, chunk: _OpenChunk, outcomes: Mapping[int, RowOutcome]) -> None:
        first = chunk.number * self._parts.chunk_rows
        in_order = [outcomes[row] for row in range(chunk.n_rows)]
        self._parts.write(chunk.number, self._prompt.answers(in_order, first))


def estimate_map(
    config: MapConfig, *, provider: Provider | None = None, stdin: BinaryIO | None = None
) -> Estimate:
    """Requests, tokens, dollars and hours of a map, minus the answers in the cache.

    Of a finished file only failed rows are asked again, and only with `retry_failed`. Sends
    nothing and writes nothing; wrong input is refused as `map` refuses it.
    """
    prompt, files = config.load_prompt(), MapFiles(config.out)
    files.check()
    with contextlib.ExitStack() as stack:
        if provider is None:
            provider = load_provider(config.llm)
            stack.callback(run_blocking, provider.aclose)
        check_tasks(prompt, provider)
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="claimscore-")))
        source = find_source(config.input, scratch, stdin)
        table = source.open()
        table_prompt = TablePrompt(prompt, table.schema, table.name)
        frames: Iterable[pl.DataFrame] = table.chunks(config.rows_of_a_chunk(table.n_rows))
        finished = None if files.has_parts else files.finished()
        if finished is not None:
            finished.refuse_others(
                map_settings(config, prompt, provider, source.digest(), finished.rows)
            )
            frames = frames if config.retry_failed and finished.failed else ()
        return _estimate(config, table_prompt, provider, frames)


def _estimate(
    config: MapConfig, table_prompt: TablePrompt, provider: Provider, frames: Iterable[pl.DataFrame]
) -> Estimate:
    """What these rows would cost."""
    from claimscore.pipeline.estimate import estimate_requests  # slow, and no part of a map

    prompt = table_prompt.prompt
    of_frames = (table_prompt.requests(frame, provider).requests for frame in frames)
    return estimate_requests(
        itertools.chain.from_iterable(of_frames),
        ParseWord(table_prompt.parse) if prompt.label_words else table_prompt.parse,
        name=prompt.name,
        llm=config.llm,
        provider=provider,
        cache_dir=config.cache_dir,
        retry_failed=config.retry_failed,
        max_tokens_limit=prompt.settings.max_tokens_limit,
    )
