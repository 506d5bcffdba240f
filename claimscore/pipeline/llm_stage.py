"""The tasks of one chunk of records: requests out, rows and failures in.

A request is about one unit, or about several of one text where the prompt takes a list. An
answer about several is used as far as it is right: a unit that it leaves out or gets wrong is
asked about alone, so it costs the others nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import polars as pl
from anyio import lowlevel

from claimscore.config import Granularity
from claimscore.errors import ParseError
from claimscore.pipeline.llm.budget.ledger import Ledger
from claimscore.pipeline.llm.endpoints import OnEvent
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import Provider, extra_params
from claimscore.pipeline.llm.question import Answer, ParseWord
from claimscore.pipeline.llm.session import Copy, open_engine
from claimscore.pipeline.plan import Plan, PlannedTask, waves
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import Task, TaskInput, Unit, UnitAnswer, side_texts
from claimscore.pipeline.tasks.decompose import sentences_as_claims
from claimscore.prompts import Prompt, numbered
from claimscore.prompts.prompt import PromptSettings, filled
from claimscore.runs import RunDirectory
from claimscore.tables import CLAIM_CHECKS, FAILURES
from claimscore.types import Completion, Failure, Message, OutputSchema, Request

#: The outcome of a request that an engine counts instead of sending it: a dry engine's.
NOT_SENT = Failure("not_sent", "counted, not sent", attempts=0)


#: `Engine.answer_all`, or that of an engine that only counts (`DryEngine`).
AnswerAll = Callable[..., Awaitable[list[Answer[Any] | Failure]]]


@dataclasses.dataclass(frozen=True, slots=True)
class TaskResult:
    """The rows of the task's table, what could not be done, and what checks of claims found."""

    rows: pl.DataFrame
    failures: pl.DataFrame
    findings: pl.DataFrame = dataclasses.field(default_factory=CLAIM_CHECKS.empty)


def plan_engine(
    plan: Plan, on_event: OnEvent, ledger: Ledger | None = None, copy: Copy | None = None
) -> AbstractAsyncContextManager[Engine]:
    """The engine that answers the tasks of an open plan; parameters as of `open_engine`."""
    config = plan.config
    return open_engine(
        config.llm,
        plan.providers,
        config.cache_dir,
        ledger=ledger,
        copy=copy,
        retry_failed=config.retry_failed,
        on_event=on_event,
    )


async def do_tasks(
    tasks: Sequence[PlannedTask],
    directory: RunDirectory,
    chunk: int,
    engine: Engine | None,
    *,
    on_asked: Callable[[], None],
) -> None:
    """Ask all that the tasks, of which there is at least one, have to ask about a chunk; write
    their tables.

    `on_asked` is called once the engine knows of the first requests. Raises what stops the engine.
    """

    async def read(table: str) -> pl.DataFrame:
        return await anyio.to_thread.run_sync(directory.read, table, chunk)

    records = await read("records")

    async def do_task(planned: PlannedTask) -> None:
        tables = {table: await read(table) for table in tables_read(planned.task)}
        result = await run_task(planned, records, tables, engine)
        frames = {planned.task.table.name: result.rows, "failures": result.failures}
        if planned.task.findings is not None:
            frames[CLAIM_CHECKS.name] = result.findings
        await anyio.to_thread.run_sync(directory.write_parts, chunk, planned.step, frames)

    for number, wave in enumerate(waves(tasks)):
        async with anyio.create_task_group() as group:
            for planned in wave:
                group.start_soon(do_task, planned)
            if number == 0:
                await lowlevel.checkpoint()
                on_asked()


async def run_task(
    planned: PlannedTask,
    records: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    engine: Engine | None,
) -> TaskResult:
    """Ask the task's questions about the chunk and put the answers into its table."""
    task, prompt = planned.task, planned.prompt
    if prompt is None:
        rows_only = sentences_as_claims(side_texts(records, planned.sides))
        return TaskResult(rows_only, FAILURES.empty())
    assert engine is not None, "a task with a prompt needs an engine"
    given = task_input(planned, records, tables)
    units = task.units(given)
    provider = engine.provider_for(task.name)
    prompt_requests = PromptRequests(task, prompt, provider, planned.granularity)
    outcomes = await ask_units(prompt_requests, units, engine.answer_all)
    return task_result(prompt_requests, units, outcomes, task.known(given))


def tables_read(task: Task) -> set[str]:
    """The tables that a task reads besides the records."""
    return {*task.reads, *(TASKS[name].table.name for name in TASKS.keys() & task.after)}


def task_input(
    planned: PlannedTask, records: pl.DataFrame, tables: Mapping[str, pl.DataFrame]
) -> TaskInput:
    """What the task asks about in a chunk; among `tables` are those that it reads."""
    tables = {name: tables[name] for name in tables_read(planned.task) & tables.keys()}
    how = planned.granularity, tables, records, planned.window_tokens, planned.evidence
    return TaskInput(side_texts(records, planned.sides), *how)


