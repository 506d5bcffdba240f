"""One task over one chunk of records: questions out, rows and failures in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import polars as pl

from claimscore.config import Granularity
from claimscore.pipeline.llm.engine import Answer, Engine
from claimscore.pipeline.llm.judge import Parse
from claimscore.pipeline.plan import PlannedTask
from claimscore.pipeline.tasks.base import Task, TaskInput, Unit, side_texts
from claimscore.pipeline.tasks.decompose import sentences_as_claims
from claimscore.prompts import Prompt
from claimscore.tables import FAILURES
from claimscore.types import Completion, Failure, OutputSchema, Request


@dataclasses.dataclass(frozen=True, slots=True)
class TaskResult:
    """The rows of the task's table, and what could not be done."""

    rows: pl.DataFrame
    failures: pl.DataFrame


async def run_task(
    planned: PlannedTask,
    records: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    engine: Engine | None,
    granularity: Granularity,
) -> TaskResult:
    """Ask the task's questions about the chunk and put the answers into its table."""
    task, prompt = planned.task, planned.prompt
    if prompt is None:
        rows_only = sentences_as_claims(side_texts(records, planned.sides))
        return TaskResult(rows_only, FAILURES.empty())
    assert engine is not None, "a task with a prompt needs an engine"
    texts = side_texts(records, planned.sides)
    units = task.units(TaskInput(texts, granularity, tables, records))
    requests = task_requests(task, prompt, units, engine, granularity)
    outcomes = await engine.answer_all(requests, answer_parser(task, prompt))
    rows: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    for unit, outcome in zip(units, outcomes, strict=True):
        if isinstance(outcome, Failure):
            failures.append(_failure_row(task.name, unit, outcome))
        else:
            provenance = _provenance(prompt, outcome)
            rows += [{**row, **provenance} for row in task.rows(unit, outcome.value)]
    if task.join is not None:
        rows = task.join(rows)
    return TaskResult(task.table.frame(rows), FAILURES.frame(failures))


def answer_parser(task: Task, prompt: Prompt) -> Parse[dict[str, Any]]:
    """What makes a task's answer of a completion, or raises `ParseError`."""

    def parse(completion: Completion) -> dict[str, Any]:
        answer = prompt.parse(completion.text)
        task.check(answer)
        return answer if task.refine is None else task.refine(completion, answer)

    return parse


def task_requests(
    task: Task, prompt: Prompt, units: list[Unit], engine: Engine, granularity: Granularity
) -> list[Request]:
    """The requests that a task sends for its units."""
    settings = prompt.summary_settings if granularity == "summary" else prompt.settings
    schema = prompt.schema
    output = OutputSchema(task.name, schema.schema) if schema else None
    return [
        engine.request(
            prompt.render(**unit.fields(prompt.fields)),
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            top_p=settings.top_p,
            output=output,
            top_logprobs=task.top_logprobs,
        )
        for unit in units
    ]


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
