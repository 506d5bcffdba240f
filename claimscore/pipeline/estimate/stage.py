"""The LLM stage of a run, done dry: the run's own questions go to engines that send nothing.

Tasks and passes that read claims, facts or questions that are not made yet get stand-ins,
the task's own guess.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
from anyio import lowlevel

from claimscore.cache.store import Cache
from claimscore.config import LLMConfig, RunConfig
from claimscore.errors import ConfigError, ParseError
from claimscore.pipeline.estimate.dry_engine import DryEngine, open_cache_if_there
from claimscore.pipeline.estimate.figures import (
    Estimate,
    ModelEstimate,
    PassEstimate,
    hours_of_limits,
    total_of,
)
from claimscore.pipeline.llm.budget.pricing import Prices
from claimscore.pipeline.llm.providers.base import is_local
from claimscore.pipeline.llm.question import Answer
from claimscore.pipeline.llm_stage import (
    NOT_SENT,
    PromptRequests,
    ask_units,
    task_input,
    task_result,
)
from claimscore.pipeline.model_stage import recall_pace
from claimscore.pipeline.passes.model_pass import count_items
from claimscore.pipeline.plan import (
    ChunkTodo,
    Plan,
    PlannedPass,
    PlannedTask,
    find_todo,
    load_metrics,
    open_plan,
    plan_steps,
    refuse_unused,
    with_chunk_size,
)
from claimscore.pipeline.reading import read_records, with_metrics
from claimscore.pipeline.scoring import limits_of
from claimscore.pipeline.supervision import run_blocking
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import Task, Unit, side_texts
from claimscore.pipeline.tasks.decompose import sentences_as_claims
from claimscore.records.dataset import open_input
from claimscore.runs import RunDirectory, damage_as_error
from claimscore.tables import FAILURES, OPINIONS, TABLES, Table
from claimscore.types import Completion, Failure

#: Of larger inputs every n-th chunk is counted, about so many records in all.
COUNTED_RECORDS = 500


def estimate_run(
    config: RunConfig, *, out: Path | str | None = None, stdin: BinaryIO | None = None
) -> Estimate:
    """The requests, tokens, dollars, hours and model work of `run(config)`, minus what the cache
    has.

    Nothing is sent, and nothing is written but a temporary copy of standard input. With
    `out`, an existing run directory, what is finished there counts as answered. Raises
    `ConfigError` where the run would be refused.
    """
    if config.metrics == () and not config.tasks:
        raise ConfigError("nothing to do: name --metrics or --tasks")
    load_metrics(config.metrics or (), config.metric_files)  # a wrong name, before the input
    with (
        tempfile.TemporaryDirectory(prefix="claimscore-") as spool,
        contextlib.ExitStack() as stack,
    ):
        files = open_input(config.input, spool=Path(spool), stdin=stdin)
        config, chosen = with_metrics(config, files)
        metrics = load_metrics(config.metrics or (), config.metric_files)
        dataset = read_records(config, metrics, files)
        limits_of(config, metrics, dataset.n_records)
        known = RunDirectory.reader(out).settings if out and RunDirectory.is_at(out) else {}
        config = with_chunk_size(config, dataset.n_records, known)
        plan = open_plan(plan_steps(config, metrics, list(dataset.columns)))
        refuse_unused(plan)
        for provider in plan.providers.values():
            stack.callback(run_blocking, provider.aclose)
        cache = stack.enter_context(open_cache_if_there(config.cache_dir))
        finished = _finished(out, dataset.digest, plan)

        def chunks(every: int) -> Iterator[tuple[int, pl.DataFrame]]:
            frames = enumerate(dataset.chunks(config.chunk_records))
            return ((n, records) for n, records in frames if n % every == 0)

        stage = _DryStage(plan, cache, *finished)
        run_blocking(stage.count, chunks, dataset.n_records)
        estimate = stage.estimate()
        notes = (*filter(None, [chosen]), *estimate.assumptions)
        return dataclasses.replace(estimate, assumptions=notes)


def estimate_left(
    plan: Plan, directory: RunDirectory, n_records: int, todo: Iterable[ChunkTodo]
) -> Estimate:
    """The requests and model work of a run that is about to begin: `todo` is missing of
    `directory`."""
    with open_cache_if_there(plan.config.cache_dir) as cache:
        stage = _DryStage(plan, cache, directory, todo)

        def chunks(every: int) -> Iterator[tuple[int, pl.DataFrame]]:
            return ((n, directory.read("records", n)) for n in range(0, directory.n_chunks, every))

        run_blocking(stage.count, chunks, n_records)
        return stage.estimate()


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
        plan: Plan,
        cache: Cache,
        directory: RunDirectory | None,
        todo: Iterable[ChunkTodo],
    ) -> None:
        self._config = config = plan.config
        self._plan = plan
        self._directory = directory
        self._todo = {item.chunk: item for item in todo}
        self._n_total = self._n_counted = 0
        self._n_guessed: Counter[str] = Counter()
        self._passes = plan.passes
        self._read = {name for planned in plan.tasks for name in planned.task.after}
        self._read |= {name for planned in plan.passes for name in planned.model_pass.after}
        self._items: Counter[str] = Counter()  # by step of a model pass
        self._engines = {
            task: DryEngine(
                task,
                plan.providers[task],
                cache,
                max_samples=config.llm.max_samples,
                retry_failed=config.retry_failed,
            )
            for task, prompt in plan.asked.items()
        }

    async def count(
        self,
        chunks: Callable[[int], Iterable[tuple[int, pl.DataFrame]]],
        n_records: int,
    ) -> None:
        """Count tasks and passes on some of `n_records`; `chunks(n)` gives every n-th chunk with
        its number."""
        self._n_total = n_records
        for chunk, records in chunks(math.ceil(n_records / COUNTED_RECORDS)):
            await self._count_chunk(chunk, records)
            await lowlevel.checkpoint()  # Ctrl-C ends it here

    async def _count_chunk(self, chunk: int, records: pl.DataFrame) -> None:
        retry_failed = self._config.retry_failed
        left = self._todo.get(chunk, ChunkTodo(chunk))
        if self._directory is None or (retry_failed and self._there(chunk, FAILURES).height):
            left = ChunkTodo(chunk, self._plan.tasks, self._plan.passes)
        missing = {planned.task.name: planned for planned in left.tasks}
        tables: dict[str, pl.DataFrame] = {}
        if (earlier := self._there(chunk, OPINIONS)).height:  # else all claims may be unsure
            tables[OPINIONS.name] = earlier
        for task in (planned.task for planned in self._plan.tasks):
            wanted, name = task.name in self._read, task.table.name
            if wanted and name not in tables:
                tables[name] = self._there(chunk, task.table)
            if task.name in missing:
                rows = await self._count_task(missing[task.name], records, tables, wanted=wanted)
                if rows is not None:
                    tables[name] = pl.concat([tables[name], rows])
        self._n_counted += records.height

        def read(table: str) -> pl.DataFrame:
            return tables[table] if table in tables else TABLES[table].empty()

        for planned in left.passes:
            given = planned.model_pass, planned.need, records, read
            self._items[planned.step] += count_items(*given)

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
        task, prompt = planned.task, planned.prompt
        if prompt is None:
            texts = side_texts(records, planned.sides)
            return sentences_as_claims(texts) if wanted else None
        units = task.units(task_input(planned, records, tables))
        engine = self._engines[task.name]
        prompt_requests = PromptRequests(task, prompt, engine.provider, planned.granularity)
        outcomes = await ask_units(prompt_requests, units, engine.answer_all)
        if not wanted:
            return None
        not_sent = [place for place, outcome in outcomes.items() if outcome is NOT_SENT]
        self._n_guessed[task.name] += len(not_sent)
        outcomes |= {place: _stand_in(task, units[place[0]]) for place in not_sent}
        return task_result(prompt_requests, units, outcomes).rows

    def estimate(self) -> Estimate:
        """The counts, for all of the records."""
        estimate = put_together(
            self._config.llm,
            list(self._engines.values()),
            self._n_total,
            share=self._n_counted / self._n_total,
            notes=list(self._notes()),
        )
        is_sampled = self._n_counted < self._n_total
        about = (n for n in self._engines if is_sampled or self._guessed_for(TASKS[n].after))
        passes = tuple(map(self._pass_estimate, self._passes))
        return dataclasses.replace(estimate, passes=passes, about=frozenset(about))

    def _guessed_for(self, after: Iterable[str]) -> list[str]:
        """The tasks among those `after` which come others, some of whose rows are guessed."""
        return [name for name in after if self._n_guessed[name]]

    def _notes(self) -> Iterator[str]:
        """What the counts rest on, where not on the rows of all records."""
        if self._n_counted < self._n_total:
            yield f"counted on {self._n_counted:,} of {self._n_total:,} records"
        encoders = self._config.encoders
        if encoders.second_opinion == "unsure":
            first, second = encoders.verifiers
            yield f"{second}: at most; it is asked about those claims that {first} is unsure of"
        for name in sorted(self._engines):
            for before in sorted(self._guessed_for(TASKS[name].after)):
                rows = "claims" if before == "decompose" else before
                texts = f"those of {self._n_guessed[before]:,} texts {TASKS[before].guessed}"
                yield f"{name}: asks about {rows} not made yet; {texts}"
        if any(self._guessed_for(planned.model_pass.after) for planned in self._passes):
            yield (
                "models: claims and facts that are not made yet are guessed from the texts; "
                "a language model's may be fewer or more"
            )

    def _pass_estimate(self, planned: PlannedPass) -> PassEstimate:
        """A pass's counts on some of the records, for all of them."""
        step, role, n_total = planned.step, planned.model_pass.role, self._n_total
        encoders = self._config.encoders
        n_models = max(1, len(encoders.judges)) if role == "verifier" else 1
        return PassEstimate(
            step,
            role,
            getattr(encoders, role),
            round(n_models * self._items[step] * n_total / (self._n_counted or 1)),
            self._n_counted < n_total or bool(self._guessed_for(planned.model_pass.after)),
            planned.model_pass.unit,
            recall_pace(step, role, encoders),
        )