def task_result(
    prompt_requests: PromptRequests,
    units: Sequence[Unit],
    outcomes: Mapping[UnitSample, Answer[dict[str, Any]] | Failure],
    known: Iterable[dict[str, Any]] = (),
) -> TaskResult:
    """The outcomes of units and samples as rows with their provenance, after those that were known,
    and as failures."""
    task = prompt_requests.task
    rows: list[dict[str, Any]] = [*known]
    failures: list[dict[str, Any]] = []
    answers: list[UnitAnswer] = []
    for (index, sample), outcome in sorted(outcomes.items()):
        unit = units[index]
        if isinstance(outcome, Failure):
            failure = dataclasses.asdict(_which(outcome, sample, prompt_requests))
            of_unit = {"id": unit.id, "side": unit.side, "index": unit.sentence_index}
            failures.append({"stage": task.name, **of_unit, **failure})
        else:
            provenance = _provenance(prompt_requests.prompt, outcome)
            made = task.rows(unit, outcome.value)
            column = {"sample": sample} if task.samples else {}
            rows += [{**row, **provenance, **column} for row in made]
            place = index, sample
            about = place in prompt_requests.misplaced, place in prompt_requests.asked_again
            shown = unit.fields(prompt_requests.prompt.fields)
            answers.append(UnitAnswer(unit, shown, outcome.value, *about))
    if task.join is not None:
        rows = task.join(rows)
    findings: list[dict[str, Any]] = []
    if task.findings is not None:
        findings = task.findings(answers, prompt_requests.prompt.example_answers())
    return TaskResult(
        task.table.frame(rows), FAILURES.frame(failures), CLAIM_CHECKS.frame(findings)
    )


async def ask_units(
    prompt_requests: PromptRequests, units: Sequence[Unit], answer_all: AnswerAll
) -> dict[UnitSample, Answer[dict[str, Any]] | Failure]:
    """An answer or a failure for every unit and sample.

    Requests about several units come first; a unit that such an answer leaves out is asked about
    alone. Where the task objects to an answer, the model is told so and asked once more; the first
    answer stays where the second is no better.

    Where a request about several is not sent, all of its units get `NOT_SENT`: which of them its
    answer would leave is not known.
    """
    ask = functools.partial(
        answer_all,
        step=prompt_requests.n_samples,
        max_tokens_limit=prompt_requests.settings.max_tokens_limit,
        provider=prompt_requests.provider,
    )
    outcomes: dict[UnitSample, Answer[dict[str, Any]] | Failure] = {}
    questions = prompt_requests.questions(units)
    alone = [question for question in questions if len(question.units) == 1]
    groups = [question for question in questions if len(question.units) > 1]
    requests = [question.request for question in groups]
    group_outcomes = await ask(requests, prompt_requests.parse_several, counted=False)
    for question, answers in zip(groups, group_outcomes, strict=True):
        if answers is NOT_SENT:
            outcomes |= {(unit, question.sample): NOT_SENT for unit in question.units}
            continue
        usable: dict[int, dict[str, Any]] = {}
        if not isinstance(answers, Failure):
            usable = prompt_requests.usable(question, answers.value, units)
            of_all = answers.key, answers.completion
            for unit, answer in usable.items():
                outcomes[unit, question.sample] = Answer(*of_all, answer, answers.cached)
        left = (unit for unit in question.units if unit not in usable)
        alone += prompt_requests.alone(question, left, units)
    parse = prompt_requests.parse_one
    single_outcomes = await ask(
        [question.request for question in alone],
        ParseWord(parse) if prompt_requests.prompt.label_words else parse,
    )
    for question, outcome in zip(alone, single_outcomes, strict=True):
        outcomes[question.units[0], question.sample] = outcome
    if prompt_requests.task.objection is not None:
        again = {
            place: request
            for place, outcome in outcomes.items()
            if isinstance(outcome, Answer)
            and (request := prompt_requests.again(units, place, outcome))
        }
        second = await ask(list(again.values()), prompt_requests.parse_one, counted=False)
        for place, outcome in zip(again, second, strict=True):
            if outcome is NOT_SENT:
                continue
            prompt_requests.asked_again.add(place)
            if isinstance(outcome, Answer) and not prompt_requests.again(units, place, outcome):
                outcomes[place] = outcome
    return outcomes


def _which(failure: Failure, sample: int, prompt_requests: PromptRequests) -> Failure:
    """The failure, with the sample that it is of, where there are several, and with the way out
    where a window is too long for the model."""
    if failure.kind == "context_length" and prompt_requests.task.shared:
        way_out = "--window-tokens with a smaller number asks about shorter windows of the source"
        failure = dataclasses.replace(failure, message=f"{failure.message}; {way_out}")
    if prompt_requests.n_samples == 1 or failure.message.startswith(f"sample {sample}: "):
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


#: A unit by its position, and which of its samples.
UnitSample = tuple[int, int]


class PromptRequest(NamedTuple):
    """One request, the positions of the units it is about, and which sample it is."""

    request: Request
    units: tuple[int, ...]
    sample: int


def asked_settings(prompt: Prompt, granularity: Granularity) -> PromptSettings:
    """How a sentence, or a whole summary, is asked about."""
    return prompt.summary_settings if granularity == "summary" else prompt.settings


