"""One prompt over one table, from input to file. Running again is resuming."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import anyio
import anyio.to_thread
import polars as pl
from anyio import lowlevel
from polars.io.plugins import register_io_source

from claimscore import __version__
from claimscore.config import LLMConfig
from claimscore.errors import ClaimscoreError, ConfigError, StoppedEarly
from claimscore.pipeline.blocking import run_blocking
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.money import SPEND_FILE
from claimscore.pipeline.llm.providers.base import Provider, load_provider
from claimscore.pipeline.llm.session import open_engine
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.map.files import (
    CALLED,
    COLUMNS,
    NO_FAILURES,
    STATE_FILE,
    FinishedMap,
    MapFiles,
)
from claimscore.pipeline.map.questions import (
    ERROR_COLUMN,
    STAGE,
    Questions,
    RowOutcome,
    RowRequests,
    check_builtin,
)
from claimscore.pipeline.map.table import TableSource, find_source, scratch_source
from claimscore.pipeline.progress import Progress
from claimscore.pipeline.repair import repair
from claimscore.pipeline.signals import watch_signals
from claimscore.pipeline.spending import allowed_ahead, keep_spending, run_spent
from claimscore.pipeline.telling import Teller
from claimscore.pipeline.watchdog import engine_watchdog
from claimscore.prompts import Prompt, Spec, load_prompt_file
from claimscore.rundir import RunDirectory
from claimscore.types import JSON, Completion

#: Seconds between two versions of state.json.
STATE_INTERVAL_S = 1.0

#: Chunks that may be open beyond those that keep the engine busy: their last rows are slow.
LINGERING = 7


@dataclasses.dataclass(frozen=True, eq=False)
class MapConfig:
    """Everything that one `claimscore map` was asked for.

    `input` is a file, a glob, an address, "-" (JSONL on standard input) or a polars frame. `out`
    is a file, or its address in an object store. `prompt` is a TOML file, a `Prompt`, or the name
    of one in `prompts_dir` or ours (`tone`, `tone=v2`). Rows are asked and kept in chunks of
    `chunk_rows`; the bytes of the result depend on it.
    """

    input: str | Path | pl.DataFrame = dataclasses.field(repr=False)
    prompt: str | Path | Prompt
    out: str | Path
    llm: LLMConfig = dataclasses.field(default_factory=LLMConfig)
    cache_dir: Path | None = None
    retry_failed: bool = False
    chunk_rows: int = 1_000
    prompts_dir: Path | None = None

    def __post_init__(self) -> None:
        if not str(self.out).endswith(".parquet"):
            raise ConfigError(f"--out {self.out}: the file is Parquet; let it end in .parquet")
        if self.chunk_rows < 1:
            raise ConfigError(f"chunk_rows must be at least 1, not {self.chunk_rows}")

    def load_prompt(self) -> Prompt:
        """The prompt, from its file where it is one."""
        if isinstance(self.prompt, Prompt):
            return self.prompt
        name = str(self.prompt)
        if isinstance(self.prompt, Path) or name.endswith(".toml") or Path(name).is_file():
            return load_prompt_file(Path(name), self.prompts_dir)
        return Spec.parse(name).load(self.prompts_dir)

    def settings(self, prompt: Prompt, provider: Provider, digest: str, count: int) -> JSON:
        """Everything that determines the file, for an input of `count` rows and that digest."""
        return {
            "records": {"digest": digest, "count": count},
            "chunk_records": self.chunk_rows,
            "prompt": {"name": prompt.name, "digest": prompt.digest},
            "llm": {
                "provider": provider.family,
                "namespace": provider.namespace,
                "model": provider.model,
            },
        }


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

    def mark(self) -> Hashable:
        """What changes whenever something happens."""
        return (super().mark(), self.rows_done)

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
    if provider is None:
        provider = load_provider(llm)
    else:  # the price is that of its model
        llm = dataclasses.replace(llm, model=f"{provider.family}:{provider.model}")
    check_builtin(prompt, provider)
    files = MapFiles(config.out)
    files.check()
    tell = Teller(MapProgress(), on_progress)
    finished = files.finished()
    wants_retry = config.retry_failed and finished is not None and finished.failed
    if finished is not None and not wants_retry and not files.has_parts:
        with scratch_source(config.input, stdin) as source:
            digest = source.digest()
        finished.refuse_others(config.settings(prompt, provider, digest, finished.rows))
        return _result(files, finished, tell.progress, was_finished=True)
    with RunDirectory(files.parts, tell.notice) as directory:
        repair(directory, tell, deep=True)
        files.remove_leftovers()
        keep_spending(directory)
        job = _Job(config, llm, prompt, provider, files, directory, tell)
        return job.run(find_source(config.input, directory.state, stdin))


def _result(
    files: MapFiles,
    finished: FinishedMap,
    progress: MapProgress,
    spent_in_all: JSON | None = None,
    *,
    was_finished: bool = False,
) -> MapResult:
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
        "was_finished": was_finished,
        **_spent(progress.engine),
        "spent_in_all": spent_in_all,
        "seconds": round(progress.elapsed_s, 3),
    }
    return MapResult(finished.where, finished.rows, failed, summary)


class _OpenChunk(NamedTuple):
    """A chunk on its way: the positions of the rows that are asked about, their requests, and the
    columns that an earlier call added to all of its rows."""

    number: int
    rows: Sequence[int]
    asked: RowRequests
    earlier: pl.DataFrame | None


class _Job:
    """One call at work in the run directory of a map's parts.

    A finished file stays the base of the result: with `retry_failed` the chunks that have failures
    are made again in the run directory, and the others are read from the file.
    """

    def __init__(
        self,
        config: MapConfig,
        llm: LLMConfig,
        prompt: Prompt,
        provider: Provider,
        files: MapFiles,
        directory: RunDirectory,
        tell: Teller[MapProgress],
    ) -> None:
        self._config = config
        self._size = config.chunk_rows
        self._llm = llm
        self._prompt = prompt
        self._provider = provider
        self._files = files
        self._directory = directory
        self._tell = tell
        self._progress = tell.progress
        self._finished = files.finished()
        self._base = files.rows(directory.state) if self._finished is not None else None
        self._settings: JSON = {}
        self._left: set[int] = set()
        self._state_written = 0.0
        self._error: Exception | None = None

    def run(self, source: TableSource) -> MapResult:
        """Do the missing chunks, then put the file together and take the parts away."""
        directory, progress = self._directory, self._progress
        self._tell.phase("reading", directory)
        questions = self._take_rows(source)
        todo = self._todo()
        if self._finished is not None and not (todo or directory.steps_done(STAGE)):
            directory.remove()
            return _result(self._files, self._finished, progress, was_finished=True)
        self._left = set(todo)
        progress.rows_total, progress.rows_done = self._n_rows, self._n_done
        directory.event("started", rows=self._n_rows, chunks_todo=len(todo))
        if todo:
            self._answer(questions, todo)
        self._tell.phase("writing", directory)
        finished = self._write_files()
        spent = dataclasses.asdict(run_spent(directory))
        directory.remove()
        return _result(self._files, finished, progress, spent)

    # Rows in

    def _take_rows(self, source: TableSource) -> Questions:
        """Make sure that all rows are there, and that answers so far are of the same settings."""
        config, directory, digest = self._config, self._directory, source.digest()
        known = directory.settings
        has_answers = directory.steps_done(STAGE) > 0
        table = None
        if not has_answers and known and not _same_rows(known, digest, self._size):
            for chunk in range(directory.n_chunks):
                directory.forget(chunk, "records")
            known = {}
        if self._finished is not None and self._base is not None:
            count, schema = self._finished.rows, self._base.schema(self._finished.columns)
        elif known and directory.steps_done("records") == directory.n_chunks:
            count, schema = known["records"]["count"], dict(directory.read("records", 0).schema)
        else:
            table = source.open()
            count, schema = table.n_rows, table.schema
        self._settings = config.settings(self._prompt, self._provider, digest, count)
        if self._finished is not None:
            self._finished.refuse_others(self._settings)
        questions = Questions(self._prompt, schema, source.name)
        if not has_answers:  # nothing was made with the settings that stand there
            directory.forget_settings(list(directory.settings))
        directory.check_settings(self._settings, CALLED)
        for chunk, frame in enumerate(table.chunks(self._size) if table is not None else ()):
            if not directory.has(chunk, "records"):
                directory.write_parts(chunk, "records", {"records": frame})
        return questions

    @property
    def _n_rows(self) -> int:
        return int(self._settings["records"]["count"])

    @property
    def _n_done(self) -> int:
        """The rows of all chunks but those that are left."""
        size = self._size
        return self._n_rows - sum(min(size, self._n_rows - n * size) for n in self._left)

    def _todo(self) -> list[int]:
        """The chunks to be asked about, in order.

        Of a finished file these are chunks with failures: where the user wants them tried again,
        and where an earlier call has begun to.
        """
        directory, wants_retry = self._directory, self._config.retry_failed
        again: set[int] = set()
        if wants_retry:
            failed = directory.scan("failures").select(pl.col("id").cast(pl.Int64)).collect()
            again = {row // self._size for row in failed["id"]}
        undone = set(range(-(-self._n_rows // self._size)))
        if self._base is not None:
            retries = wants_retry or directory.steps_done(STAGE)
            undone = {n // self._size for n in self._base.failed_numbers()} if retries else set()
        return sorted(again | {n for n in undone if not directory.has(n, STAGE)})

    def _read(self, chunk: int) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The input's columns of a chunk, and the added ones; None where there are none yet."""
        directory, added = self._directory, None
        if directory.has(chunk, STAGE):
            added = directory.read(COLUMNS, chunk)
        if self._finished is None or self._base is None:
            return directory.read("records", chunk), added
        rows = self._base.slice(chunk * self._size, self._size)
        columns = self._finished.columns
        return rows.select(columns), rows.drop(columns) if added is None else added

    # Answers

    def _answer(self, questions: Questions, todo: list[int]) -> None:
        directory = self._directory
        self._tell.phase("running", directory)
        self._write_state(now=True)
        try:
            with allowed_ahead(directory, self._llm):
                run_blocking(self._work, questions, todo)
        except BaseException as exc:
            with contextlib.suppress(ClaimscoreError):  # the reason to stop is the news
                self._write_state(now=True)
                used = _spent(self._progress.engine)
                directory.event("stopped", reason=f"{type(exc).__name__}: {exc}", **used)
            raise
        finally:
            self._tell.leave(directory)

    async def _work(self, questions: Questions, todo: list[int]) -> None:
        config, directory, tell = self._config, self._directory, self._tell
        hear = tell.hear(directory)
        async with open_engine(
            self._llm,
            self._provider,
            config.cache_dir,
            spend_file=directory.state / SPEND_FILE,
            retry_failed=config.retry_failed,
            on_event=hear,
        ) as engine:
            self._progress.engine = engine.stats
            async with anyio.create_task_group() as background:
                watchdog = engine_watchdog(
                    self._llm,
                    progress_mark=self._progress.mark,
                    waiting_for=engine.waiting_for,
                    tell=lambda message: hear("hung", notice=message),
                    fail=functools.partial(self._fail, engine),
                    background=background,
                )
                background.start_soon(watch_signals, functools.partial(self._stop, engine))
                background.start_soon(tell.keep_telling, directory, engine)
                background.start_soon(watchdog.run)
                try:
                    await self._ask_chunks(engine, questions, todo)
                finally:
                    engine.observe()
                background.cancel_scope.cancel()
            if engine.stats.all_too_long:
                raise ConfigError("every request is too long for the model; nothing was answered")

    def _stop(self, engine: Engine) -> None:
        """Send no new requests; answers in flight land."""
        self._progress.phase = "stopping: finishing what is in flight (Ctrl-C again: at once)"
        self._fail(engine, StoppedEarly("interrupted"))

    def _fail(self, engine: Engine, error: Exception) -> None:
        """Stop for this reason unless there is one already.

        No chunk raises while another has requests in flight: that would cancel them.
        """
        self._error = self._error or error
        engine.stop()

    @contextlib.contextmanager
    def _errors_stop(self, engine: Engine) -> Iterator[None]:
        try:
            yield
        except Exception as exc:  # `_ask_chunks` raises it again
            self._fail(engine, exc)

    async def _ask_chunks(self, engine: Engine, questions: Questions, todo: Sequence[int]) -> None:
        """Ask for chunk after chunk; raise what stopped them, after answers in flight have landed.

        The next chunk is ready when the engine runs short of rows, so the engine never starves,
        and few rows are in memory.
        """
        slots = anyio.Semaphore(LINGERING + math.ceil(2 * engine.max_concurrency / self._size))
        async with anyio.create_task_group() as group:
            for number in todo:
                await slots.acquire()
                with self._errors_stop(engine):
                    chunk = await anyio.to_thread.run_sync(self._open, number, questions)
                    await engine.runs_short()
                if self._error is not None:
                    break
                group.start_soon(self._ask, engine, questions, chunk, slots)
                await lowlevel.checkpoint()  # the engine hears of these rows before the next ones
        if self._error is not None:
            raise self._error

    def _open(self, number: int, questions: Questions) -> _OpenChunk:
        """Read a chunk; rows that have their answer are not asked about again."""
        frame, earlier = self._read(number)
        rows: Sequence[int] = range(frame.height)
        if earlier is not None:
            rows = earlier[ERROR_COLUMN].is_not_null().arg_true().to_list()
            frame = frame[rows]
            self._progress.rows_done += earlier.height - len(rows)
        return _OpenChunk(number, rows, questions.ask(frame, self._provider), earlier)

    async def _ask(
        self, engine: Engine, questions: Questions, chunk: _OpenChunk, slots: anyio.Semaphore
    ) -> None:
        n_counted = 0

        def parse(completion: Completion) -> dict[str, Any]:
            nonlocal n_counted
            answer = questions.parse(completion)
            n_counted += 1
            self._progress.rows_done += 1
            return answer

        with self._errors_stop(engine):
            answered = await engine.answer_all(
                chunk.asked.requests,
                parse,
                max_tokens_limit=questions.prompt.settings.max_tokens_limit,
            )
            outcomes: dict[int, RowOutcome] = {**chunk.asked.failures}
            outcomes.update(zip(chunk.asked.rows, answered, strict=True))
            self._progress.rows_done += len(chunk.rows) - n_counted
            await anyio.to_thread.run_sync(self._write, questions, chunk, outcomes)
        slots.release()

    def _write(
        self, questions: Questions, chunk: _OpenChunk, outcomes: Mapping[int, RowOutcome]
    ) -> None:
        """Make the answers of a chunk count."""
        numbers = [chunk.number * self._size + row for row in chunk.rows]
        columns, failures = questions.answers([outcomes[n] for n in range(len(numbers))], numbers)
        if chunk.earlier is not None:
            order = list(range(chunk.earlier.height))
            for position, row in enumerate(chunk.rows, start=chunk.earlier.height):
                order[row] = position
            columns = pl.concat([chunk.earlier, columns])[order]
        frames = {COLUMNS: columns, "failures": failures}
        self._directory.write_parts(chunk.number, STAGE, frames)
        self._left.discard(chunk.number)
        self._write_state()

    def _write_state(self, *, now: bool = False) -> None:
        """Say for people how far the work is, at most once a second unless `now`."""
        if not now and time.monotonic() - self._state_written < STATE_INTERVAL_S:
            return
        self._state_written = time.monotonic()
        done = self._n_done
        state = {
            "complete": False,
            "out": str(self._files.where),
            "rows": {
                "total": self._n_rows,
                "done": done,
                "failed": self._directory.counts().get("failures", 0),
                "left": self._n_rows - done,
            },
            "settings": self._settings,
            "to_go_on": "run the same `claimscore map` command again",
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        text = json.dumps(state, indent=2) + "\n"
        self._directory.folder.write(STATE_FILE, text.encode())

    # The end

    def _write_files(self) -> FinishedMap:
        """Put the parts together. The bytes depend on rows and settings alone."""
        failures = self._directory.scan("failures")
        by_kind = failures.group_by("kind").len().sort("kind").collect()
        columns = tuple(self._read(0)[0].columns)
        finished = FinishedMap(
            self._files.where, self._settings, self._n_rows, dict(by_kind.iter_rows()), columns
        )
        # Frame by frame: a scan of so many files reads too far ahead.
        rows = register_io_source(
            lambda *_: (self._whole(n) for n in range(self._directory.n_chunks)),
            schema=self._whole(0).schema,
        )
        row = pl.col("id").cast(pl.Int64).alias("row")
        self._files.write(finished, rows, failures.select(row, *NO_FAILURES.columns[1:]))
        return finished

    def _whole(self, chunk: int) -> pl.DataFrame:
        """The input's rows of a chunk with the columns that were added."""
        rows, added = self._read(chunk)
        assert added is not None, "every chunk is done"
        return pl.concat([rows, added], how="horizontal")


def _same_rows(settings: Mapping[str, Any], digest: str, chunk_rows: int) -> bool:
    return (settings["records"]["digest"], settings["chunk_records"]) == (digest, chunk_rows)


def _spent(engine: EngineStats | None) -> JSON:
    """What this call asked for and used, as far as servers said."""
    engine = engine or EngineStats()
    return {
        "requests": engine.sent,
        "cache_hits": engine.hits,
        "prompt_tokens": engine.prompt_tokens,
        "completion_tokens": engine.completion_tokens,
        "usd": engine.usd if engine.sent else 0.0,
        "possibly_billed_usd": engine.possibly_billed_usd,
        "retries": dict(engine.retries),
        **engine.servers_json(),
    }
