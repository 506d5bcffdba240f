"""The LLM stage of a run, done dry: the run's own questions go to engines that send nothing.

Tasks that ask about claims or questions that are not made yet get stand-ins: what the built-in
rules make of the texts, or the task's own guess.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import polars as pl
from anyio import lowlevel

from claimscore.baseline.provider import TASKS as RULES
from claimscore.cache.base import Cache
from claimscore.config import LLMConfig, RunConfig
from claimscore.errors import ConfigError, ParseError
from claimscore.metrics.base import Metric, TaskRequirement
from claimscore.pipeline.blocking import run_blocking
from claimscore.pipeline.chunks import ChunkTodo, find_todo, with_chunk_size
from claimscore.pipeline.encoders.protocols import CHAT_LIMIT
from claimscore.pipeline.encoders.throughput import throughput_anywhere
from claimscore.pipeline.estimate.dry_engine import DryEngine, open_cache_if_there
from claimscore.pipeline.estimate.figures import Estimate, MetricRequirements, PassEstimate
from claimscore.pipeline.estimate.hours import llm_hours, with_times
from claimscore.pipeline.estimate.lengths import known_ratio
from claimscore.pipeline.llm.budget.pricing import find_prices
from claimscore.pipeline.llm.providers.base import Provider, load_provider
from claimscore.pipeline.llm.question import Answer, Parse
from claimscore.pipeline.llm_stage import (
    NOT_SENT,
    PromptRequests,
    ask_units,
    asked_settings,
    task_result,
    task_units,
)
from claimscore.pipeline.passes.pass_counts import count_items, count_tokens
from claimscore.pipeline.plan import (
    Plan,
    PlannedPass,
    PlannedTask,
    load_metrics,
    make_plan,
    read_records,
    refuse_unused_prompts,
    required_columns,
    sides_of_tasks,
)
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import Task, Unit, side_texts
from claimscore.pipeline.tasks.decompose import sentences_as_claims
from claimscore.runs import RunDirectory, damage_as_error
from claimscore.tables import FAILURES, TABLES, Table
from claimscore.types import Completion, Failure, Request

#: Of larger inputs every n-th chunk is counted, about so many records in all; fewer by a run that
#: is about to begin, since it waits for it.
COUNTED_RECORDS, COUNTED_BEFORE_A_RUN = 20_000, 1_000

#: Tasks that ask about claims are counted on about so many: the rules make the claims.
RULED_RECORDS = 3_000

#: The work of the models is counted on about so many: it takes the rules' claims of all texts.
WEIGHED_RECORDS = 192

#: Requests of one's own that are looked up at a time.
_BLOCK = 500


def estimate_run(
    config: RunConfig, *, out: Path | str | None = None, stdin: BinaryIO | None = None
) -> Estimate:
    """The requests, tokens, dollars and hours of `run(config)`, minus what the cache has.

    Nothing is sent, and nothing is written but a temporary copy of standard input. With
    `out`, an existing run directory, what is finished there counts as answered. Raises
    `ConfigError` where the run would be refused.
    """
    if not (config.metrics or config.tasks):
        raise ConfigError("nothing to do: name --metrics or --tasks")
    metrics = load_metrics(config.metrics, config.metric_files)
    required = required_columns(metrics)
    with (
        tempfile.TemporaryDirectory(prefix="claimscore-") as spool,
        contextlib.ExitStack() as stack,
    ):
        dataset = read_records(config, required, Path(spool), stdin)
        known = RunDirectory.reader(out).settings if out and RunDirectory.is_at(out) else {}
        config = with_chunk_size(config, dataset.n_records, known)
        plan = make_plan(config, list(dataset.columns), metrics)
        refuse_unused_prompts(config, plan)
        provider = load_provider(config.llm)
        stack.callback(run_blocking, provider.aclose)
        cache = stack.enter_context(open_cache_if_there(config.cache_dir))
        finished = _finished(out, dataset.digest, plan)

        def chunks(every: int) -> Iterator[tuple[int, pl.DataFrame]]:
            frames = enumerate(dataset.chunks(config.chunk_records))
            return ((n, records) for n, records in frames if n % every == 0)

        stage = _DryStage(config, plan, provider, cache, *finished)
        run_blocking(stage.count, chunks, dataset.n_records, COUNTED_RECORDS, True)
        return with_times(stage.estimate(), config, plan)


def estimate_left(
    config: RunConfig,
    plan: Plan,
    provider: Provider,
    directory: RunDirectory,
    n_records: int,
    todo: Iterable[ChunkTodo],
) -> Estimate:
    """The requests of a run that is about to begin: `todo` is missing of `directory`.

    Of larger inputs fewer records are counted than by `estimate_run`, since the run waits.
    """
    with open_cache_if_there(config.cache_dir) as cache:
        stage = _DryStage(config, plan, provider, cache, directory, todo)

        def chunks(every: int) -> Iterator[tuple[int, pl.DataFrame]]:
            return ((n, directory.read("records", n)) for n in range(0, directory.n_chunks, every))

        run_blocking(stage.count, chunks, n_records, COUNTED_BEFORE_A_RUN, False)
        return stage.estimate()


def estimate_requests(
    requests: Iterable[Request],
    parse: Parse[Any],
    *,
    name: str,
    llm: LLMConfig,
    provider: Provider,
    cache_dir: Path | None = None,
    retry_failed: bool = False,
    max_tokens_limit: int | None = None,
) -> Estimate:
    """The cost of these requests to `provider`, minus what the cache has: the estimate of a map.

    `parse` and `max_tokens_limit` are those of `Engine.answer_all`. The requests may be a
    generator: they are not kept. Nothing is sent or written; the provider is the caller's to close.
    """
    with open_cache_if_there(cache_dir) as cache:
        engine = DryEngine(
            name, provider, cache, max_samples=llm.max_samples, retry_failed=retry_failed
        )
        n_requests = 0

        async def count() -> None:
            nonlocal n_requests
            left = iter(requests)
            while block := list(itertools.islice(left, _BLOCK)):
                n_requests += len(block)
                await engine.answer_all(block, parse, max_tokens_limit=max_tokens_limit)
                await lowlevel.checkpoint()

        run_blocking(count)
        return _put_together(llm, provider, [engine], n_requests)


def metric_requirements(metric: Metric) -> MetricRequirements:
    """The tasks and passes that a metric needs, the tasks in the order in which they are done."""
    sides = sides_of_tasks(metric.requires.tasks)
    tasks = tuple(TaskRequirement(name, tuple(sides[name])) for name in TASKS if name in sides)
    return MetricRequirements(metric.name, tasks, metric.requires.passes)


def _finished(
    out: Path | str | None, digest: str, plan: Plan
) -> tuple[RunDirectory | None, list[ChunkTodo]]:
    """The run directory `out` and its unfinished steps, where it has finished ones; `ConfigError`
    where its records are others."""
    if out is None or not RunDirectory.is_at(out):
        return None, []
    directory = RunDirectory.reader(out)
    with damage_as_error(out):
        if not directory.manifest.all_steps():
            return None, []
        if directory.settings["records"]["digest"] != digest:
            raise ConfigError(f"{out} was made from other records; name another --out")
        return directory, find_todo(plan, directory, directory.n_chunks, retry_failed=False)


class _DryStage:
    """Goes through the chunks as a run does, with a `DryEngine` for each task, and counts.

    Of a run directory that is there only `todo` is left.
    """

    def __init__(
        self,
        config: RunConfig,
        plan: Plan,
        provider: Provider,
        cache: Cache,
        directory: RunDirectory | None,
        todo: Iterable[ChunkTodo],
    ) -> None:
        self._config = config
        self._plan = plan
        self._provider = provider
        self._directory = directory
        self._todo = {item.chunk: item for item in todo}
        self._n_total = self._n_counted = self._n_ruled = self._n_weighed = 0
        self._n_guessed: Counter[str] = Counter()
        self._read = {name for planned in plan.tasks for name in planned.task.after}
        self._judged = {name for planned in plan.passes for name in planned.model_pass.after}
        self._engines = {
            planned.task.name: DryEngine(
                planned.task.name,
                provider,
                cache,
                max_samples=config.llm.max_samples,
                retry_failed=config.retry_failed,
                model=asked_settings(planned.prompt, config.granularity).model,
            )
            for planned in plan.tasks
            if planned.prompt is not None
        }
        # by step of a model pass: items that are known, and items and tokens with rules' rows
        self._items: Counter[str] = Counter()
        self._expected_items: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._unknown: set[str] = set()

    async def count(
        self,
        chunks: Callable[[int], Iterable[tuple[int, pl.DataFrame]]],
        n_records: int,
        most: int,
        weighed: bool,
    ) -> None:
        """Count about `most` of `n_records`; `chunks(n)` gives every n-th chunk with its number.

        `weighed`: the work of the models too.
        """
        self._n_total = n_records
        every = math.ceil(n_records / most)
        every_ruled = every * math.ceil(n_records / every / RULED_RECORDS)
        every_weighed = every_ruled * math.ceil(n_records / every_ruled / WEIGHED_RECORDS)
        for chunk, records in chunks(every):
            await self._count_chunk(
                chunk,
                records,
                ruled=chunk % every_ruled == 0,
                weighed=weighed and chunk % every_weighed == 0,
            )
            await lowlevel.checkpoint()  # Ctrl-C ends it here

    async def _count_chunk(
        self, chunk: int, records: pl.DataFrame, *, ruled: bool, weighed: bool
    ) -> None:
        """Count a chunk: its tasks, those that read others' rows only where `ruled`; its passes."""
        retry_failed = self._config.retry_failed
        left = self._todo.get(chunk, ChunkTodo(chunk))
        if self._directory is None or (retry_failed and self._there(chunk, FAILURES).height):
            left = ChunkTodo(chunk, self._plan.tasks, self._plan.passes)
        missing = {planned.task.name: planned for planned in left.tasks}
        tables: dict[str, pl.DataFrame] = {}
        for task in (planned.task for planned in self._plan.tasks):
            if task.after and not ruled:
                continue
            wanted = (ruled and task.name in self._read) or (weighed and task.name in self._judged)
            name = task.table.name
            if wanted and name not in tables:
                tables[name] = self._there(chunk, task.table)
            if task.name in missing:
                rows = await self._count_task(missing[task.name], records, tables, wanted=wanted)
                if rows is not None:
                    tables[name] = pl.concat([tables[name], rows])
        self._n_counted += records.height
        if ruled:
            self._n_ruled += records.height
            self._count_items(records, left.passes)
        if weighed:
            self._n_weighed += records.height
            self._weigh(records, left.passes, tables)

    def _there(self, chunk: int, table: Table) -> pl.DataFrame:
        """The rows of a table that are there."""
        return table.empty() if self._directory is None else self._directory.read(table.name, chunk)

    async def _count_task(
        self,
        planned: PlannedTask,
        records: pl.DataFrame,
        tables: Mapping[str, pl.DataFrame],
        *,
        wanted: bool,
    ) -> pl.DataFrame | None:
        """Count the requests of a task of a chunk; return the rows that it makes where `wanted`."""
        task, prompt, granularity = planned.task, planned.prompt, self._config.granularity
        if prompt is None:
            texts = side_texts(records, planned.sides)
            return sentences_as_claims(texts) if wanted else None
        units = task_units(planned, records, tables, granularity)
        prompt_requests = PromptRequests(task, prompt, self._provider, granularity)
        outcomes = await ask_units(prompt_requests, units, self._engines[task.name])
        if not wanted:
            return None
        not_sent = [place for place, outcome in outcomes.items() if outcome is NOT_SENT]
        self._n_guessed[task.name] += len(not_sent)
        outcomes |= {place: _stand_in(task, units[place[0]]) for place in not_sent}
        return task_result(prompt_requests, units, outcomes).rows

    def _count_items(self, records: pl.DataFrame, passes: Sequence[PlannedPass]) -> None:
        """Count the items of passes that read no task's rows."""
        for planned in passes:
            if planned.model_pass.after:
                self._unknown.add(planned.step)
            else:
                given = planned.model_pass, planned.need, records, _empty
                self._items[planned.step] += count_items(*given)

    def _weigh(
        self,
        records: pl.DataFrame,
        passes: Sequence[PlannedPass],
        tables: Mapping[str, pl.DataFrame],
    ) -> None:
        """Count the work of the passes on the rows that the tasks would make."""

        def read(table: str) -> pl.DataFrame:
            return tables[table] if table in tables else _empty(table)

        for planned in passes:
            given = planned.model_pass, planned.need, records, read
            model = self._limit(planned), self._kind(planned)
            self._expected_items[planned.step] += count_items(*given, *model)
            self._tokens[planned.step] += count_tokens(*given, *model)

    def _limit(self, planned: PlannedPass) -> int | None:
        """The tokens that the model reads at most of a text or pair; None where that is not known.

        Remembered with its throughput: without that its tokens tell no time.
        """
        role, encoders = planned.model_pass.role, self._config.encoders
        model = getattr(encoders, role) or ""
        found = throughput_anywhere(role, model, encoders.dtype)
        if found is None and self._kind(planned) == "binary":
            return CHAT_LIMIT
        return None if found is None else found.limit

    def _kind(self, planned: PlannedPass) -> str:
        """The kind of a verifier: that of one behind a chat server is known before it is asked."""
        role = planned.model_pass.role
        is_chat = role == "verifier" and self._config.encoders.verifier.startswith("openai:")
        return "binary" if is_chat else "nli"

    def estimate(self) -> Estimate:
        """The counts, for all of the records."""
        n_total = self._n_total
        counted = {
            name: self._n_ruled if TASKS[name].after else self._n_counted for name in self._engines
        }
        guesses = [
            (name, before)
            for name in self._engines
            for before in TASKS[name].after
            if self._n_guessed[before]
        ]
        estimate = _put_together(
            self._config.llm,
            self._provider,
            list(self._engines.values()),
            n_total,
            shares={name: n / n_total for name, n in counted.items()},
            guessed={name for name, _ in guesses},
            notes=[
                *(
                    f"{name}: counted on {n:,} of {n_total:,} records"
                    for name, n in counted.items()
                    if n < n_total
                ),
                *(self._about_guess(*pair) for pair in sorted(guesses)),
                *self._pass_notes(),
            ],
        )
        return dataclasses.replace(
            estimate,
            metrics=tuple(map(metric_requirements, self._plan.metrics)),
            passes=tuple(map(self._pass_estimate, self._plan.passes)),
        )

    def _about_guess(self, name: str, before: str) -> str:
        """Rows in the place of those of the task `before`, which `name` asks about."""
        task, n = TASKS[before], self._n_guessed[before]
        if task.guess is not None:
            return f"{name}: asks about {before} not made yet; those of {n:,} texts {task.guessed}"
        return (
            f"{name}: asks about claims; those of {n:,} texts not decomposed yet are "
            "the built-in rules'"
        )

    def _pass_estimate(self, planned: PlannedPass) -> PassEstimate:
        """A pass's counts on some of the records, for all of them."""
        step, role, n_total = planned.step, planned.model_pass.role, self._n_total
        scale = n_total / self._n_weighed if self._n_weighed else None
        users = (m.name for m in self._plan.metrics if planned.need in m.requires.passes)
        return PassEstimate(
            step,
            role,
            getattr(self._config.encoders, role),
            tuple(users),
            None
            if step in self._unknown
            else round(self._items[step] / ((self._n_ruled / n_total) or 1.0)),
            planned.model_pass.unit,
            None if scale is None else round(self._expected_items[step] * scale),
            None if scale is None else round(self._tokens[step] * scale),
        )

    def _pass_notes(self) -> Iterator[str]:
        """On how many of the records the passes were counted, where not on all."""
        n_total = self._n_total
        if self._n_ruled < n_total and any(
            planned.step not in self._unknown for planned in self._plan.passes
        ):
            yield f"model passes: counted on {self._n_ruled:,} of {n_total:,} records"
        if 0 < self._n_weighed < n_total and self._expected_items:
            yield f"work of the models: counted on {self._n_weighed:,} of {n_total:,} records"