class PromptRequests:
    """One task with one prompt: from units to requests, from answers back to units.

    Of `provider` only the names are used, which are part of every request.
    """

    def __init__(
        self, task: Task, prompt: Prompt, provider: Provider, granularity: Granularity
    ) -> None:
        self.task = task
        self.prompt = prompt
        self.settings = asked_settings(prompt, granularity)
        self.n_samples = self.settings.samples
        self.provider = provider
        #: Units of the chunk whose answer in a request about several belonged to another unit.
        self.misplaced: set[UnitSample] = set()
        #: Those that were asked about again, because of the task's objection.
        self.asked_again: set[UnitSample] = set()
        schema = prompt.schema
        self._output = OutputSchema(task.name, schema.schema) if schema else None

    def questions(self, units: Sequence[Unit]) -> list[PromptRequest]:
        """The requests about the units, in their order; of each as many samples as wanted."""
        return [
            self._question(units, group, sample)
            for group in self._groups(units)
            for sample in range(self.n_samples)
        ]

    def alone(
        self, question: PromptRequest, left: Iterable[int], units: Sequence[Unit]
    ) -> list[PromptRequest]:
        """The same about each unit that is left, by itself."""
        return [self._question(units, (unit,), question.sample) for unit in left]

    def again(
        self, units: Sequence[Unit], place: UnitSample, answer: Answer[dict[str, Any]]
    ) -> Request | None:
        """What is sent after an answer that the task objects to; None where it does not."""
        index, sample = place
        objection = self.task.objection(units[index], answer.value) if self.task.objection else ""
        if not objection:
            return None
        request = self._question(units, (index,), sample).request
        turns = (Message("assistant", answer.completion.text), Message("user", objection))
        return dataclasses.replace(request, messages=(*request.messages, *turns), shared="")

    def parse_one(self, completion: Completion) -> dict[str, Any]:
        """The answer about one unit; `ParseError` where it cannot be used."""
        if self.prompt.takes_several:
            answers = self.parse_several(completion)
            if set(answers) != {1} or answers[1] is None:
                numbers = ", ".join(map(str, answers))
                raise ParseError(f"text 1 was asked about, and answered was text {numbers}")
            return answers[1]
        answer = self.prompt.read(completion)
        self.task.check(answer)
        return answer if self.task.refine is None else self.task.refine(completion, answer)

    def parse_several(self, completion: Completion) -> dict[int, dict[str, Any] | None]:
        """The answers by the number of the text, None for those that cannot be used;
        `ParseError` where none can."""
        answers, why = self.prompt.parse_several(completion.text), ""
        for number, answer in answers.items():
            try:
                if answer is not None:
                    self.task.check(answer)
            except ParseError as exc:
                answers[number], why = None, f"text {number}: {exc}"
        if all(answer is None for answer in answers.values()):
            raise ParseError(why)
        return answers

    def usable(
        self,
        question: PromptRequest,
        answers: Mapping[int, dict[str, Any] | None],
        units: Sequence[Unit],
    ) -> dict[int, dict[str, Any]]:
        """The answers that can be used, by unit; not those that belong to another text.

        A number that no text has makes all of them useless: a model that counts otherwise may
        mean another text with every number.
        """
        if not all(1 <= number <= len(question.units) for number in answers):
            return {}
        usable = {n - 1: answer for n, answer in answers.items() if answer is not None}
        if self.task.misplaced is not None:
            texts = [units[index].text for index in question.units]
            for place in self.task.misplaced(texts, usable):
                del usable[place]
                self.misplaced.add((question.units[place], question.sample))
        return {question.units[place]: answer for place, answer in usable.items()}

    def _groups(self, units: Sequence[Unit]) -> list[tuple[int, ...]]:
        """Units that are asked about together: neighbours in one text, so many at a time."""
        if not self.prompt.takes_several:
            return [(index,) for index in range(len(units))]
        size = self.settings.texts_per_request
        of_texts = itertools.groupby(
            range(len(units)), key=lambda i: (units[i].id, units[i].side, units[i].summary)
        )
        groups = []
        for _, group in of_texts:
            text = tuple(group)
            groups += [text[start : start + size] for start in range(0, len(text), size)]
        return groups

    def _question(
        self, units: Sequence[Unit], group: tuple[int, ...], sample: int
    ) -> PromptRequest:
        prompt, settings = self.prompt, self.settings
        fields = units[group[0]].fields(prompt.fields)
        if prompt.takes_several:
            fields["texts"] = numbered([units[index].text for index in group])
        request = Request(
            provider=self.provider.family,
            namespace=self.provider.namespace,
            model=self.provider.model,
            messages=prompt.render(fields),
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            top_p=settings.top_p,
            output=self._output,
            sample_index=sample,
            top_logprobs=self.task.top_logprobs,
            extra=extra_params(self.provider, filled(settings.extra, fields)),
            shared=units[group[0]].more[self.task.shared] if self.task.shared else "",
            texts=fields,
        )
        return PromptRequest(request, group, sample)
