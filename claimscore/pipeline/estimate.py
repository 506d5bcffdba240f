"""What a run would ask for and cost, without asking: requests, tokens, dollars, hours.

The requests are the real ones, made as the run makes them and looked up in the cache, so how
many are missing is counted, not guessed. What is guessed stands in `assumptions`: how many
tokens a text has, how long answers will be, how fast a server is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import polars as pl

from claimscore.cache.store import Cache, DiskCache, MemoryCache
from claimscore.config import LLMConfig, RunConfig, api_key, user_cache_dir, user_state_dir
from claimscore.errors import ConfigError, ParseError
from claimscore.pipeline.asking import Asking, Place, Question, asked_settings
from claimscore.pipeline.blocking import run_blocking
from claimscore.pipeline.chunks import ChunkTodo, find_todo
from claimscore.pipeline.estimate_passes import (
    MetricNeeds,
    PassEstimate,
    PassTally,
    metric_needs,
)
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.judge import Parse
from claimscore.pipeline.llm.limits.shared import SharedBudget, shared_scope
from claimscore.pipeline.llm.prices import Price, find_prices
from claimscore.pipeline.llm.providers.base import Provider, load_provider
from claimscore.pipeline.llm.session import LIMITS_FILE
from claimscore.pipeline.llm_stage import sample_column
from claimscore.pipeline.plan import (
    Plan,
    PlannedPass,
    PlannedTask,
    load_metrics,
    make_plan,
    required_columns,
)
from claimscore.pipeline.tally import Found, Span, Tally, TaskEstimate, ruled_answer
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import TaskInput, Unit, side_texts
from claimscore.pipeline.tasks.decompose import sentences_as_claims
from claimscore.records import Dataset, prepare
from claimscore.rundir import RunDirectory, damage_as_error
from claimscore.tables import Table
from claimscore.types import JSON, Completion, Request

T = TypeVar("T")

#: Of larger inputs every n-th chunk is counted, about so many records in all; for tasks that
#: ask about claims fewer, since those are made by rules where nobody was asked yet.
COUNTED_RECORDS = 20_000
RULED_RECORDS = 3_000

#: The same before a run begins, which waits for it.
BEFOREHAND_RECORDS = 5_000

#: Requests of one's own that are looked up at a time.
_BLOCK = 500

#: What a server may take for an answer, to begin and for each token; what a rule takes.
_LATENCY_S, _TOKEN_S, _RULE_S = 1.0, 0.02, 0.0003


@dataclasses.dataclass(frozen=True)
class Estimate:
    """All tasks, what they cost together, how long it takes, and what was assumed.

    `metrics` say who needs what, `passes` what models are asked; both are empty for requests of
    one's own.
    """

    llm: str
    records: int
    tasks: tuple[TaskEstimate, ...]
    price: Price | None
    hours: float | None
    assumptions: tuple[str, ...]
    metrics: tuple[MetricNeeds, ...] = ()
    passes: tuple[PassEstimate, ...] = ()

    @property
    def requests(self) -> int:
        return sum(task.requests for task in self.tasks)

    @property
    def prompt_tokens(self) -> Span:
        return Span.total(task.prompt_tokens for task in self.tasks)

    @property
    def completion_tokens(self) -> Span:
        return Span.total(task.completion_tokens for task in self.tasks)

    @property
    def usd(self) -> Span | None:
        """Dollars; None where the price is unknown."""
        if self.price is None:
            return None
        return Span.total(task.usd for task in self.tasks if task.usd is not None)

    @property
    def most_usd(self) -> float | None:
        """Dollars if every answer were as long as it may be; nothing is repeated."""
        if self.price is None:
            return None
        return sum(task.most_usd or 0.0 for task in self.tasks)

    def to_json(self) -> JSON:
        """Plain values, tokens as whole numbers, null for what is unknown."""
        total = {
            "questions": sum(task.questions for task in self.tasks),
            "answered": sum(task.answered for task in self.tasks),
            "given_up": sum(task.given_up for task in self.tasks),
            "requests": self.requests,
            **_sizes(self.prompt_tokens, self.completion_tokens),
            **_costs(self.usd, self.most_usd),
        }
        price = self.price
        return {
            "llm": self.llm,
            "records": self.records,
            "metrics": [needs.to_json() for needs in self.metrics],
            "passes": [model_pass.to_json() for model_pass in self.passes],
            "tasks": [_task_json(task) for task in self.tasks],
            "total": total,
            "hours": self.hours,
            "price": None
            if price is None
            else {
                "input_per_mtok": price.input_per_mtok,
                "output_per_mtok": price.output_per_mtok,
                "source": price.source,
            },
            "assumptions": list(self.assumptions),
        }


def _task_json(task: TaskEstimate) -> JSON:
    return {
        "task": task.task,
        "questions": task.questions,
        "answered": task.answered,
        "given_up": task.given_up,
        "requests": task.requests,
        **_sizes(task.prompt_tokens, task.completion_tokens),
        **_costs(task.usd, task.most_usd),
    }


def _sizes(prompt: Span, completion: Span) -> JSON:
    return {
        "prompt_tokens": round(prompt.expected),
        "prompt_tokens_range": [round(prompt.low), round(prompt.high)],
        "completion_tokens": round(completion.expected),
        "completion_tokens_range": [round(completion.low), round(completion.high)],
    }


def _costs(usd: Span | None, most: float | None) -> JSON:
    return {
        "usd": None if usd is None else usd.expected,
        "usd_range": None if usd is None else [usd.low, usd.high],
        "usd_at_most": most,
    }


# -- of a run


def estimate_run(
    config: RunConfig, *, out: Path | None = None, stdin: BinaryIO | None = None
) -> Estimate:
    """What `run(config)` would ask for, minus what the cache has.

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
        dataset = prepare(config.input, spool=Path(spool), required=required, stdin=stdin)
        plan = make_plan(config, list(dataset.columns), metrics)
        provider = load_provider(config.llm)
        stack.callback(run_blocking, provider.aclose)
        cache = stack.enter_context(_cache_to_look_at(config.cache_dir))
        done = _Done.found(config, out, dataset, plan)
        return _RunEstimate(config, dataset, plan, provider, cache, done).estimate()


