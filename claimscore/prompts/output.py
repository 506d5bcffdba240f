"""The form of an answer: `[output]` of a prompt as a JSON schema and as a strict check.

A type is a name ("string", "number", "integer", "boolean"), a list of one type, or a
table of named types; the answer is always one JSON object with exactly these columns.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from claimscore.errors import ConfigError, ParseError
from claimscore.types import ANSWERS, JSON, TEXT_NUMBER

_SCALARS: dict[str, tuple[JSON, type]] = {
    "string": ({"type": "string"}, str),
    "number": ({"type": "number"}, float),
    "integer": ({"type": "integer"}, int),
    "boolean": ({"type": "boolean"}, bool),
}

_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)


def json_schema(output: Mapping[str, Any], where: str) -> JSON:
    """The JSON schema of the object; `ConfigError` naming `where` for an unknown type."""
    return {
        "type": "object",
        "properties": {
            name: _type_schema(kind, f"{where}.{name}") for name, kind in output.items()
        },
        "required": list(output),
        "additionalProperties": False,
    }


def _type_schema(kind: Any, where: str) -> JSON:
    if isinstance(kind, str) and kind in _SCALARS:
        return dict(_SCALARS[kind][0])
    if isinstance(kind, list) and len(kind) == 1:
        return {"type": "array", "items": _type_schema(kind[0], where)}
    if isinstance(kind, Mapping) and kind:
        return json_schema(kind, where)
    raise ConfigError(
        f"{where}: unknown type {kind!r}; a type is one of {', '.join(_SCALARS)}, "
        "a list of one type, or a table of types"
    )


def parse_answer(text: str, output: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as a dict of exactly the columns of `output`.

    One code fence around the whole answer is taken off; nothing else is mended.
    Raises `ParseError` with the place and the reason.
    """
    from pydantic import ValidationError

    body = _unfenced(text)
    try:
        parsed = _model(json.dumps(output)).model_validate_json(body, strict=True)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "answer"
        raise ParseError(f"{place}: {first['msg']}") from None
    answer: dict[str, Any] = parsed.model_dump(by_alias=True)
    return answer


def _unfenced(text: str) -> str:
    body = text.strip()
    if not body:
        raise ParseError("the answer is empty")
    fenced = _FENCE.match(body)
    return fenced.group(1) if fenced else body


def of_several(output: Mapping[str, Any]) -> dict[str, Any]:
    """The `[output]` of a request about several texts, of which each has these columns."""
    return {ANSWERS: [{TEXT_NUMBER: "integer", **output}]}


def parse_answers(text: str, output: Mapping[str, Any]) -> dict[int, dict[str, Any] | None]:
    """The columns of each text that is answered, by its number from 1; None where they are wrong.

    What is said of one text does not depend on the others. Raises `ParseError` where nothing is
    right, or two items are about one text.
    """
    try:
        answer = json.loads(_unfenced(text))
    except (ValueError, RecursionError) as exc:
        raise ParseError(f"answer: Invalid JSON: {exc}") from None
    items = answer.get(ANSWERS) if isinstance(answer, dict) and len(answer) == 1 else None
    if not isinstance(items, list):
        raise ParseError(f'the answer must be {{"{ANSWERS}": [...]}}')
    found: dict[int, dict[str, Any] | None] = {}
    why = "no text is answered"
    for item in items:
        number = item.get(TEXT_NUMBER) if isinstance(item, dict) else None
        columns: dict[str, Any] | None = None
        try:
            columns = parse_answer(json.dumps(item), {TEXT_NUMBER: "integer", **output})
        except ParseError as exc:
            why = f"{ANSWERS}: {exc}"
        else:
            del columns[TEXT_NUMBER]
        if type(number) is not int:
            continue
        if number in found:
            raise ParseError(f"text {number} is answered twice")
        found[number] = columns
    if not any(columns is not None for columns in found.values()):
        raise ParseError(why)
    return found


@functools.lru_cache(maxsize=256)
def _model(output: str) -> Any:
    """A strict pydantic model of the output columns (given as JSON, so that it can be kept)."""
    return _pydantic_model("Answer", json.loads(output))


def _pydantic_model(name: str, columns: Mapping[str, Any]) -> Any:
    import pydantic

    config = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    # Columns may have names that pydantic reserves ("json", "copy"): they go in as aliases.
    fields: Any = {
        f"column_{index}": (
            _pydantic_type(f"{name}_{index}", kind),
            pydantic.Field(alias=column, serialization_alias=column),
        )
        for index, (column, kind) in enumerate(columns.items())
    }
    return pydantic.create_model(name, __config__=config, **fields)


def _pydantic_type(name: str, kind: Any) -> Any:
    if isinstance(kind, str):
        return _SCALARS[kind][1]
    if isinstance(kind, list):
        return list[_pydantic_type(name, kind[0])]  # type: ignore[misc]  # built at run time
    return _pydantic_model(name, kind)
