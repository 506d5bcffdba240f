"""A prompt: what it says, how it is asked, what comes back, and which version it is."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import hashlib
import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from claimscore.errors import ConfigError, ParseError
from claimscore.prompts.output import AnswerForm, json_schema, label_probabilities, of_several
from claimscore.types import Completion, Message, OutputSchema

#: What a prompt and a version may be called: they stand in tables, signatures and paths.
NAME = r"\w[\w.+-]*"

#: The column of a prompt without `[output]`: the answer's text as it is.
ANSWER_COLUMN = "answer"

#: The most items of a list that a prompt is asked about, where it says nothing else.
MAX_ITEMS = 50

#: The temperature of several answers to a question where the prompt's is 0.
SAMPLED = 0.7

#: The placeholders of the text that is asked about, and of several, numbered, one a line.
TEXT_FIELD, TEXTS_FIELD = "text", "texts"


@dataclasses.dataclass(frozen=True)
class PromptSettings:
    """How a model is asked: temperature, top_p, the most tokens of an answer, and how often.

    An answer that is cut off at `max_tokens` is asked for again with twice as many, and twice
    again, up to `max_tokens_limit` (None: four times `max_tokens`).
    `samples` answers are asked for, each a request of its own. `texts_per_request` sentences or
    claims of one text are asked about at once. `extra` are JSON values by name that the server gets
    as they stand, but for texts that are a placeholder and nothing else (`$column`), which are
    filled in.
    """

    temperature: float = 0.0
    max_tokens: int = 256
    top_p: float = 1.0
    samples: int = 1
    texts_per_request: int = 1
    max_tokens_limit: int | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)


#: A text of `extra` that is filled in.
_PLACEHOLDER = re.compile(r"\$(?:([a-z_]\w*)|\{([a-z_]\w*)\})", re.ASCII | re.IGNORECASE)

#: Settings that came later: where they say nothing, digests are those from before.
_LATER: Mapping[str, Any] = {
    **{"samples": 1, "texts_per_request": 1, "max_tokens_limit": None},
    "extra": {},
}
#: Parts of a prompt that came later, likewise.
_LATER_PARTS: Mapping[str, Any] = {
    **{"role": "user", "label_words": {}},
    **{"explode": "", "max_items": MAX_ITEMS, "gather": False},
}


@dataclasses.dataclass(frozen=True)
class Prompt:
    """One version of one prompt.

    `user` is a `string.Template` (`$column`), because prompts are full of JSON braces; it is the
    last message, of the `role`. An answer has the columns of `output`, or those of `label_words`,
    each with the probability of its word, or is a text.
    `digest` is made of all that decides what is sent, so a forgotten version number cannot hide a
    change.

    A map asks about each item of the lists in the column `explode`, which may have `max_items`; to
    `gather` is to put the answers into lists again.
    """

    name: str
    version: str
    user: str
    role: Literal["user", "assistant"] = "user"
    system: str = ""
    settings: PromptSettings = PromptSettings()
    summary_settings: PromptSettings = PromptSettings()
    output: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    label_words: Mapping[str, str] = dataclasses.field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = ()
    changes: str = ""
    explode: str = ""
    max_items: int = MAX_ITEMS
    gather: bool = False

    @functools.cached_property
    def digest(self) -> str:
        """The first 12 hex digits of the SHA-256 of everything that decides what is sent."""
        content = dataclasses.asdict(self)
        for key in ("name", "version", "changes"):
            del content[key]
        for part, later in (
            (content, _LATER_PARTS),
            (content["settings"], _LATER),
            (content["summary_settings"], _LATER),
        ):
            for key, nothing in later.items():
                if part[key] == nothing:
                    del part[key]
        canonical = json.dumps(content, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @functools.cached_property
    def fields(self) -> frozenset[str]:
        """The names of the placeholders."""
        extras = self.settings.extra, self.summary_settings.extra
        return frozenset((*string.Template(self.user).get_identifiers(), *placeholders(extras)))

    @property
    def takes_several(self) -> bool:
        """Whether a request is about a list of texts (`$texts`), which may have one."""
        return TEXTS_FIELD in self.fields and self.settings.texts_per_request > 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of an answer, about each text where there are several."""
        return tuple(self.output or self.label_words) or (ANSWER_COLUMN,)

    @property
    def schema(self) -> OutputSchema | None:
        """The JSON schema that is asked for; None where the answer is plain text."""
        if not self.output:
            return None
        output = of_several(self.output) if self.takes_several else self.output
        return OutputSchema(self.name, json_schema(output, f"prompt {self.name}: output"))

    def sampled(self, n: int) -> Prompt:
        """The prompt with `n` answers to each question; several are at `SAMPLED` in place of 0."""
        if n == 1:
            return self
        of_sentence, of_summary = (
            dataclasses.replace(one, samples=n, temperature=one.temperature or SAMPLED)
            for one in (self.settings, self.summary_settings)
        )
        return dataclasses.replace(self, settings=of_sentence, summary_settings=of_summary)

    def check_fields(self, available: Iterable[str], where: str) -> None:
        """`ConfigError` for a placeholder that is not among `available`."""
        known = sorted(available)
        for field in sorted(self.fields.difference(known)):
            close = difflib.get_close_matches(field, known, n=1)
            hint = f"; did you mean ${close[0]}?" if close else ""
            raise ConfigError(
                f"{where}: the prompt uses ${field}, which is not there{hint} "
                f"(there is: {', '.join('$' + name for name in known) or 'nothing'})"
            )

    def render(self, fields: Mapping[str, str]) -> tuple[Message, ...]:
        """The conversation for one row. A missing or an unknown field raises `ConfigError`."""
        if self.fields != fields.keys():
            missing = sorted(self.fields - fields.keys())
            unknown = sorted(fields.keys() - self.fields)
            raise ConfigError(
                f"prompt {self.name} {self.version}: missing fields {missing}, unknown {unknown}"
            )
        turns = [Message("system", self.system)] if self.system else []
        for user, assistant in self.examples:
            turns += [Message("user", user), Message("assistant", assistant)]
        turns.append(Message(self.role, string.Template(self.user).substitute(fields)))
        return tuple(turns)

    def read(self, completion: Completion) -> dict[str, Any]:
        """The columns of an answer; `ParseError` where it is not what was asked for."""
        if self.label_words:
            return dict(label_probabilities(self.label_words, completion))
        return self.parse(completion.text)

    def parse(self, text: str) -> dict[str, Any]:
        """The columns of an answer's text; raises as `read`, which reads label words too."""
        if self.output:
            return self._form.parse(text)
        answer = text.strip()
        if not answer:
            raise ParseError("the answer is empty")
        return {ANSWER_COLUMN: answer}

    @functools.cached_property
    def _form(self) -> AnswerForm:
        return AnswerForm(self.output)

    def example_answers(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """Of each example the user's turn and the columns of its answer, several where it is about
        several texts; none where it is not an answer that could be used."""
        return [(user, list(self._example(assistant))) for user, assistant in self.examples]

    def _example(self, answer: str) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(ParseError):
            if self.takes_several:
                yield from (columns for columns in self.parse_several(answer).values() if columns)
            else:
                yield self.parse(answer)

    def parse_several(self, text: str) -> dict[int, dict[str, Any] | None]:
        """The columns of each text that is answered, by its number from 1; see `AnswerForm`."""
        return self._form.parse_several(text)


def numbered(texts: Sequence[str]) -> str:
    """The texts as they stand for `$texts`: one a line, `1. ...`; line breaks become spaces."""
    return "\n".join(f"{n}. {' '.join(text.split())}" for n, text in enumerate(texts, start=1))


def filled(value: Any, fields: Mapping[str, str]) -> Any:
    """The JSON value with each text in it that is a placeholder and nothing else filled in."""
    if isinstance(value, Mapping):
        return {name: filled(item, fields) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, fields) for item in value]
    name = _placeholder(value)
    return fields[name] if name else value


def placeholders(value: Any) -> Iterator[str]:
    """The names of the placeholders that `filled` fills in."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from placeholders(item)
    elif name := _placeholder(value):
        yield name


def _placeholder(value: Any) -> str:
    match = _PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
    return (match[1] or match[2]) if match else ""