def estimate_left(
    config: RunConfig,
    dataset: Dataset,
    plan: Plan,
    provider: Provider,
    directory: RunDirectory,
    todo: Iterable[ChunkTodo],
) -> Estimate:
    """What a run that is about to begin will ask for: `todo` is what is missing of `directory`.

    Of larger inputs fewer records are counted than by `estimate_run`: the run itself waits.
    """
    with _cache_to_look_at(config.cache_dir) as cache:
        return _RunEstimate(
            config,
            dataset,
            plan,
            provider,
            cache,
            _Done(directory, todo),
            BEFOREHAND_RECORDS,
            directory,
        ).estimate()


@contextlib.contextmanager
def _cache_to_look_at(cache_dir: Path | None) -> Iterator[Cache]:
    """The cache; one that is not there yet is not made for an estimate."""
    folder = cache_dir or user_cache_dir()
    there = folder.is_dir() and any(folder.iterdir())
    cache: Cache = DiskCache(folder) if there else MemoryCache()
    try:
        yield cache
    finally:
        cache.close()


class _Done:
    """What an existing run directory has of each chunk; nothing where there is none."""

    def __init__(
        self,
        directory: RunDirectory | None = None,
        todo: Iterable[ChunkTodo] = (),
    ) -> None:
        self._directory = directory
        self._todo = {item.chunk: item for item in todo}

    @classmethod
    def found(cls, config: RunConfig, out: Path | None, dataset: Dataset, plan: Plan) -> _Done:
        if out is None or not (out / "run.toml").is_file():
            return cls()
        directory = RunDirectory.reader(out)
        with damage_as_error(out):
            if not directory.all_steps():
                return cls()
            if directory.settings["records"]["digest"] != dataset.digest:
                raise ConfigError(f"{out} was made from other records; name another --out")
            todo = find_todo(plan, directory, directory.n_chunks, retry_failed=False)
        return cls(directory, todo)

    def sides_left(self, chunk: int, planned: PlannedTask, *, retry_failed: bool) -> PlannedTask:
        """The task for the sides that are not finished; for all where failures are retried."""
        if self._is_new(chunk, retry_failed):
            return planned
        for left in self._todo[chunk].tasks if chunk in self._todo else ():
            if left.task.name == planned.task.name:
                return left
        return dataclasses.replace(planned, sides=())

    def passes_left(
        self, chunk: int, passes: tuple[PlannedPass, ...], *, retry_failed: bool
    ) -> tuple[PlannedPass, ...]:
        """The passes that are not finished; all where failures are retried."""
        if self._is_new(chunk, retry_failed):
            return passes
        return self._todo[chunk].passes if chunk in self._todo else ()

    def _is_new(self, chunk: int, retry_failed: bool) -> bool:
        if self._directory is None:
            return True
        return retry_failed and self._directory.read("failures", chunk).height > 0

    def rows(self, chunk: int, table: Table) -> pl.DataFrame:
        """The rows of a table that are there."""
        return table.empty() if self._directory is None else self._directory.read(table.name, chunk)