def _stand_in(task: Task, unit: Unit) -> Answer[dict[str, Any]] | Failure:
    """An answer in the place of one that is still to be asked for; `NOT_SENT` without one."""
    if task.guess is None:
        return NOT_SENT
    value = task.guess(unit)
    try:
        task.check(value)
    except ParseError:
        return NOT_SENT
    return Answer("", Completion("", ""), value, cached=False)


def put_together(
    llm: LLMConfig,
    engines: Sequence[DryEngine],
    n_records: int,
    *,
    share: float = 1.0,
    notes: Sequence[str] = (),
) -> Estimate:
    """The estimate of `n_records`, of which the engines have seen a `share`; `notes` are what was
    assumed so far."""
    prices = Prices(*((llm.of(engine.task), engine.provider) for engine in engines))
    figures = {
        engine.task: engine.estimate(prices.of(engine.provider), share=share) for engine in engines
    }
    by_model: dict[int, list[DryEngine]] = {}
    for engine in engines:
        by_model.setdefault(id(engine.provider), []).append(engine)
    models, assumed = [], list(notes)
    for of_model in by_model.values():
        tasks, provider = tuple(engine.task for engine in of_model), of_model[0].provider
        asked, total = llm.of(tasks[0]), total_of([figures[task] for task in tasks])
        hours: float | None = 0.0
        if total.requests:
            hours, decided_by = hours_of_limits(asked, provider, total)
            bases = [] if is_local(asked.family) else [(e.task, e.basis()) for e in of_model]
            assumed += [f"{task}: {basis}" for task, basis in bases if basis is not None]
            assumed.append(f"{asked.model}: {decided_by}" if len(by_model) > 1 else decided_by)
        models.append(ModelEstimate(asked.model, tasks, total, prices.of(provider), hours))
    estimate = Estimate(n_records, tuple(figures.values()), tuple(models), tuple(assumed))
    most = estimate.total.usd_at_most
    if not most:
        return estimate
    return dataclasses.replace(
        estimate,
        assumptions=(
            *estimate.assumptions,
            "no discount for what the server has in a cache of its own, and no second attempts",
            "a model that thinks first is billed for its thoughts too: "
            f"${most:,.{2 if most >= 1 else 4}f} if every answer is as long as it may be",
        ),
    )
