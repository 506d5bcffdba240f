"""What may stand in a prompt file, as pydantic checks it."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from claimscore.config import extra_problem, read_toml
from claimscore.errors import ConfigError
from claimscore.prompts.output import json_schema, plain_word
from claimscore.prompts.prompt import MAX_ITEMS, NAME, TEXTS_FIELD, Prompt, PromptSettings


def _template(text: str) -> str:
    if not text.strip():
        raise ValueError("must be a text")
    if not string.Template(text).is_valid():
        raise ValueError("has a lone $; write $$ for a dollar sign")
    return text


def _extra(values: dict[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        if problem := extra_problem(name, value):
            raise ValueError(f"{name}: {problem}")
    return values


def _output(columns: dict[str, Any]) -> dict[str, Any]:
    try:
        json_schema(columns, "output")
    except ConfigError as exc:
        raise ValueError(str(exc)) from None
    return columns


def _label_words(words: dict[str, str]) -> dict[str, str]:
    plain = [plain_word(word) for word in words.values()]
    if len(words) < 2 or not all(plain) or len(set(plain)) < len(plain):
        raise ValueError("must be two labels or more, each with a word that differs beyond case")
    return words


_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]
_Name = Annotated[str, Field(pattern=f"^{NAME}$")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Settings(_Table):
    """`[settings]`; what a file leaves out is as in `PromptSettings`."""

    temperature: _Number = PromptSettings.temperature
    max_tokens: _Count = PromptSettings.max_tokens
    top_p: _Number = PromptSettings.top_p
    samples: _Count = PromptSettings.samples
    texts_per_request: _Count = PromptSettings.texts_per_request
    max_tokens_limit: _Count | None = PromptSettings.max_tokens_limit
    extra: Annotated[dict[str, Any], AfterValidator(_extra)] = {}

    def given(self) -> dict[str, Any]:
        """The settings that the file has."""
        return self.model_dump(exclude_unset=True, exclude={"summary"})


class _AllSettings(_Settings):
    summary: _Settings = _Settings()


class _Example(_Table):
    user: str
    assistant: str


class _File(_Table):
    name: _Name
    version: _Name
    user: Annotated[str, AfterValidator(_template)]
    role: Literal["user", "assistant"] = "user"
    system: str = ""
    changes: str = ""
    settings: _AllSettings = _AllSettings()
    output: Annotated[dict[str, Any], AfterValidator(_output)] = {}
    label_words: Annotated[dict[_Name, str], AfterValidator(_label_words)] = {}
    examples: list[_Example] = []
    explode: str = ""
    max_items: _Count = MAX_ITEMS
    gather: bool = False

    def prompt(self) -> Prompt:
        settings, for_summary = self.settings.given(), self.settings.summary.given()
        limit = {"max_tokens_limit": None} if "max_tokens" in for_summary else {}
        return Prompt(  # the limit goes with the number that it is a limit of
            name=self.name,
            version=self.version,
            system=self.system.strip(),
            user=self.user.removeprefix("\n"),
            role=self.role,
            settings=PromptSettings(**settings),
            summary_settings=PromptSettings(**settings | limit | for_summary),
            output=self.output,
            label_words=self.label_words,
            examples=tuple((item.user, item.assistant) for item in self.examples),
            changes=self.changes,
            explode=self.explode,
            max_items=self.max_items,
            gather=self.gather,
        )


def read_prompt_file(path: Path) -> Prompt:
    """One prompt file, checked; `ConfigError` names the file and the keys that are wrong."""
    try:
        prompt = _File.model_validate(read_toml(path)).prompt()
    except ValidationError as exc:
        problems = [
            f"{'.'.join(map(str, error['loc']))}: {error['msg'].removeprefix('Value error, ')}"
            for error in exc.errors(include_url=False, include_input=False, include_context=False)
        ]
    else:
        problems = list(_misfits(prompt))
    if not problems:
        return prompt
    raise ConfigError("\n  ".join(f"{path}: {problem}" for problem in problems))


def _misfits(prompt: Prompt) -> Iterator[str]:
    """Why values do not go together, each with its key."""
    for settings, where in (
        (prompt.settings, "settings"),
        (prompt.summary_settings, "settings.summary"),
    ):
        limit, first = settings.max_tokens_limit, settings.max_tokens
        if limit is not None and limit < first:
            yield f"{where}.max_tokens_limit: {limit} is below max_tokens = {first}"
        if settings.samples > 1 and not settings.temperature > 0:
            yield (
                f"{where}.samples: at temperature 0 all {settings.samples} would be the same "
                "answer; set a temperature"
            )
    several = prompt.settings.texts_per_request > 1
    if several != (TEXTS_FIELD in prompt.fields):
        yield (
            "user: settings.texts_per_request above 1 and $texts go together: several texts, "
            "numbered, in the place of $text"
        )
    if several and not prompt.output:
        yield "user: $texts needs [output]: the columns of the answer about each text"
    if prompt.explode and prompt.explode not in prompt.fields:
        yield f"explode: user never shows ${prompt.explode}, so all items would be asked the same"
    if not prompt.explode and (prompt.gather or prompt.max_items != MAX_ITEMS):
        yield "gather, max_items: they go with explode, which names a column of lists"
    if prompt.output and prompt.label_words:
        yield "label_words: the answer is one word, so there is no [output]"
