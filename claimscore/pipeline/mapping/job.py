"""One prompt over one table, from input to file. Running again is resuming."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Hashable
from typing import BinaryIO

import anyio
from anyio.abc import TaskGroup

from claimscore import __version__
from claimscore.config import LLMConfig
from claimscore.errors import ClaimscoreError, ConfigError
from claimscore.pipeline.blocking import run_blocking
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.money import spent_so_far
from claimscore.pipeline.llm.providers.base import Provider, load_provider
from claimscore.pipeline.llm.session import open_engine
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.mapping.chunks import Chunks, MapProgress
from claimscore.pipeline.mapping.config import MapConfig, MapResult
from claimscore.pipeline.mapping.finished import Finished, failures_path
from claimscore.pipeline.mapping.parts import (
    Parts,
    parts_path,
    refuse_other_failures,
    remove_old_parts,
)
from claimscore.pipeline.mapping.questions import Questions
from claimscore.pipeline.mapping.store import to_store
from claimscore.pipeline.mapping.table import Source, find_source, scratch_source
from claimscore.pipeline.signals import watch_signals
from claimscore.pipeline.telling import Teller
from claimscore.pipeline.watchdog import Watchdog, engine_watchdog
from claimscore.prompts import Prompt
from claimscore.types import JSON

OnProgress = Callable[[MapProgress], None]


def map(
    config: MapConfig,
    *,
    provider: Provider | None = None,
    stdin: BinaryIO | None = None,
    on_progress: OnProgress | None = None,
) -> MapResult:
    """Ask a prompt about every row of a table; write the rows with their answers.

    `provider` takes the place of the one that `config.llm` names. Finished chunks and paid
    answers are kept: after an interrupt, a crash or a kill, the same call goes on where it
    was. Raises `ConfigError` for wrong input or settings (before anything is spent) and
    `StoppedEarly` when stopped.
    """
    if config.is_remote:
        return to_store(config, lambda here: _map(here, provider, stdin, on_progress))
    return _map(config, provider, stdin, on_progress)


def _map(
    config: MapConfig,
    provider: Provider | None,
    stdin: BinaryIO | None,
    on_progress: OnProgress | None,
) -> MapResult:
    prompt = config.load_prompt()
    asked, llm = provider or load_provider(config.llm), config.llm
    if provider is not None:  # the price is that of its model
        llm = dataclasses.replace(llm, model=f"{provider.family}:{provider.model}")
    check_builtin(prompt, asked)
    tell = Teller(MapProgress(), on_progress)
    job = _Job(config, llm, prompt, asked, stdin, tell)
    refuse_other_failures(config.path)
    remove_old_parts(config.path)
    finished = Finished.read(config.path)
    again = finished is not None and config.retry_failed and bool(finished.failed)
    if finished is not None and not again and not parts_path(config.path).exists():
        with scratch_source(config.input, stdin) as source:
            finished.refuse_others(job.settings(source.digest(), finished.rows))
        return job.result(finished, was_finished=True)
    return job.run()


def check_builtin(prompt: Prompt, provider: Provider) -> None:
    """`ConfigError` where rules that know some tasks would be asked for another one."""
    if provider.family != "builtin":
        return
    from claimscore.baseline.provider import TASKS as RULES
    from claimscore.pipeline.tasks import TASKS

    task = TASKS.get(prompt.name) if prompt.name in RULES else None
    if task is None or dict(task.output) != dict(prompt.output):
        raise ConfigError(
            f"--llm builtin is rules for {', '.join(RULES)} with their [output], and cannot do "
            f"the prompt {prompt.name}; name a language model: --llm openai:MODEL"
        )


def map_settings(
    config: MapConfig, prompt: Prompt, provider: Provider, digest: str, count: int
) -> JSON:
    """Everything that determines the file of a map over `count` rows of that digest."""
    return {
        "records": {"digest": digest, "count": count},
        "chunk_records": config.chunk_rows,
        "prompt": {"name": prompt.name, "digest": prompt.digest},
        "llm": {
            "provider": provider.family,
            "namespace": provider.namespace,
            "model": provider.model,
        },
    }


@dataclasses.dataclass
class _Job:
    """All that one call works with."""

    config: MapConfig
    llm: LLMConfig
    prompt: Prompt
    provider: Provider
    stdin: BinaryIO | None
    tell: Teller[MapProgress]

    @property
    def progress(self) -> MapProgress:
        return self.tell.progress

    def settings(self, digest: str, count: int) -> JSON:
        """Everything that determines the file."""
        return map_settings(self.config, self.prompt, self.provider, digest, count)

    def run(self) -> MapResult:
        """Do what is missing, then put the file together."""
        with Parts(self.config.path) as parts:
            self.tell.phase("reading", parts)
            questions = self._take_rows(parts)
            if isinstance(questions, Finished):
                return self.result(questions, was_finished=True)
            todo = parts.todo()
            self.progress.rows_total = parts.records["count"]
            self.progress.rows_done = parts.rows_done
            parts.event("started", rows=self.progress.rows_total, chunks_todo=len(todo))
            if todo:
                self._answer(parts, questions, todo)
            self.tell.phase("writing", parts)
            in_all = dataclasses.asdict(spent_so_far(parts.spend_file))
            return self.result(parts.finish(), in_all)

    def result(
        self, finished: Finished, in_all: JSON | None = None, *, was_finished: bool = False
    ) -> MapResult:
        failed = dict(finished.failed)
        n_failed = sum(failed.values())
        summary = {
            "claimscore": __version__,
            "out": str(finished.path),
            "failures": str(failures_path(finished.path)) if n_failed else None,
            "rows": finished.rows,
            "answered": finished.rows - n_failed,
            "failed": failed,
            "failure_examples": finished.failure_examples(),
            "was_finished": was_finished,
            **spent(self.progress.engine or EngineStats()),
            "spent_in_all": in_all,
            "seconds": round(self.progress.elapsed_s, 3),
        }
        return MapResult(finished.path, finished.rows, failed, summary)

    # Rows in

    def _take_rows(self, parts: Parts) -> Questions | Finished:
        """Make sure that all rows are there, and that they are those that were asked for.

        A finished file is what comes back where nothing is to be tried again.
        """
        config = self.config
        finished = Finished.read(config.path)
        source = find_source(config.input, parts.scratch, self.stdin)
        digest = source.digest()
        if finished is not None:
            finished.refuse_others(self.settings(digest, finished.rows))
        parts.refuse_other_rows(digest, source.name)
        parts.drop_other_rows(digest, config.chunk_rows)
        if parts.has_all_rows:
            return self._known_rows(parts, source.name)
        if finished is None:
            return self._new_rows(parts, source, digest)
        if config.retry_failed and finished.failed:
            return self._failed_rows(parts, finished, source.name)
        parts.remove()
        return finished

    def _known_rows(self, parts: Parts, name: str) -> Questions:
        records = parts.records
        parts.settle(self.settings(records["digest"], records["count"]))
        questions = Questions(self.prompt, parts.schema(), name)
        if self.config.retry_failed:
            parts.forget_failed()
        return questions

    def _new_rows(self, parts: Parts, source: Source, digest: str) -> Questions:
        table = source.open()
        questions = Questions(self.prompt, table.schema, table.name)
        parts.settle(self.settings(digest, table.n_rows))
        parts.take(table, self.config.chunk_rows)
        return questions

    def _failed_rows(self, parts: Parts, finished: Finished, name: str) -> Questions:
        questions = Questions(self.prompt, finished.schema(), name)
        parts.settle(finished.settings)
        parts.take_again(finished, questions.schema, self.config.chunk_rows)
        return questions

    # Answers

    def _answer(self, parts: Parts, questions: Questions, todo: list[int]) -> None:
        self.tell.phase("running", parts)
        parts.write_state(now=True)
        try:
            run_blocking(self._work, parts, questions, todo)
        except BaseException as exc:
            with contextlib.suppress(ClaimscoreError):  # the reason to stop is the news
                parts.write_state(now=True)
                used = spent(self.progress.engine or EngineStats())
                parts.event("stopped", reason=f"{type(exc).__name__}: {exc}", **used)
            raise
        finally:
            self.tell.leave(parts)

    async def _work(self, parts: Parts, questions: Questions, todo: list[int]) -> None:
        config = self.config
        async with open_engine(
            self.llm,
            self.provider,
            config.cache_dir,
            spend_file=parts.spend_file,
            retry_failed=config.retry_failed,
            on_event=self.tell.hear(parts),
        ) as engine:
            self.progress.engine = engine.stats
            chunks = Chunks(parts, questions, engine, self.progress)
            async with anyio.create_task_group() as background:
                background.start_soon(watch_signals, chunks.stop)
                background.start_soon(self.tell.keep_telling, parts, engine)
                background.start_soon(self._watchdog(chunks, engine, parts, background).run)
                try:
                    await chunks.run(todo, chunk_rows=config.chunk_rows)
                finally:
                    engine.observe()
                background.cancel_scope.cancel()
            if engine.stats.all_too_long:
                raise ConfigError("every request is too long for the model; nothing was answered")

    def _watchdog(
        self, chunks: Chunks, engine: Engine, parts: Parts, background: TaskGroup
    ) -> Watchdog:
        """Notices a map in which nothing happens any more, says what it waits for, ends it."""
        hear = self.tell.hear(parts)

        def mark() -> Hashable:
            stats = engine.stats
            waits = round(stats.waiting_s)  # a pause, an outage: no standstill
            return (stats.sent, stats.answered, stats.hits, waits, self.progress.rows_done)

        return engine_watchdog(
            self.llm,
            progress_mark=mark,
            waiting_for=engine.waiting_for,
            tell=lambda message: hear("hung", notice=message),
            fail=chunks.fail,
            background=background,
        )


def spent(engine: EngineStats) -> JSON:
    """What this call asked for and used, as far as servers said."""
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
