"""Prompts and a table: a request for each row or item, and the answers as typed columns. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import polars as pl

from claimscore.errors import ConfigError, ParseError
from claimscore.pipeline.llm.providers.base import (
    Provider,
    check_logprobs,
    extra_params,
    is_local,
    provider_class,
)
from claimscore.pipeline.llm.question import Answer, Parse, ParseWord
from claimscore.prompts import Prompt
from claimscore.prompts.output import TOP_LOGPROBS, scalar_of
from claimscore.prompts.prompt import filled
from claimscore.tables import FAILURES
from claimscore.types import Completion, Failure, Request

#: Columns of every row beside the input's and the prompt's own; in a chain after the prompt's name.
KEY_COLUMN, ERROR_COLUMN = "request_key", "error"

#: Columns of every row where it is about an item of a list: whose list, and which place in it.
ID_COLUMN, ITEM_COLUMN = "id", "item"

#: The step of a chunk in the run directory, and the stage of failures of a prompt alone.
STAGE = "map"

_SCALARS: dict[str, pl.DataType] = {
    "string": pl.String(),
    "number": pl.Float64(),
    "integer": pl.Int64(),
    "boolean": pl.Boolean(),
}
_I64 = 2**63

Columns = Mapping[str, pl.DataType]

#: Columns of a frame at work, which no input has: places, lengths of lists, what was asked.
_PLACE, _ITEM, _LENGTH, _ASKED = "\0place", "\0item", "\0length", "\0asked"

#: None where there was nothing to ask.
RowOutcome = Answer[Any] | Failure | None


class Rows(NamedTuple):
    """Rows on their way through the prompts, each with the number of the input's row that it comes
    from, and with the place of its item where it is about one of a list."""

    frame: pl.DataFrame
    numbers: Sequence[int]
    items: Sequence[int | None] | None = None


class RowRequests(NamedTuple):
    """What is asked about rows: the rows with one for each item, which row of before each was, the
    requests with their places, and the places that have none and fail. The others have nothing to
    ask about."""

    rows: Rows
    before: pl.Series | None
    places: list[int]
    requests: Sequence[Request]
    failures: dict[int, Failure]


class TablePrompt:
    """Makes requests of a table's rows with one prompt, and columns of their answers.

    `ConfigError`, before anything is spent, where the prompt does not fit the columns of the
    table, which messages call `where`. `made` has the prompt that makes a column, for those that
    earlier prompts make; those that this prompt reads are its own `made`. A prompt in a chain has
    its `name`, which stands before the names of its bookkeeping columns. `schema` has the columns
    that are added, `after` all that there are then.

    Values other than text are written as polars writes them (dates by ISO 8601, `true`, `1.5`),
    lists and structs as JSON, each filled in once and never read as a field again. A row with a
    null in a column of the input that the prompt uses is a failure without a request. A null in a
    column that an earlier prompt makes, which failed there, and an empty list are nothing to ask
    about.
    """

    def __init__(
        self, prompt: Prompt, columns: Columns, where: str, made: Mapping[str, str], name: str
    ) -> None:
        self.prompt, self.name = prompt, name
        self.gathers = bool(prompt.explode) and prompt.gather
        of_items = _of_items(prompt, columns, where)
        answers = {column: _dtype(kind) for column, kind in prompt.output.items()}
        answers |= dict.fromkeys(prompt.label_words, pl.Float64())
        ours = [f"{name and f'{name}.'}{column}" for column in (KEY_COLUMN, ERROR_COLUMN)]
        self._answers: dict[str, pl.DataType] = {
            **(answers or dict.fromkeys(prompt.columns, pl.String())),
            **dict.fromkeys(ours, pl.String()),
        }
        self.schema = self._answers
        if self.gathers:
            self.schema = {column: pl.List(dtype) for column, dtype in self._answers.items()}
        elif prompt.explode:
            places = [ID_COLUMN] * (ID_COLUMN not in columns) + [ITEM_COLUMN]
            self.schema = {**dict.fromkeys(places, pl.Int64()), **self._answers}
            ours += places
        _check_prompt(prompt, of_items, ours, made, where)
        self.after = {**(columns if self.gathers else of_items), **self.schema}
        self._fields = sorted(prompt.fields)
        self._output = prompt.schema
        self.made = [field for field in self._fields if field in made]
        self._checks_integers = "integer" in json.dumps(prompt.output)

    def requests(self, rows: Rows, provider: Provider) -> RowRequests:
        """A request for each row, or item, whose columns all have a value."""
        before: pl.Series | None = None
        too_long: dict[int, Failure] = {}
        idle: set[int] = set()
        if self.prompt.explode:
            rows, before, lengths = self._exploded(rows)
            most = f"items, and max_items of {self.prompt.name} is {self.prompt.max_items:,}"
            for place in (lengths > self.prompt.max_items).arg_true():
                message = f"the list in {self.prompt.explode} has {lengths[place]:,} {most}"
                too_long[place] = Failure("too_many_items", message, 0)
            idle.update((lengths == 0).arg_true())
        frame = rows.frame
        failures = {
            row: Failure("null_input", f"column {field} is null", 0)
            for field in reversed(self._fields)  # of several the first one is named
            if field not in self.made
            for row in frame[field].is_null().arg_true()
        }
        idle.update(row for field in self.made for row in frame[field].is_null().arg_true())
        idle -= too_long.keys()
        failures = {n: why for n, why in {**failures, **too_long}.items() if n not in idle}
        places = [n for n in range(frame.height) if n not in failures and n not in idle]
        asked = frame[places] if len(places) < frame.height else frame
        texts = (_as_texts(asked[field]) for field in self._fields)
        fields = (dict(zip(self._fields, row, strict=True)) for row in zip(*texts, strict=True))
        requests = [self._request(of_row, provider) for of_row in fields]
        return RowRequests(rows, before, places, requests, failures)

    def _request(self, fields: Mapping[str, str], provider: Provider) -> Request:
        settings = self.prompt.settings
        return Request(
            provider=provider.family,
            namespace=provider.namespace,
            model=provider.model,
            messages=self.prompt.render(fields),
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            top_p=settings.top_p,
            output=self._output,
            top_logprobs=TOP_LOGPROBS if self.prompt.label_words else 0,
            extra=extra_params(provider, filled(settings.extra, fields)),
            texts=fields,
        )

    def _exploded(self, rows: Rows) -> tuple[Rows, pl.Series, pl.Series]:
        """A row for each item, which row of before it was, and the length of the list; one row
        without an item where the list is empty, null or too long."""
        lists = pl.col(self.prompt.explode)
        length = lists.list.len()
        is_asked = (length > 0) & (length <= self.prompt.max_items)
        frame = (
            rows.frame.with_columns(
                pl.when(is_asked).then(lists),
                pl.when(is_asked).then(pl.int_ranges(length)).alias(_ITEM),
                length.alias(_LENGTH),
            )
            .with_row_index(_PLACE)
            .explode(self.prompt.explode, _ITEM)
        )
        before, items, lengths = map(frame.drop_in_place, (_PLACE, _ITEM, _LENGTH))
        numbers = [rows.numbers[place] for place in before]
        if not self.gathers:
            if ID_COLUMN not in frame.columns:
                frame = frame.with_columns(pl.Series(ID_COLUMN, numbers, pl.Int64))
            frame = frame.with_columns(items.alias(ITEM_COLUMN))
        return Rows(frame, numbers, items.to_list()), before, lengths

    def how(self, parse: Parse[Any]) -> dict[str, Any]:
        """How an engine is asked for answers that `parse` judges."""
        judge = ParseWord(parse) if self.prompt.label_words else parse
        return {"parse": judge, "max_tokens_limit": self.prompt.settings.max_tokens_limit}

    def parse(self, completion: Completion) -> dict[str, Any]:
        """The values of an answer by column; `ParseError` where a column could not hold one."""
        answer = self.prompt.read(completion)
        if self._checks_integers and any(not -_I64 <= n < _I64 for n in _integers(answer)):
            raise ParseError("an integer has more than 64 bits")
        return answer

    def answers(
        self, rows: Rows, asked: RowRequests, answered: Sequence[RowOutcome]
    ) -> tuple[Rows, pl.DataFrame]:
        """The rows with the columns of their answers, and the entries in `failures`."""
        outcomes: list[RowOutcome] = [None] * asked.rows.frame.height
        of_places = zip(asked.places, answered, strict=True)
        for place, outcome in (*asked.failures.items(), *of_places):
            outcomes[place] = outcome
        failures = FAILURES.frame(list(self._failure_rows(asked.rows, outcomes)))
        values = dict(zip(self._answers, self._values(outcomes), strict=True))
        columns = pl.DataFrame(values, schema=self._answers)
        if self.gathers:
            was_asked = pl.Series(_ASKED, [outcome is not None for outcome in outcomes])
            items = columns.with_columns(was_asked, asked.before)
            of_rows = items.group_by(_PLACE, maintain_order=True)
            lists = of_rows.agg(pl.col(columns.columns).filter(_ASKED)).drop(_PLACE)
            return rows._replace(frame=rows.frame.hstack(lists)), failures
        return asked.rows._replace(frame=asked.rows.frame.hstack(columns)), failures

    def _values(self, outcomes: Sequence[RowOutcome]) -> Iterator[list[Any]]:
        answers = [outcome if isinstance(outcome, Answer) else None for outcome in outcomes]
        for name in self.prompt.columns:
            yield [None if answer is None else _valid(answer.value[name]) for answer in answers]
        failed = [outcome if isinstance(outcome, Failure) else None for outcome in outcomes]
        both = zip(answers, failed, strict=True)
        yield [a.key if a else f.request_key if f else None for a, f in both]
        yield [f and _valid(f.message) for f in failed]

    def _failure_rows(self, rows: Rows, outcomes: Sequence[RowOutcome]) -> Iterator[dict[str, Any]]:
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, Failure):
                why = {name: _valid(value) for name, value in dataclasses.asdict(outcome).items()}
                item = rows.items and rows.items[place]
                id, stage = str(rows.numbers[place]), self.name or STAGE
                yield {"id": id, "index": item, "stage": stage, **why}


def chain(prompts: Sequence[Prompt], columns: Columns, where: str) -> list[TablePrompt]:
    """The prompts, each over the columns that those before it leave; `ConfigError` where one does
    not fit. One alone that asks a question a row has no name."""
    is_alone = len(prompts) == 1 and not prompts[0].explode
    made: dict[str, str] = {}
    steps: list[TablePrompt] = []
    for prompt in prompts:
        if prompt.name in made.values():
            raise ConfigError(f"two prompts are called {prompt.name}, and so would columns be")
        name = "" if is_alone else prompt.name
        steps.append(TablePrompt(prompt, columns, where, dict(made), name))
        columns = steps[-1].after
        made |= dict.fromkeys(steps[-1].schema, prompt.name)
    return steps


def check_tasks(prompt: Prompt, provider: Provider) -> None:
    """`ConfigError` where the provider cannot do what the prompt asks for."""
    if prompt.label_words:
        check_logprobs(provider.family, f"the prompt {prompt.name}: its [label_words]")
    if not is_local(provider.family):
        return
    from claimscore.pipeline.tasks import TASKS

    provider_class(provider.family).check_tasks([prompt.name])
    if not TASKS[prompt.name].takes(prompt.output):
        raise ConfigError(
            f"the prompt {prompt.name}: --llm {provider.family} needs its task's [output]"
        )


def _of_items(prompt: Prompt, columns: Columns, where: str) -> Columns:
    """The columns as the prompt is asked about them: of lists that it explodes, their items."""
    lists = columns.get(prompt.explode)
    if isinstance(lists, pl.List):
        return {**columns, prompt.explode: cast("pl.DataType", lists.inner)}
    if lists is not None or (prompt.explode and prompt.explode not in prompt.fields):
        raise ConfigError(
            f"prompt {prompt.name}: explode: {where} has no lists in a column {prompt.explode}; "
            "lists are those of answers, Parquet files and polars frames"
        )
    return columns


def _check_prompt(
    prompt: Prompt, columns: Columns, ours: Sequence[str], made: Mapping[str, str], where: str
) -> None:
    """`ConfigError` for columns that are missing, cannot be shown, or would be there twice."""
    name = f"prompt {prompt.name}"
    settings = prompt.settings
    if settings.samples > 1 or settings.texts_per_request > 1:
        raise ConfigError(
            f"{name}: map asks one question a row: settings.samples and "
            "settings.texts_per_request are for the tasks of a run"
        )
    prompt.check_fields(columns, f"{name} on {where}")
    if not prompt.fields:
        raise ConfigError(f"{name}: user names no $column, so every row would be asked the same")
    for field in sorted(prompt.fields):
        if isinstance(columns[field], pl.Binary):
            raise ConfigError(f"{where}: column {field} holds bytes, which no prompt can show")
    if any(column in prompt.columns for column in ours):
        raise ConfigError(f"{name}: [output] cannot have a column {' or '.join(ours)}")
    both = [column for column in (*prompt.columns, *ours) if column in columns]
    for column in (column for column in both if column in made):
        names = f"prompts {made[column]} and {prompt.name} both make a column {column}"
        hint = ", or set gather = true in one" if prompt.explode else ""
        raise ConfigError(f"{names}; rename it in [output] of one{hint}")
    if both:
        raise ConfigError(
            f"{where} has a column {' and '.join(both)} already, and so would the output; "
            f"rename it there{' or in [output] of the prompt' if both[0] in prompt.columns else ''}"
        )


def _as_texts(column: pl.Series) -> list[str]:
    """The values, none of which is null, as a prompt shows them."""
    dtype = column.dtype
    if isinstance(dtype, pl.String):
        return column.to_list()
    if dtype.is_nested():
        return [json.dumps(value, ensure_ascii=False, default=str) for value in column.to_list()]
    if isinstance(dtype, pl.Duration):
        return column.dt.to_string("iso").to_list()
    return column.cast(pl.String).to_list()


def _dtype(kind: Any) -> pl.DataType:
    """The type of a column for its kind in `[output]`."""
    scalar = scalar_of(kind)
    if scalar is not None:
        return _SCALARS[scalar]
    if isinstance(kind, list):
        return pl.List(_dtype(kind[0]))
    return pl.Struct({name: _dtype(inner) for name, inner in kind.items()})


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _integers(item)
    elif isinstance(value, int):
        yield value


def _valid(value: Any) -> Any:
    """Half of a surrogate pair, which a model may write and UTF-8 cannot, becomes `?`."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode()
    return value
