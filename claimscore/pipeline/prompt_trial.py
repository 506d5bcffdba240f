"""One prompt tried on one example: what would be sent, and what an answer becomes."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import polars as pl

from claimscore.baseline.provider import TASKS as BUILTIN_TASKS
from claimscore.baseline.provider import refusal
from claimscore.cache.base import MemoryCache
from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.blocking import run_blocking
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import Provider, load_provider
from claimscore.pipeline.llm.question import Answer
from claimscore.pipeline.llm.session import open_engine
from claimscore.pipeline.llm.tokens import BYTES_PER_TOKEN
from claimscore.pipeline.llm_stage import PromptRequests, ask_units, task_result
from claimscore.pipeline.map.input_table import scratch_source
from claimscore.pipeline.map.table_prompt import TablePrompt, check_builtin
from claimscore.pipeline.plan import check_model, other_models
from claimscore.pipeline.tasks import TASKS
from claimscore.pipeline.tasks.base import Task, TaskInput, Unit, side_texts
from claimscore.pipeline.tasks.decompose import sentences_as_claims
from claimscore.pipeline.tasks.questions import QUESTIONS
from claimscore.prompts import Prompt
from claimscore.records.columns import likely_columns
from claimscore.records.dataset import Selection, prepare
from claimscore.tables import LLM_PROVENANCE
from claimscore.types import Failure, Message, utf8_bytes

#: What is shown where the user gives no records: a pair, and a summary of two reviews.
EXAMPLE = pl.DataFrame(
    {
        "id": ["example"],
        "summary_a": ["The rooms are clean and quiet. The staff is friendly, but the bar is loud."],
        "summary_b": ["Guests find the rooms tidy. The staff is not friendly."],
        "summary": ["A fast kettle with a cool handle. Some find it loud."],
        "sources": [["Boils fast and the handle stays cool. A bit loud.", "Quick, easy to clean."]],
    }
)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A prompt on one example.

    `prompt_bytes` are those of all messages, `own_bytes` what of them is the same for every
    request. `answer` is what the language model said, `rows` what became of it; `why_not` says
    why no request was sent.
    """

    about: str
    messages: tuple[Message, ...]
    n_texts: int
    prompt_bytes: int
    own_bytes: int
    llm: str = ""
    answer: str = ""
    rows: tuple[dict[str, Any], ...] = ()
    failures: tuple[str, ...] = ()
    why_not: str = ""

    @property
    def prompt_tokens(self) -> int:
        """As an estimate counts where no answer of the model is stored: 4 bytes a token."""
        return round(self.prompt_bytes / BYTES_PER_TOKEN)

    @property
    def own_tokens(self) -> int:
        return round(self.own_bytes / BYTES_PER_TOKEN)


def try_prompt(
    prompt: Prompt,
    llm: LLMConfig,
    *,
    task: str | None = None,
    source: str | None = None,
    columns: Mapping[str, str] = MappingProxyType({}),
    stdin: BinaryIO | None = None,
    cache_dir: Path | None = None,
) -> Trial:
    """Render the prompt for the first of the records, and ask once.

    `task` is the task that it is for, None where it is for a table. `source` has the user's
    records, of which `columns` says the names as those of a run; without it the example of the
    package is taken, and no table has one. `builtin`
    is asked without a trace; a language model's answer is paid for and kept.
    """
    if columns and (task is None or source is None):
        needed = "INPUT" if source is None else "--task: the prompt of a map names its columns"
        raise ConfigError(f"--columns goes with {needed}")
    if task is None and source is None:
        shown = prompt.render(**{name: f"${name}" for name in prompt.fields})
        own = _own_bytes(prompt)
        why = "its $columns are those of a table: name one as INPUT to see a row of it"
        return Trial("no table", shown, 1, own, own, why_not=why)
    provider = load_provider(llm)
    try:
        if task is None:
            return _try_row(prompt, llm, provider, cache_dir, str(source), stdin)
        record, about = _first_record(source, columns, stdin)
        return _try_task(TASKS[task], prompt, llm, provider, cache_dir, record, about)
    finally:
        run_blocking(provider.aclose)


def _first_record(
    source: str | None, columns: Mapping[str, str], stdin: BinaryIO | None
) -> tuple[pl.DataFrame, str]:
    if source is None:
        return EXAMPLE, "the example that comes with claimscore"
    with tempfile.TemporaryDirectory(prefix="claimscore-") as spool:
        read = Selection(columns, limit=1)
        dataset = prepare(source, spool=Path(spool), required={}, stdin=stdin, selection=read)
        for record in dataset.chunks(1):
            return record, f"record {record['id'][0]} of {source}"
    raise ConfigError(f"{source}: there is no record")


