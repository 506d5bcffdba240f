"""The form of an answer: `[output]` of a prompt as a JSON schema and as a strict check.

A type is a name ("string", "number", "integer", "boolean"), a list of one type, or a table of named
types. A list of several texts or whole numbers is an enumeration, and a table such as
`{type = "number", minimum = 0, maximum = 1}` a range with its bounds. The answer is always one JSON
object with exactly these columns.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from claimscore.errors import ConfigError, ParseError
from claimscore.types import ANSWERS, JSON, TEXT_NUMBER, Completion

#: The types of single values, each with its name in pydantic's core.
_SCALARS = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"}

#: The bounds of a range, each with what pydantic calls it.
_BOUNDS = {"minimum": "ge", "maximum": "le"}

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


def scalar_of(kind: Any) -> str | None:
    """The scalar that a type has: its own, that of an enumeration's values or of a range; None for
    lists and tables."""
    if isinstance(kind, str):
        return kind if kind in _SCALARS else None
    if isinstance(kind, list) and len(kind) > 1:
        return {str: "string", int: "integer"}.get(type(kind[0]))
    return kind["type"] if _is_range(kind) else None


def _is_range(kind: Any) -> bool:
    bounds = [kind[name] for name in _BOUNDS if name in kind] if isinstance(kind, Mapping) else []
    numbers = bool(bounds) and all(type(bound) in (int, float) for bound in bounds)
    return numbers and {"type", *_BOUNDS} >= kind.keys() and kind.get("type") in _RANGED


_RANGED = ("number", "integer")


def _enumeration(kind: Sequence[Any], where: str) -> JSON:
    same = len({type(value) for value in kind}) == 1 and type(kind[0]) in (str, int)
    if not same or len(set(kind)) < len(kind) or not _SCALARS.keys().isdisjoint(kind):
        raise ConfigError(
            f"{where}: {list(kind)!r} is no enumeration: its values are texts, or whole numbers, "
            "each once, and no names of types"
        )
    return {"type": scalar_of(kind), "enum": list(kind)}


def _range(kind: Mapping[str, Any], where: str) -> JSON:
    low, high = kind.get("minimum", -math.inf), kind.get("maximum", math.inf)
    if not low <= high or any(math.isinf(kind[name]) for name in _BOUNDS if name in kind):
        raise ConfigError(f"{where}: no number is from {low} to {high}")
    return {"type": kind["type"], **{name: kind[name] for name in _BOUNDS if name in kind}}


def _type_schema(kind: Any, where: str) -> JSON:
    if isinstance(kind, str) and kind in _SCALARS:
        return {"type": kind}
    if isinstance(kind, list) and len(kind) > 1:
        return _enumeration(kind, where)
    if _is_range(kind):
        return _range(kind, where)
    if isinstance(kind, list) and len(kind) == 1:
        return {"type": "array", "items": _type_schema(kind[0], where)}
    if isinstance(kind, Mapping) and kind:
        return json_schema(kind, where)
    raise ConfigError(
        f"{where}: unknown type {kind!r}; a type is one of {', '.join(_SCALARS)}, "
        "a list of one type, a list of several values, a range {type, minimum, maximum}, or a "
        "table of types"
    )


class AnswerForm:
    """The form of an answer, which has exactly the columns of `output`."""

    def __init__(self, output: Mapping[str, Any]) -> None:
        from pydantic_core import SchemaValidator

        self._output = output
        self._validator = SchemaValidator(_core_schema(output))

    def parse(self, text: str) -> dict[str, Any]:
        """The columns of an answer.

        One code fence around the whole answer is taken off; nothing else is mended. Raises
        `ParseError` with the place and the reason.
        """
        from pydantic_core import ValidationError

        try:
            answer: dict[str, Any] = self._validator.validate_json(_unfenced(text))
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "answer"
            raise ParseError(f"{place}: {first['msg']}") from None
        return answer

    def parse_several(self, text: str) -> dict[int, dict[str, Any] | None]:
        """The columns of each text that is answered, by its number from 1; None where they are
        wrong.

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
        answers: dict[int, dict[str, Any] | None] = {}
        why = "no text is answered"
        for item in items:
            number = item.get(TEXT_NUMBER) if isinstance(item, dict) else None
            columns: dict[str, Any] | None = None
            try:
                columns = self._numbered.parse(json.dumps(item))
            except ParseError as exc:
                why = f"{ANSWERS}: {exc}"
            else:
                del columns[TEXT_NUMBER]
            if type(number) is not int:
                continue
            if number in answers:
                raise ParseError(f"text {number} is answered twice")
            answers[number] = columns
        if not any(columns is not None for columns in answers.values()):
            raise ParseError(why)
        return answers

    @functools.cached_property
    def _numbered(self) -> AnswerForm:
        return AnswerForm({TEXT_NUMBER: "integer", **self._output})


def _unfenced(text: str) -> str:
    body = text.strip()
    if not body:
        raise ParseError("the answer is empty")
    fenced = _FENCE.match(body)
    return fenced.group(1) if fenced else body


def of_several(output: Mapping[str, Any]) -> dict[str, Any]:
    """The `[output]` of a request about several texts, of which each has these columns."""
    return {ANSWERS: [{TEXT_NUMBER: "integer", **output}]}


def _core_schema(kind: Any) -> Any:
    from pydantic_core import core_schema

    scalar = scalar_of(kind)
    if isinstance(kind, list):
        return (
            core_schema.literal_schema(kind)
            if scalar
            else core_schema.list_schema(_core_schema(kind[0]))
        )
    if scalar is not None:
        given = kind if isinstance(kind, Mapping) else {}
        bounds = {bound: given[name] for name, bound in _BOUNDS.items() if name in given}
        return {"type": _SCALARS[scalar], **bounds}
    columns = {
        name: core_schema.typed_dict_field(_core_schema(column)) for name, column in kind.items()
    }
    strictly = core_schema.CoreConfig(
        strict=True, allow_inf_nan=False, extra_fields_behavior="forbid"
    )
    return core_schema.typed_dict_schema(columns, config=strictly)


# Answers of one word

#: The likeliest tokens that are asked for: a word has several spellings, and some servers give no
#: more.
TOP_LOGPROBS = 5

#: Signs around a word: of tokenizers, of quotations, of tags.
_AROUND = " \n\t\"'.,<>▁Ġ"


def plain_word(token: str) -> str:
    """A word or token without case and the signs around it."""
    return token.strip(_AROUND).lower()


def label_probabilities(words: Mapping[str, str], completion: Completion) -> dict[str, float]:
    """The probability of each label, from 0 to 1; together at most 1 but for rounding.

    That is the sum over the spellings of its word among the likeliest tokens at the first place
    whose token is one of the words. Raises `ParseError` where the answer says none of them, and
    where there are no log-probabilities of it alone: some servers give none, and after reasoning
    they are of the thoughts too.
    """
    if completion.reasoning or not completion.logprobs:
        raise ParseError(
            "the server gave no log-probabilities of the answer, and the prompt's [label_words] "
            "are read from them"
        )
    labels = {plain_word(word): label for label, word in words.items()}
    for place in completion.logprobs:
        if plain_word(place.token) in labels:
            sums = dict.fromkeys(words, 0.0)
            for token, logprob in dict([place[:2], *place.top]).items():
                if label := labels.get(plain_word(token)):
                    sums[label] += math.exp(min(logprob, 0.0))
            return {label: min(p, 1.0) for label, p in sums.items()}
    answer = completion.text.strip()[:80]
    raise ParseError(f"the answer is none of {', '.join(words.values())}: {answer!r}")
