"""One task over one chunk of records: questions out, rows and failures in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import polars as pl

from claimscore.config import Granularity
from claimscore.pipeline.asking import Asking, Place
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm.question import Answer
from claimscore.pipeline.llm.validation import Parse
from claimscore.pipeline.plan import PlannedTask
from claimscore.pipeline.tasks.base import Task, TaskInput, Unit, side_texts
from claimscore.pipeline.tasks.decompose import sentences_as_claims
from claimscore.prompts import Prompt
from claimscore.tables import FAILURES
from claimscore.types import Failure, Request

T = TypeVar("T")

#: The outcome of a request that an engine counts instead of sending it: a dry engine's.
NOT_SENT = Failure("not_sent", "counted, not sent", attempts=0)


class AskableEngine(Protocol):
    """An engine as the stage uses it: `Engine`, or one that only counts (`estimate.DryEngine`)."""

    provider: Provider

    async def answer_all(
        self,
        requests: Sequence[Request],
        parse: Parse[T],
        *,
        step: int = 1,
        counted: bool = True,
        known: Mapping[str, Failure] = MappingProxyType({}),
    ) -> list[Answer[T] | Failure]:
        """See `Engine.answer_all`."""


@dataclasses.dataclass(frozen=True, slots=True)
class TaskResult:
    """The rows of the task's table, and what could not be done."""

    rows: pl.DataFrame
    failures: pl.DataFrame


async def run_task(
    planned: PlannedTask,
    records: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    engine: AskableEngine | None,
    granularity: Granularity,
    known: Mapping[str, Failure] = MappingProxyType({}),
) -> TaskResult:
    """Ask the task's questions about the chunk and put the answers into its table.

    `known` are failures of earlier that are not to be tried again, by request key.
    """
    task, prompt = planned.task, planned.prompt
    if prompt is None:
        rows_only = sentences_as_claims(side_texts(records, planned.sides))
        return TaskResult(rows_only, FAILURES.empty())
    assert engine is not None, "a task with a prompt needs an engine"
    units = task_units(planned, records, tables, granularity)
    asking = Asking(task, prompt, engine.provider, granularity)
    return task_result(asking, units, await ask_units(asking, units, engine, known))


def task_units(
    planned: PlannedTask,
    records: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    granularity: Granularity,
) -> list[Unit]:
    """The units of a chunk that the task asks about; `tables` are those of the tasks before it."""
    texts = side_texts(records, planned.sides)
    return planned.task.units(TaskInput(texts, granularity, tables, records))


def task_result(
    asking: Asking, units: Sequence[Unit], told: Mapping[Place, Answer[dict[str, Any]] | Failure]
) -> TaskResult:
    """What was said of each unit and sample, as rows with what made them, and as failures."""
    task = asking.task
    rows: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    for (index, sample), outcome in sorted(told.items()):
        unit = units[index]
        if isinstance(outcome, Failure):
            failures.append(_failure_row(task.name, unit, _which(outcome, sample, asking)))
        else:
            provenance = _provenance(asking.prompt, outcome)
            made = task.rows(unit, outcome.value)
            rows += [{**row, **provenance, **sample_column(task, sample)} for row in made]
    if task.join is not None:
        rows = task.join(rows)
    return TaskResult(task.table.frame(rows), FAILURES.frame(failures))


async def ask_units(
    asking: Asking,
    units: Sequence[Unit],
    engine: AskableEngine,
    known: Mapping[str, Failure] = MappingProxyType({}),
) -> dict[Place, Answer[dict[str, Any]] | Failure]:
    """An answer or a failure for every unit and sample: of several at once, and what is left of
    these of one at a time.

    Where a request about several is not sent, all of its units get `NOT_SENT`: which of them its
    answer would leave is not known.
    """
    told: dict[Place, Answer[dict[str, Any]] | Failure] = {}
    questions = asking.questions(units)
    alone = [question for question in questions if len(question.units) == 1]
    groups = [question for question in questions if len(question.units) > 1]
    heard = await engine.answer_all(
        [question.request for question in groups],
        asking.parse_several,
        step=asking.n_samples,
        counted=False,
    )
    for question, answers in zip(groups, heard, strict=True):
        if answers is NOT_SENT:
            told |= {(unit, question.sample): NOT_SENT for unit in question.units}
            continue
        said: dict[int, dict[str, Any]] = {}
        if not isinstance(answers, Failure):
            said = asking.said(question, answers.value)
            of_all = answers.key, answers.completion
            for unit, answer in said.items():
                told[unit, question.sample] = Answer(*of_all, answer, answers.cached)
        left = (unit for unit in question.units if unit not in said)
        alone += asking.alone(question, left, units)
    outcomes = await engine.answer_all(
        [question.request for question in alone],
        asking.parse_one,
        step=asking.n_samples,
        known=known,
    )
    for question, outcome in zip(alone, outcomes, strict=True):
        told[question.units[0], question.sample] = outcome
    return told


def known_failures(rows: pl.DataFrame, task: str) -> dict[str, Failure]:
    """The failures of a task, from their table, by request key."""
    columns = ("kind", "message", "attempts", "request_key", "raw")
    of_task = rows.filter(pl.col("stage") == task, pl.col("request_key").is_not_null())
    return {row[3]: Failure(*row) for row in of_task.select(columns).iter_rows()}


def sample_column(task: Task, sample: int) -> dict[str, int]:
    """The number of the sample, for tables that have it."""
    return {"sample": sample} if task.samples else {}


def _which(failure: Failure, sample: int, asking: Asking) -> Failure:
    """The failure, with the sample that it is of, where there are several."""
    if asking.n_samples == 1 or failure.message.startswith(f"sample {sample}: "):
        return failure
    return dataclasses.replace(failure, message=f"sample {sample}: {failure.message}")


def _provenance(prompt: Prompt, answer: Answer[Any]) -> dict[str, str]:
    return {
        "request_key": answer.key,
        "prompt": prompt.name,
        "prompt_version": prompt.version,
        "prompt_digest": prompt.digest,
        "model": answer.completion.model.encode("utf-8", "replace").decode(),
    }


def _failure_row(stage: str, unit: Unit, failure: Failure) -> dict[str, Any]:
    return {
        "id": unit.id,
        "stage": stage,
        "side": unit.side,
        "index": unit.sentence_index,
        "kind": failure.kind,
        "message": failure.message,
        "attempts": failure.attempts,
        "request_key": failure.request_key,
        "raw": failure.raw,
    }