def _try_task(
    task: Task,
    prompt: Prompt,
    llm: LLMConfig,
    provider: Provider,
    cache_dir: Path | None,
    record: pl.DataFrame,
    about: str,
) -> Trial:
    units = _units(task, record)
    questions = PromptRequests(task, prompt, provider, "sentence").questions(units)
    if not questions:
        likely = likely_columns(record.columns).items()
        pairs = ",".join(f"{ours}={theirs}" for ours, theirs in likely)
        meant = f"; is --columns {pairs} meant?" if pairs else ""
        raise ConfigError(f"{about}: it has nothing that {task.name} would ask about{meant}")
    first = questions[0]
    asked = [units[index] for index in first.units]
    messages = first.request.messages
    sizes = _bytes(messages), _own_bytes(prompt)
    trial = Trial(f"{about}, {asked[0].side}", messages, len(asked), *sizes, llm.model)
    if provider.family == "builtin" and task.name not in BUILTIN_TASKS:
        return dataclasses.replace(trial, why_not=refusal(task.name))
    if provider.family != "builtin":  # it answers in any model's place
        check_model(prompt, llm, "--llm")
    settings = dataclasses.replace(prompt.settings, samples=1)
    once = dataclasses.replace(prompt, settings=settings, summary_settings=settings)
    prompt_requests = PromptRequests(task, once, provider, "sentence")

    async def ask() -> Any:
        async with _engine(llm, provider, cache_dir, other_models(once)) as engine:
            return await ask_units(prompt_requests, asked, engine)

    told = run_blocking(ask)
    result = task_result(prompt_requests, asked, told)
    return dataclasses.replace(
        trial,
        answer=next((o.completion.text for o in told.values() if isinstance(o, Answer)), ""),
        rows=tuple(result.rows.drop(*LLM_PROVENANCE).to_dicts()),
        failures=tuple(_failed(row) for row in result.failures.to_dicts()),
    )


def _units(task: Task, record: pl.DataFrame) -> list[Unit]:
    """The units of the task; rows of tasks before it are the sentences, or are guessed."""
    texts = side_texts(record, task.sides(record.columns))
    tables = {}
    if "decompose" in task.after:
        tables["claims"] = sentences_as_claims(texts)
    if "questions" in task.after:
        asked = QUESTIONS.units(TaskInput(texts, "sentence", {}, record))
        guess, number = QUESTIONS.guess, QUESTIONS.join
        assert guess is not None, "the task has one"
        assert number is not None, "it numbers its rows"
        rows = [row for unit in asked for row in QUESTIONS.rows(unit, guess(unit))]
        tables["llm_answers"] = QUESTIONS.table.frame(number(rows))
    return task.units(TaskInput(texts, "sentence", tables, record))


def _try_row(
    prompt: Prompt,
    llm: LLMConfig,
    provider: Provider,
    cache_dir: Path | None,
    source: str,
    stdin: BinaryIO | None,
) -> Trial:
    """The prompt of a map, tried on the first row of a table."""
    with scratch_source(source, stdin) as scratch:
        table = scratch.open()
        table_prompt = TablePrompt(prompt, table.schema, table.name)
        frame = next(iter(table.chunks(1)))
    asked = table_prompt.requests(frame, provider)
    if not asked.requests:
        raise ConfigError(f"{source}, row 1: {asked.failures[0].message}")
    (request,) = asked.requests
    sizes = _bytes(request.messages), _own_bytes(prompt)
    trial = Trial(f"row 1 of {source}", request.messages, 1, *sizes, llm.model)
    try:
        check_builtin(prompt, provider)
    except ConfigError as exc:
        return dataclasses.replace(trial, why_not=str(exc))

    async def ask() -> Any:
        async with _engine(llm, provider, cache_dir) as engine:
            return await engine.answer(request, table_prompt.parse)

    outcome = run_blocking(ask)
    if isinstance(outcome, Failure):
        return dataclasses.replace(trial, failures=(_failed(dataclasses.asdict(outcome)),))
    return dataclasses.replace(trial, answer=outcome.completion.text, rows=(outcome.value,))


@contextlib.asynccontextmanager
async def _engine(
    llm: LLMConfig, provider: Provider, cache_dir: Path | None, models: tuple[str, ...] = ()
) -> AsyncIterator[Engine]:
    """An engine; what `builtin` answers is not kept."""
    if provider.family == "builtin":
        async with Engine(provider, MemoryCache()) as engine:
            yield engine
    else:
        async with open_engine(llm, provider, cache_dir, models=models) as engine:
            yield engine


def _failed(row: dict[str, Any]) -> str:
    return f"{row['kind']}: {row['message']}" + (f": {row['raw']}" if row["raw"] else "")


def _own_bytes(prompt: Prompt) -> int:
    """The bytes of a request without its texts."""
    return _bytes(prompt.render(**dict.fromkeys(prompt.fields, "")))


def _bytes(messages: tuple[Message, ...]) -> int:
    return sum(utf8_bytes(content) for _, content in messages)