class _RunEstimate:
    """Goes through the chunks as a run does, with cache and rules in the place of a server."""

    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset,
        plan: Plan,
        provider: Provider,
        cache: Cache,
        done: _Done,
        counted_records: int | None = None,
        written: RunDirectory | None = None,
    ) -> None:
        self._config = config
        self._counted_records = counted_records or COUNTED_RECORDS
        self._written = written
        self._dataset = dataset
        self._plan = plan
        self._provider = provider
        self._done = done
        self._passes = PassTally(config, plan)
        self._n_guessed: Counter[str] = Counter()
        self._read = {name for planned in plan.tasks for name in planned.task.after}
        self._tallies = {
            planned.task.name: _tally(planned.task.name, config.llm, cache, config.retry_failed)
            for planned in plan.tasks
            if planned.prompt is not None
        }

    def estimate(self) -> Estimate:
        total, size = self._dataset.n_records, self._config.chunk_records
        every = math.ceil(total / self._counted_records)
        every_ruled = every * math.ceil(total / every / RULED_RECORDS)
        n_counted, n_ruled = 0, 0
        for chunk, records in self._frames(size, every):
            with_later = chunk % every_ruled == 0
            self._chunk(chunk, records, with_later=with_later)
            n_counted += records.height
            n_ruled += records.height if with_later else 0
            if with_later:
                self._passes.add(records, self._passes_left(chunk))
        counted = {
            planned.task.name: n_ruled if planned.task.after else n_counted
            for planned in self._plan.tasks
            if planned.prompt is not None
        }
        notes = [
            f"{name}: counted on {n:,} of {total:,} records"
            for name, n in counted.items()
            if n < total
        ]
        guesses = {
            planned.task.name: before
            for planned in self._plan.tasks
            for before in planned.task.after
            if self._n_guessed[before]
        }
        notes += [self._about_guess(*pair) for pair in sorted(guesses.items())]
        notes += self._passes.notes(total)
        shares = {name: n / total for name, n in counted.items()}
        models = {
            planned.task.name: asked_settings(planned.prompt, self._config.granularity).model
            for planned in self._plan.tasks
            if planned.prompt is not None
        }
        estimate = _summed(
            self._config.llm,
            self._provider,
            self._tallies,
            total,
            shares,
            set(guesses),
            notes,
            models,
        )
        return dataclasses.replace(
            estimate,
            metrics=tuple(map(metric_needs, self._plan.metrics)),
            passes=tuple(self._passes.passes(total)),
        )

    def _frames(self, size: int, every: int) -> Iterator[tuple[int, pl.DataFrame]]:
        """Every n-th chunk of records with its number; from the run's folder where it has them."""
        if self._written is not None:
            for chunk in range(0, self._written.n_chunks, every):
                yield chunk, self._written.read("records", chunk)
            return
        for chunk, records in enumerate(self._dataset.chunks(size)):
            if chunk % every == 0:
                yield chunk, records

    def _about_guess(self, name: str, before: str) -> str:
        """What stands in for the rows of the task `before`, which `name` asks about."""
        task, n = TASKS[before], self._n_guessed[before]
        if task.guess is not None:
            return f"{name}: asks about {before} not made yet; those of {n:,} texts {task.guessed}"
        return (
            f"{name}: asks about claims; those of {n:,} texts not decomposed yet are "
            "the built-in rules'"
        )

    def _chunk(self, chunk: int, records: pl.DataFrame, *, with_later: bool) -> None:
        """Count the tasks of a chunk; those that read others' rows only where these are made."""
        made: dict[str, list[pl.DataFrame]] = {}
        for planned in self._plan.tasks:
            if not planned.task.after:
                task = planned.task
                wanted = with_later and task.name in self._read
                rows = self._task(self._sides_left(chunk, planned), records, {}, wanted=wanted)
                if rows is not None:
                    there = made.setdefault(task.table.name, [self._done.rows(chunk, task.table)])
                    there.append(rows)
        if with_later:
            tables = {name: pl.concat(frames) for name, frames in made.items()}
            for planned in self._plan.tasks:
                if planned.task.after:
                    self._task(self._sides_left(chunk, planned), records, tables, wanted=False)

    def _sides_left(self, chunk: int, planned: PlannedTask) -> PlannedTask:
        return self._done.sides_left(chunk, planned, retry_failed=self._config.retry_failed)

    def _passes_left(self, chunk: int) -> tuple[PlannedPass, ...]:
        retry_failed = self._config.retry_failed
        return self._done.passes_left(chunk, self._plan.passes, retry_failed=retry_failed)

    def _task(
        self,
        planned: PlannedTask,
        records: pl.DataFrame,
        tables: Mapping[str, pl.DataFrame],
        *,
        wanted: bool,
    ) -> pl.DataFrame | None:
        """Count one task of a chunk; where `wanted`, make the table that it would."""
        task, prompt = planned.task, planned.prompt
        texts = side_texts(records, planned.sides)
        if prompt is None:
            return sentences_as_claims(texts) if wanted else None
        units = task.units(TaskInput(texts, self._config.granularity, tables, records))
        asking = Asking(task, prompt, _maker(self._provider), self._config.granularity)
        told = self._look_up(asking, units, wanted=wanted)
        if not wanted:
            return None
        rows = [
            {**row, **_NOBODY, **sample_column(task, sample)}
            for (index, sample), answer in sorted(told.items())
            for row in task.rows(units[index], answer)
        ]
        return task.table.frame(rows if task.join is None else task.join(rows))

    def _look_up(
        self, asking: Asking, units: list[Unit], *, wanted: bool
    ) -> dict[Place, dict[str, Any]]:
        """Count what is asked about the units, as the LLM stage goes about it.

        Where `wanted`, the answers: stored ones, and the rules' or a guess where there is none.
        """
        tally, step = self._tallies[asking.task.name], asking.n_samples
        questions = asking.questions(units)
        alone = [question for question in questions if len(question.units) == 1]
        groups = [question for question in questions if len(question.units) > 1]
        requests = [question.request for question in groups]
        heard = tally.add(requests, asking.parse_several, step=step, counted=False)
        told: dict[Place, dict[str, Any]] = {}
        for question, found in zip(groups, heard, strict=True):
            answers = found.value
            if found.missing and wanted:
                answers = _ruled(question.request, asking.parse_several)
                self._n_guessed[asking.task.name] += len(question.units)
            said = asking.said(question, answers) if answers else {}
            told |= {(unit, question.sample): answer for unit, answer in said.items()}
            if not found.missing:
                left = (unit for unit in question.units if unit not in said)
                alone += asking.alone(question, left, units)
        found_alone = tally.add([q.request for q in alone], asking.parse_one, step=step)
        for question, found in zip(alone, found_alone, strict=True):
            answer = self._answer(asking, units, question, found) if wanted else None
            if answer is not None:
                told[question.units[0], question.sample] = answer
        return told

    def _answer(
        self, asking: Asking, units: list[Unit], question: Question, found: Found
    ) -> dict[str, Any] | None:
        """A stored answer, or where it is still to be asked for, what may stand in its place."""
        if not found.missing:
            return cast("dict[str, Any] | None", found.value)
        self._n_guessed[asking.task.name] += 1
        guess = asking.task.guess
        if guess is not None:
            return guess(units[question.units[0]])
        return _ruled(question.request, asking.parse_one)


