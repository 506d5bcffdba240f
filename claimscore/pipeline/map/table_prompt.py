"""A prompt and a table: one request a row, and the answers as typed columns. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.errors import ConfigError, ParseError
from claimscore.pipeline.llm.providers.base import (
    Provider,
    check_logprobs,
    extra_params,
    is_local,
    provider_class,
)
from claimscore.pipeline.llm.question import Answer
from claimscore.prompts import Prompt
from claimscore.prompts.output import TOP_LOGPROBS, scalar_of
from claimscore.prompts.prompt import filled, placeholders
from claimscore.tables import FAILURES
from claimscore.types import Completion, Failure, Message, Request, SimilarRequests

#: Columns of every row beside the input's and the prompt's own.
KEY_COLUMN, ERROR_COLUMN = "request_key", "error"

#: The stage of map's rows in the table of failures.
STAGE = "map"

_SCALARS: dict[str, pl.DataType] = {
    "string": pl.String(),
    "number": pl.Float64(),
    "integer": pl.Int64(),
    "boolean": pl.Boolean(),
}
_I64 = 2**63

RowOutcome = Answer[Any] | Failure


class RowRequests(NamedTuple):
    """The requests of a frame, the positions of their rows, and the rows that have no request."""

    rows: list[int]
    requests: Sequence[Request]
    failures: dict[int, Failure]


class RowAnswers(NamedTuple):
    """The columns that are added to a frame's rows, and the rows' entries in `failures`."""

    columns: pl.DataFrame
    failures: pl.DataFrame


class TablePrompt:
    """Makes requests of a table's rows with one prompt, and columns of their answers.

    `ConfigError`, before anything is spent, where the prompt does not fit the columns of the
    table, which messages call `where`. `schema` has the columns that are added.

    Values other than text are written as polars writes them (dates by ISO 8601, `true`, `1.5`),
    lists and structs as JSON. A row with a null in a column that the prompt uses is a failure
    without a request.
    """

    def __init__(self, prompt: Prompt, columns: Mapping[str, pl.DataType], where: str) -> None:
        _check_prompt(prompt, columns, where)
        self.prompt = prompt
        answers = {name: _dtype(kind) for name, kind in prompt.output.items()}
        answers |= dict.fromkeys(prompt.label_words, pl.Float64())
        self.schema: dict[str, pl.DataType] = {
            **(answers or dict.fromkeys(prompt.columns, pl.String())),
            KEY_COLUMN: pl.String(),
            ERROR_COLUMN: pl.String(),
        }
        self._fields = sorted(prompt.fields)
        self._output = prompt.schema
        *before, last = prompt.render({field: f"\0{field}\0" for field in self._fields})
        self._before = tuple(before)
        # Text, column, text, column ... text: several times faster than a template.
        self._pieces = last.content.split("\0")
        self._checks_integers = "integer" in json.dumps(prompt.output)

    def requests(self, frame: pl.DataFrame, provider: Provider) -> RowRequests:
        """A request for each row whose columns all have a value."""
        failures = {
            row: Failure("null_input", f"column {field} is null", 0)
            for field in reversed(self._fields)  # of several the first one is named
            for row in frame[field].is_null().arg_true()
        }
        rows = [row for row in range(frame.height) if row not in failures]
        asked = frame[rows] if failures else frame
        texts = {field: _as_texts(asked[field]) for field in self._fields}
        parts = [
            texts[piece] if number % 2 else itertools.repeat(piece)
            for number, piece in enumerate(self._pieces)
        ]
        contents = list(map("".join, zip(*parts, strict=False)))
        settings = self.prompt.settings
        template = Request(
            provider=provider.family,
            namespace=provider.namespace,
            model=provider.model,
            messages=(*self._before, Message(self.prompt.role, "")),
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            top_p=settings.top_p,
            output=self._output,
            top_logprobs=TOP_LOGPROBS if self.prompt.label_words else 0,
            extra=extra_params(provider, settings.extra),
        )
        requests: Sequence[Request] = SimilarRequests(template, contents, texts)
        if any(placeholders(settings.extra)):
            of_rows = zip(*texts.values(), strict=True)
            extras = (filled(settings.extra, dict(zip(texts, row, strict=True))) for row in of_rows)
            requests = [
                dataclasses.replace(request, extra=extra_params(provider, extra))
                for request, extra in zip(requests, extras, strict=True)
            ]
        return RowRequests(rows, requests, failures)

    def parse(self, completion: Completion) -> dict[str, Any]:
        """The values of an answer by column; `ParseError` where a column could not hold one."""
        answer = self.prompt.read(completion)
        if self._checks_integers and any(not -_I64 <= n < _I64 for n in _integers(answer)):
            raise ParseError("an integer has more than 64 bits")
        return answer

    def answers(self, outcomes: Sequence[RowOutcome], first: int) -> RowAnswers:
        """The outcomes of rows as tables; `first` is the number of the first row, from 0."""
        failures = [
            _failure_row(number, outcome)
            for number, outcome in enumerate(outcomes, start=first)
            if isinstance(outcome, Failure)
        ]
        values = dict(zip(self.schema, self._values(outcomes), strict=True))
        return RowAnswers(pl.DataFrame(values, schema=self.schema), FAILURES.frame(failures))

    def _values(self, outcomes: Sequence[RowOutcome]) -> Iterator[list[Any]]:
        answers = [None if isinstance(outcome, Failure) else outcome for outcome in outcomes]
        for name in self.prompt.columns:
            yield [None if answer is None else _valid(answer.value[name]) for answer in answers]
        yield [o.request_key if isinstance(o, Failure) else o.key for o in outcomes]
        yield [_valid(o.message) if isinstance(o, Failure) else None for o in outcomes]


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


def _check_prompt(prompt: Prompt, columns: Mapping[str, pl.DataType], where: str) -> None:
    """`ConfigError` for columns that are missing, cannot be shown, or would be there twice."""
    name = f"prompt {prompt.name}"
    settings = prompt.settings
    if settings.samples > 1 or settings.texts_per_request > 1:
        raise ConfigError(
            f"{name}: map asks one question a row: settings.samples and "
            "settings.texts_per_request are for the tasks of a run"
        )
    prompt.check_fields(columns, f"{name} on {where}")
    if "\0" in prompt.user:
        raise ConfigError(f"{name}: user holds a NUL character")
    if not prompt.fields:
        raise ConfigError(f"{name}: user names no $column, so every row would be asked the same")
    for field in sorted(prompt.fields):
        if isinstance(columns[field], pl.Binary):
            raise ConfigError(f"{where}: column {field} holds bytes, which no prompt can show")
    made = (*prompt.columns, KEY_COLUMN, ERROR_COLUMN)
    if len(set(made)) < len(made):
        raise ConfigError(f"{name}: [output] cannot have a column {KEY_COLUMN} or {ERROR_COLUMN}")
    both = [column for column in made if column in columns]
    if both:
        raise ConfigError(
            f"{where} has a column {' and '.join(both)} already, and so would the output; "
            f"rename it there{'' if both[0] in made[-2:] else ' or in [output] of the prompt'}"
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


def _failure_row(row: int, failure: Failure) -> dict[str, Any]:
    values = {name: _valid(value) for name, value in dataclasses.asdict(failure).items()}
    return {"id": str(row), "stage": STAGE, **values}
