"""Prompts over one table, from input to file, and their cost. Running again is resuming."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
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
from claimscore.pipeline.llm.session import open_engine
from claimscore.pipeline.map.input_table import find_source, scratch_source
from claimscore.pipeline.map.map_files import (
    NO_CHAIN_FAILURES,
    NO_FAILURES,
    FinishedMap,
    MapFiles,
    MapParts,
    rows_noted,
)
from claimscore.pipeline.map.settings import MapConfig, map_settings, wants_more
from claimscore.pipeline.map.table_prompt import (
    KEY_COLUMN,
    RowOutcome,
    RowRequests,
    Rows,
    TablePrompt,
    chain,
    check_tasks,
)
from claimscore.pipeline.progress import Progress, ProgressReporter
from claimscore.pipeline.repair import repair
from claimscore.pipeline.supervision import run_blocking, signals_held, supervised
from claimscore.runs import RunDirectory
from claimscore.types import JSON, Completion, Request

if TYPE_CHECKING:
    from claimscore.pipeline.estimate import Estimate

#: Chunks, and rows of them, that may be open beyond those that keep the engine busy: their last
#: rows are slow.
LINGERING, LINGERING_ROWS = 7, 10_000


@dataclasses.dataclass(frozen=True)
class MapResult:
    """A finished file: of how many rows of the input it was made, and what failed, by kind; of
    several prompts by prompt and kind ("judge: parse"). A file that is not kept is there as long as
    this object."""

    path: Path | str
    rows: int
    failed: Mapping[str, int]
    summary: JSON
    is_kept: bool = True

    @property
    def failed_rows(self) -> int:
        """The rows of the input with a failure."""
        return self.rows - self.answered_rows

    @property
    def answered_rows(self) -> int:
        return int(self.summary["answered"])

    def frame(self) -> pl.LazyFrame:
        """The rows: the input's columns, the answers, `request_key` and `error`."""
        return self._scan(self.path)

    def failures(self) -> pl.LazyFrame:
        """What has no answer: row number, kind, message, attempts, key, raw answer; of several
        prompts also which, and the place of the item."""
        if self.failed:
            return self._scan(self.summary["failures"])
        is_alone = KEY_COLUMN in self.frame().collect_schema()
        return (NO_FAILURES if is_alone else NO_CHAIN_FAILURES).lazy()

    def _scan(self, path: Path | str) -> pl.LazyFrame:
        rows = pl.scan_parquet(path, glob=False)
        return rows if self.is_kept else rows.collect().lazy()


@dataclasses.dataclass
class MapProgress(Progress):
    """The state of a map: `rows_done` of `rows_total` rows have an answer or an error, also of
    chunks at work; of several prompts each has an equal part of a row. `rows_known` are no fewer
    than the `rows_before` that an earlier call had done."""

    rows_total: int = 0
    rows_done: float = 0
    rows_before: int = 0
    prompts: int = 1

    @property
    def rows_known(self) -> int:
        return max(self.rows_before, round(self.rows_done))

    def tick(self) -> None:
        """Note how far it is; called a few times a second."""
        super().tick()
        self.llm_pace.see(self.rows_done, self.started + self.elapsed_s)

    def remaining_s(self) -> float | None:
        """Seconds to the end at the recent pace, and no less than the limits and a pause allow;
        None where nothing was done lately, or is left."""
        left = self.rows_total - self.rows_known
        paced = self.llm_pace.seconds_for(left) if left else None
        least = self.engine.least_s(left * self.prompts) if self.engine else 0.0
        return None if paced is None or least is None else max(paced, least)

    def snapshot(self) -> JSON:
        """Everything as plain JSON, for `claimscore status` in another terminal."""
        return {**super().snapshot(), "rows": [self.rows_known, self.rows_total]}


class _OpenChunk(NamedTuple):
    """A chunk on its way: its rows, and what the first prompt asks about them."""

    number: int
    rows: Rows
    asked: RowRequests


def run_map(
    config: MapConfig,
    *,
    provider: Provider | None = None,
    stdin: BinaryIO | None = None,
    on_progress: Callable[[MapProgress], None] | None = None,
) -> MapResult:
    """Ask prompts about every row of a table, one after the other; write the rows with their
    answers.

    `provider` takes the place of the one that `config.llm` names. Finished chunks and paid
    answers are kept: after an interrupt, a crash or a kill, the same call goes on where it
    was. Raises `ConfigError` for wrong input or settings (before anything is spent) and
    `StoppedEarly` when stopped.
    """
    prompts, llm = config.load_prompts(), config.llm
    provider = provider or load_provider(llm)
    for prompt in prompts:
        check_tasks(prompt, provider)
    settings = functools.partial(map_settings, config, prompts, provider)
    files = MapFiles(config.out)
    files.check()
    progress = MapProgress(prompts=len(prompts))
    reporter = ProgressReporter(progress, on_progress)
    finished = files.finished()
    if finished is not None and not _goes_on(config, finished) and not files.has_parts:
        with scratch_source(config.input, stdin) as source:
            finished.refuse_others(settings, source.digest(), config.limit)
        return _result(files, finished, progress)
    with RunDirectory(files.parts, reporter.notice) as directory:
        note = directory.note()
        repair(directory, reporter)
        files.remove_leftovers()
        reporter.phase("reading", directory)
        parts = MapParts(files, directory)
        source = find_source(config.input, directory.state, stdin)
        steps = parts.take(source, settings, prompts, config.limit)
        todo = parts.todo(retry_failed=config.retry_failed)
        if finished is not None:
            before = ((number, finished.rows - number * parts.chunk_rows) for number in todo)
            frames = (parts.read(number).head(n_rows) for number, n_rows in before if n_rows > 0)
            asked = _estimate(config, steps, provider, frames).tasks[: len(steps)]
            try:
                finished.refuse_paying_again(asked)
            except ConfigError:
                if not parts.n_done:
                    directory.remove()
                raise
        progress.rows_total, progress.rows_done = parts.n_rows, parts.n_done
        progress.rows_before = 0 if config.retry_failed else rows_noted(note, parts.n_rows)
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
                asker = _ChunkAsker(parts, steps, engine, progress)
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