def _empty(table: str) -> pl.DataFrame:
    return TABLES[table].empty()


def _stand_in(task: Task, unit: Unit) -> Answer[dict[str, Any]] | Failure:
    """An answer in the place of one that is still to be asked for; `NOT_SENT` without one."""
    guess = task.guess
    if guess is None and task.name not in RULES:
        return NOT_SENT
    value = guess(unit) if guess is not None else RULES[task.name](unit.text.strip())
    try:
        task.check(value)
    except ParseError:
        return NOT_SENT
    return Answer("", Completion("", ""), value, cached=False)


def _put_together(
    llm: LLMConfig,
    provider: Provider,
    engines: Sequence[DryEngine],
    n_records: int,
    *,
    shares: Mapping[str, float] = MappingProxyType({}),
    guessed: Container[str] = (),
    notes: Sequence[str] = (),
) -> Estimate:
    """The estimate of `n_records`, of which the engine of each task has seen a share.

    Tasks in `guessed` ask about guesses; `notes` are what was assumed so far.
    """
    base_url = getattr(provider, "base_url", None)
    price, others = find_prices(llm, base_url, filter(None, (engine.model for engine in engines)))
    ratio = known_ratio(engine.lengths for engine in engines)
    figures = tuple(
        engine.estimate(
            others.get(engine.model, price),
            share=shares.get(engine.task, 1.0),
            bytes_per_token=ratio,
            guessed=engine.task in guessed,
        )
        for engine in engines
    )
    estimate = Estimate(llm.model, n_records, figures, price, 0.0, tuple(notes))
    if not estimate.requests:
        return estimate
    hours, decided_by = llm_hours(llm, provider, estimate)
    notes = [*notes]
    if llm.family != "builtin":
        if ratio is None:
            notes.append("4 bytes of text a token: no answer of this model is stored to count by")
        about = ((engine.task, engine.basis()) for engine in engines)
        notes += [f"{name}: {basis}" for name, basis in about if basis is not None]
        if estimate.total.most_usd is not None:
            notes += [
                "no discount for what the server has in a cache of its own, and no failed attempts",
                "a model that thinks first is billed for its thoughts too: "
                f"${estimate.total.most_usd:,.2f} if every answer is as long as it may be",
            ]
    return dataclasses.replace(estimate, hours=hours, assumptions=(*notes, decided_by))