#: In the place of what made a row: the estimate keeps no rows.
_NOBODY = dict.fromkeys(("request_key", "prompt", "prompt_version", "prompt_digest", "model"), "")


def _ruled(request: Request, parse: Parse[T]) -> T | None:
    """What the rules say, as the task understands it; None where they have nothing to say."""
    text = ruled_answer(request)
    try:
        return None if text is None else parse(Completion(text, "rules"))
    except ParseError:
        return None


class _Maker:
    """Makes requests as an engine does, and cannot send any."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    request = Engine.request


def _maker(provider: Provider) -> Engine:
    return cast("Engine", _Maker(provider))


# -- of any requests


def estimate_requests(
    requests: Iterable[Request],
    parse: Parse[Any],
    *,
    name: str,
    llm: LLMConfig,
    provider: Provider,
    cache_dir: Path | None = None,
    retry_failed: bool = False,
) -> Estimate:
    """What these requests to `provider` would cost, minus what the cache has.

    `parse` judges stored answers as in `Engine.answer_all`. The requests may be a generator:
    they are not kept. Nothing is sent or written; the provider is the caller's to close.
    """
    with _cache_to_look_at(cache_dir) as cache:
        tally = _tally(name, llm, cache, retry_failed)
        block: list[Request] = []
        n_requests = 0
        for request in requests:
            n_requests += 1
            block.append(request)
            if len(block) == _BLOCK:
                tally.add(block, parse)
                block = []
        tally.add(block, parse)
        return _summed(llm, provider, {name: tally}, n_requests, {}, set(), [])


def _tally(name: str, llm: LLMConfig, cache: Cache, retry_failed: bool) -> Tally:
    return Tally(name, cache, max_samples=llm.max_samples, retry_failed=retry_failed)


# -- all together


def _summed(
    llm: LLMConfig,
    provider: Provider,
    tallies: Mapping[str, Tally],
    n_records: int,
    shares: Mapping[str, float],
    guessed: set[str],
    notes: list[str],
    models: Mapping[str, str] | None = None,
) -> Estimate:
    models = models or {}
    base_url = getattr(provider, "base_url", None)
    price, others = find_prices(llm, base_url, filter(None, models.values()))
    known_bytes = sum(tally.known.prompt_bytes for tally in tallies.values())
    known_tokens = sum(tally.known.prompt_tokens for tally in tallies.values())
    ratio = known_bytes / known_tokens if known_tokens else None
    tasks = tuple(
        tally.estimate(
            others.get(models.get(name, ""), price),
            share=shares.get(name, 1.0),
            bytes_per_token=ratio,
            guessed=name in guessed,
        )
        for name, tally in tallies.items()
    )
    estimate = Estimate(llm.model, n_records, tasks, price, None, ())
    if not estimate.requests:
        return dataclasses.replace(estimate, hours=0.0, assumptions=tuple(notes))
    hours, pace = _hours(llm, provider, estimate)
    if _family(llm) != "builtin":
        notes = [*notes, *_about_tokens(tallies, ratio), *_about_money(estimate)]
    return dataclasses.replace(estimate, hours=hours, assumptions=(*notes, pace))


def _about_tokens(tallies: Mapping[str, Tally], ratio: float | None) -> Iterator[str]:
    if ratio is None:
        yield "4 bytes of text a token: no answer of this model is stored to count by"
    for name, tally in tallies.items():
        if tally.n_missing:
            yield f"{name}: {tally.about_answers()}"


def _about_money(estimate: Estimate) -> Iterator[str]:
    if estimate.most_usd is None:
        return
    yield "no discount for what the server has in a cache of its own, and no failed attempts"
    yield (
        "a model that thinks first is billed for its thoughts too: "
        f"${estimate.most_usd:,.2f} if every answer is as long as it may be"
    )


def _family(llm: LLMConfig) -> str:
    return llm.model.partition(":")[0]


def _hours(llm: LLMConfig, provider: Provider, estimate: Estimate) -> tuple[float | None, str]:
    """How long the requests take, and what decides it; None where nobody can say."""
    n = estimate.requests
    if _family(llm) == "builtin":
        return n * _RULE_S / 3600, "the built-in rules answer on this machine, in milliseconds"
    if _family(llm) == "openai-batch":
        return None, "a batch is promised within 24 hours; how soon it comes is not known"
    tokens = estimate.prompt_tokens.expected + estimate.completion_tokens.expected
    latency_s = _LATENCY_S + _TOKEN_S * estimate.completion_tokens.expected / n
    rpm, tpm, said = _limits(llm, provider)
    in_flight = f"{llm.max_concurrency} requests in flight, {latency_s:.1f} s an answer (a guess)"
    paces = [(n * latency_s / llm.max_concurrency / 3600, in_flight)]
    if rpm is not None:
        paces.append((n / rpm / 60, f"{rpm:,.0f} requests a minute ({said})"))
    if tpm is not None:
        paces.append((tokens / tpm / 60, f"{tpm:,.0f} tokens a minute ({said})"))
    hours, pace = max(paces)
    return hours, f"time: {pace}"


def _limits(llm: LLMConfig, provider: Provider) -> tuple[float | None, float | None, str]:
    """Requests and tokens a minute: as given, else as any process last learnt them."""
    if llm.rpm is not None or llm.tpm is not None:
        return llm.rpm, llm.tpm, "as given"
    path, url = user_state_dir() / LIMITS_FILE, getattr(provider, "base_url", None)
    if url is None or not path.is_file():
        return None, None, ""
    shared = SharedBudget(path, shared_scope(url, api_key()))
    try:
        learnt = shared.recall()
    finally:
        shared.close()
    if learnt is None:
        return None, None, ""
    rpm = learnt.rpm or (learnt.good_rps * 60 if learnt.good_rps else None)
    return rpm, learnt.tpm, "as last learnt"