def _goes_on(config: MapConfig, finished: FinishedMap) -> bool:
    """Whether there is something to do about a finished file: failed rows, or more rows."""
    has_failed = bool(config.retry_failed and finished.failed)
    return has_failed or wants_more(finished.settings["records"], config.limit)


def _result(
    files: MapFiles, finished: FinishedMap, progress: MapProgress, spent: JSON | None = None
) -> MapResult:
    """The result of a call; without `spent`, the file was finished before."""
    failed, n_failed = dict(finished.failed), finished.failed_rows
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
    """Asks about the rows of chunk after chunk, one prompt after the other, and writes the answers.
    The next chunk is ready when the engine runs short: it never starves, and few rows are in
    memory."""

    def __init__(
        self, parts: MapParts, steps: Sequence[TablePrompt], engine: Engine, progress: MapProgress
    ) -> None:
        self._parts = parts
        self._steps = steps
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
        frame, first = self._parts.read(number), number * self._parts.chunk_rows
        rows = Rows(frame, range(first, first + frame.height))
        return _OpenChunk(number, rows, self._steps[0].requests(rows, self._engine.provider))

    async def _ask(self, chunk: _OpenChunk, slots: anyio.Semaphore) -> None:
        rows, asked, failures = chunk.rows, chunk.asked, []
        share = rows.frame.height / len(self._steps)
        for place, step in enumerate(self._steps):
            if place:
                asked = await anyio.to_thread.run_sync(step.requests, rows, self._engine.provider)
            answered = await self._answers(step, asked.requests, share)
            rows, failed = await anyio.to_thread.run_sync(step.answers, rows, asked, answered)
            failures.append(failed)
        made = chunk.number, rows.frame, pl.concat(failures)
        await anyio.to_thread.run_sync(self._parts.write, *made)
        slots.release()

    async def _answers(
        self, step: TablePrompt, requests: Sequence[Request], share: float
    ) -> Sequence[RowOutcome]:
        """The outcomes of requests, which together are a `share` of the rows."""
        progress, n_counted = self._progress, 0

        def parse(completion: Completion) -> dict[str, Any]:
            nonlocal n_counted
            answer = step.parse(completion)
            n_counted += 1
            progress.rows_done += share / len(requests)
            return answer

        answered = await self._engine.answer_all(requests, **step.how(parse), of=step.name)
        progress.rows_done += share - n_counted * share / (len(requests) or 1)
        return answered


def estimate_map(
    config: MapConfig, *, provider: Provider | None = None, stdin: BinaryIO | None = None
) -> Estimate:
    """Requests, tokens, dollars and hours of a map, minus the answers in the cache.

    Of a finished file only failed rows are asked again, and only with `retry_failed`. Sends
    nothing and writes nothing; wrong input is refused as `map` refuses it.
    """
    prompts, files = config.load_prompts(), MapFiles(config.out)
    files.check()
    with contextlib.ExitStack() as stack:
        if provider is None:
            provider = load_provider(config.llm)
            stack.callback(run_blocking, provider.aclose)
        for prompt in prompts:
            check_tasks(prompt, provider)
        source = stack.enter_context(scratch_source(config.input, stdin))
        table = source.open().head(config.limit)
        steps = chain(prompts, table.schema, table.name)
        frames: Iterable[pl.DataFrame] = table.chunks(config.rows_of_a_chunk(table.n_rows))
        finished = None if files.has_parts else files.finished()
        if finished is not None:
            settings = functools.partial(map_settings, config, prompts, provider)
            finished.refuse_others(settings, source.digest(), config.limit)
            frames = frames if _goes_on(config, finished) else ()
        return _estimate(config, steps, provider, frames)


def _estimate(
    config: MapConfig,
    steps: Sequence[TablePrompt],
    provider: Provider,
    frames: Iterable[pl.DataFrame],
) -> Estimate:
    """What these rows would cost: each prompt's requests, as far as they are known, then what later
    prompts may ask at most about answers that are not there yet."""
    from claimscore.pipeline.estimate.chain import estimate_chain  # slow, and no part of a map

    return estimate_chain(
        steps,
        (Rows(frame, range(frame.height)) for frame in frames),
        llm=config.llm,
        provider=provider,
        cache_dir=config.cache_dir,
        retry_failed=config.retry_failed,
    )
