"""The records of a run, gone through as by the run, and what is asked about them counted."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

import polars as pl

from claimscore.cache.base import Cache
from claimscore.config import RunConfig
from claimscore.errors import ParseError
from claimscore.pipeline.estimating.figures import Estimate
from claimscore.pipeline.estimating.finished import Finished
from claimscore.pipeline.estimating.passes import PassTally, metric_needs
from claimscore.pipeline.estimating.questions import Found, Tally
from claimscore.pipeline.estimating.tokens import ruled_answer
from claimscore.pipeline.estimating.totals import summed
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm.validation import Parse
from claimscore.pipeline.llm_stage import (
    PromptRequest,
    PromptRequests,
    UnitSample,
    asked_settings,
    sample_column,
)
from claimscore.pipeline.plan import Plan, PlannedPass, PlannedTask
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import TaskInput, Unit, side_texts
from claimscore.pipeline.tasks.decompose import sentences_as_claims
from claimscore.records import Dataset, Prepared
from claimscore.rundir import RunDirectory
from claimscore.types import Completion, Request

T = TypeVar("T")

#: Of larger inputs every n-th chunk is counted, about so many records in all; for tasks that
#: ask about claims fewer, since those are made by rules where nobody was asked yet.
COUNTED_RECORDS = 20_000
RULED_RECORDS = 3_000

#: How much the models have to do is counted on about so many: it takes the rules' claims of all
#: their texts.
WEIGHED_RECORDS = 192


class RecordsEstimate:
    """Goes through the chunks as a run does, with cache and rules in the place of a server."""

    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset | Prepared,
        plan: Plan,
        provider: Provider,
        cache: Cache,
        done: Finished,
        counted_records: int | None = None,
        written: RunDirectory | None = None,
        *,
        weighed: bool = False,
    ) -> None:
        self._config = config
        self._counted_records = counted_records or COUNTED_RECORDS
        self._written = written
        self._weighed = weighed
        self._dataset = dataset
        self._plan = plan
        self._provider = provider
        self._done = done
        self._passes = PassTally(config, plan)
        self._n_guessed: Counter[str] = Counter()
        self._failed_before: frozenset[str] = frozenset()
        self._read = {name for planned in plan.tasks for name in planned.task.after}
        self._judged = {name for planned in plan.passes for name in planned.model_pass.after}
        self._tallies = {
            planned.task.name: Tally(
                planned.task.name,
                cache,
                max_samples=config.llm.max_samples,
                retry_failed=config.retry_failed,
            )
            for planned in plan.tasks
            if planned.prompt is not None
        }

    def estimate(self) -> Estimate:
        total, size = self._dataset.n_records, self._config.chunk_records
        every = math.ceil(total / self._counted_records)
        every_ruled = every * math.ceil(total / every / RULED_RECORDS)
        every_weighed = every_ruled * math.ceil(total / every_ruled / WEIGHED_RECORDS)
        n_counted, n_ruled = 0, 0
        for chunk, records in self._frames(size, every):
            with_later = chunk % every_ruled == 0
            weighed = self._weighed and chunk % every_weighed == 0
            tables = self._chunk(chunk, records, with_later=with_later, weighed=weighed)
            n_counted += records.height
            n_ruled += records.height if with_later else 0
            if with_later:
                self._passes.add(records, self._passes_left(chunk))
            if weighed:
                self._passes.weigh(records, self._passes_left(chunk), tables)
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
        estimate = summed(
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
        assert isinstance(self._dataset, Dataset), "other records lie in a run directory"
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

    def _chunk(
        self, chunk: int, records: pl.DataFrame, *, with_later: bool, weighed: bool
    ) -> dict[str, pl.DataFrame]:
        """Count the tasks of a chunk; those that read others' rows only where these are made.

        Returns the tables that were made: those that other tasks, or with `weighed` models, read.
        """
        made: dict[str, list[pl.DataFrame]] = {}
        self._failed_before = self._done.failed_before(chunk)
        for planned in self._plan.tasks:
            if not planned.task.after:
                task = planned.task
                wanted = with_later and task.name in self._read
                wanted |= weighed and task.name in self._judged
                rows = self._task(self._sides_left(chunk, planned), records, {}, wanted=wanted)
                if rows is not None:
                    there = made.setdefault(task.table.name, [self._done.rows(chunk, task.table)])
                    there.append(rows)
        tables = {name: pl.concat(frames) for name, frames in made.items()}
        if with_later:
            for planned in self._plan.tasks:
                if planned.task.after:
                    self._task(self._sides_left(chunk, planned), records, tables, wanted=False)
        return tables

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
        prompt_requests = PromptRequests(task, prompt, self._provider, self._config.granularity)
        told = self._look_up(prompt_requests, units, wanted=wanted)
        if not wanted:
            return None
        rows = [
            {**row, **_NOBODY, **sample_column(task, sample)}
            for (index, sample), answer in sorted(told.items())
            for row in task.rows(units[index], answer)
        ]
        return task.table.frame(rows if task.join is None else task.join(rows))

    def _look_up(
        self, prompt_requests: PromptRequests, units: list[Unit], *, wanted: bool
    ) -> dict[UnitSample, dict[str, Any]]:
        """Count what is asked about the units, as the LLM stage goes about it.

        Where `wanted`, the answers: stored ones, and the rules' or a guess where there is none.
        """
        tally, step = self._tallies[prompt_requests.task.name], prompt_requests.n_samples
        questions = prompt_requests.questions(units)
        alone = [question for question in questions if len(question.units) == 1]
        groups = [question for question in questions if len(question.units) > 1]
        requests = [question.request for question in groups]
        limit = prompt_requests.settings.max_tokens_limit
        heard = tally.add(
            requests,
            prompt_requests.parse_several,
            step=step,
            max_tokens_limit=limit,
            counted=False,
        )
        told: dict[UnitSample, dict[str, Any]] = {}
        for question, found in zip(groups, heard, strict=True):
            answers = found.value
            if found.missing and wanted:
                answers = _ruled(question.request, prompt_requests.parse_several)
                self._n_guessed[prompt_requests.task.name] += len(question.units)
            said = prompt_requests.said(question, answers) if answers else {}
            told |= {(unit, question.sample): answer for unit, answer in said.items()}
            if not found.missing:
                left = (unit for unit in question.units if unit not in said)
                alone += prompt_requests.alone(question, left, units)
        found_alone = tally.add(
            [q.request for q in alone],
            prompt_requests.parse_one,
            step=step,
            max_tokens_limit=limit,
            known=self._failed_before,
        )
        for question, found in zip(alone, found_alone, strict=True):
            answer = self._answer(prompt_requests, units, question, found) if wanted else None
            if answer is not None:
                told[question.units[0], question.sample] = answer
        return told

    def _answer(
        self,
        prompt_requests: PromptRequests,
        units: list[Unit],
        question: PromptRequest,
        found: Found,
    ) -> dict[str, Any] | None:
        """A stored answer, or where it is still to be asked for, what may stand in its place."""
        if not found.missing:
            return cast("dict[str, Any] | None", found.value)
        self._n_guessed[prompt_requests.task.name] += 1
        guess = prompt_requests.task.guess
        if guess is not None:
            return guess(units[question.units[0]])
        return _ruled(question.request, prompt_requests.parse_one)


#: In the place of what made a row: the estimate keeps no rows.
_NOBODY = dict.fromkeys(("request_key", "prompt", "prompt_version", "prompt_digest", "model"), "")


def _ruled(request: Request, parse: Parse[T]) -> T | None:
    """What the rules say, as the task understands it; None where they have nothing to say."""
    text = ruled_answer(request)
    try:
        return None if text is None else parse(Completion(text, "rules"))
    except ParseError:
        return None
