"""A prompt: what it says, how it is asked, what comes back, and which version it is."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import re
import string
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from claimscore.config import read_toml
from claimscore.errors import ConfigError, ParseError
from claimscore.prompts.output import json_schema, parse_answer
from claimscore.types import Message, OutputSchema

#: The column of a prompt without `[output]`: the answer's text as it is.
ANSWER_COLUMN = "answer"

_KEYS = {"name", "version", "changes", "system", "user", "settings", "output", "examples"}
_VERSION_NUMBER = re.compile(r"v(\d+)\Z")


@dataclasses.dataclass(frozen=True)
class PromptSettings:
    """How a model is asked: sampling temperature, top_p, and the most tokens of an answer."""

    temperature: float = 0.0
    max_tokens: int = 256
    top_p: float = 1.0


@dataclasses.dataclass(frozen=True)
class Prompt:
    """One version of one prompt.

    `user` is a `string.Template` (`$column`), because prompts are full of JSON braces.
    `digest` is made of all that is sent, so a forgotten version number cannot hide a change.
    """

    name: str
    version: str
    user: str
    system: str = ""
    settings: PromptSettings = PromptSettings()
    summary_settings: PromptSettings = PromptSettings()
    output: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = ()
    changes: str = ""

    @property
    def digest(self) -> str:
        """The first 12 hex digits of the SHA-256 of everything that is sent."""
        content = dataclasses.asdict(self)
        for key in ("name", "version", "changes"):
            del content[key]
        canonical = json.dumps(content, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def fields(self) -> frozenset[str]:
        """The names of the placeholders."""
        return frozenset(string.Template(self.user).get_identifiers())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of an answer."""
        return tuple(self.output) or (ANSWER_COLUMN,)

    @property
    def schema(self) -> OutputSchema | None:
        """The JSON schema that is asked for; None where the answer is plain text."""
        if not self.output:
            return None
        return OutputSchema(self.name, json_schema(self.output, f"prompt {self.name}: output"))

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

    def render(self, **fields: str) -> tuple[Message, ...]:
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
        turns.append(Message("user", string.Template(self.user).substitute(fields)))
        return tuple(turns)

    def parse(self, text: str) -> dict[str, Any]:
        """The columns of an answer; `ParseError` where it is not what was asked for."""
        if self.output:
            return parse_answer(text, self.output)
        if not text.strip():
            raise ParseError("the answer is empty")
        return {ANSWER_COLUMN: text.strip()}


def prompt_names() -> list[str]:
    """The tasks that have prompts in the package."""
    root = resources.files("claimscore.prompts")
    return sorted(
        entry.name
        for entry in root.iterdir()
        if entry.is_dir() and any(file.name.endswith(".toml") for file in entry.iterdir())
    )


def available_versions(name: str, prompts_dir: Path | None = None) -> list[str]:
    """Versions of a prompt, the package's and the user's folder's, oldest first."""
    found = {
        file.name.removesuffix(".toml")
        for folder in _folders(name, prompts_dir)
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    }
    return sorted(found, key=_version_order)


def load_prompt(name: str, version: str = "v1", prompts_dir: Path | None = None) -> Prompt:
    """A task's prompt by version, or by the path of a TOML file (`version`, or `name` alone).

    The user's folder goes before the package. `ConfigError` where there is none, or where it
    is broken.
    """
    for given in (name, version):
        if given.endswith(".toml"):
            return load_prompt_file(Path(given))
    with resources.as_file(_find(name, version, prompts_dir)) as path:
        return load_prompt_file(path)


def prompt_source(name: str, version: str = "v1", prompts_dir: Path | None = None) -> str:
    """The TOML text of a task's prompt, to be copied and changed; errors as `load_prompt`."""
    text: str = _find(name, version, prompts_dir).read_text(encoding="utf-8")
    return text


def _find(name: str, version: str, prompts_dir: Path | None) -> Any:
    """The file of a prompt, in the package or in the user's folder."""
    if Path(version).suffix or len(Path(version).parts) != 1:
        raise ConfigError(f"{version}: a prompt file must end in .toml; a version is like v1")
    for folder in _folders(name, prompts_dir):
        file = folder / f"{version}.toml"
        if file.is_file():
            return file
    known = available_versions(name, prompts_dir)
    raise ConfigError(
        f"there is no prompt {name}={version}; "
        + (f"versions of {name}: {', '.join(known)}" if known else f"tasks: {_known_names()}")
    )


def load_prompt_file(path: Path) -> Prompt:
    """One prompt file, checked; `ConfigError` names the file and what is wrong in it."""
    content = read_toml(path)
    where = str(path)
    _refuse_unknown_keys(content, _KEYS, where)
    output = _table(content, "output", where)
    json_schema(output, f"{where}: output")
    user = _text(content, "user", where)
    if not string.Template(user).is_valid():
        raise ConfigError(f"{where}: user has a lone $; write $$ for a dollar sign")
    settings = dict(_table(content, "settings", where))
    for_summary = {**settings, **settings.pop("summary", {})}
    for_summary.pop("summary", None)
    return Prompt(
        name=_text(content, "name", where),
        version=_text(content, "version", where),
        system=_text(content, "system", where, default="").strip(),
        user=user.removeprefix("\n"),
        settings=_settings(settings, where),
        summary_settings=_settings(for_summary, where),
        output=output,
        examples=tuple(_example(item, where) for item in content.get("examples", [])),
        changes=_text(content, "changes", where, default=""),
    )


def _folders(name: str, prompts_dir: Path | None) -> list[Any]:
    ours = resources.files("claimscore.prompts").joinpath(name)
    return [prompts_dir / name, ours] if prompts_dir else [ours]


def _known_names() -> str:
    return ", ".join(prompt_names())


def _version_order(version: str) -> tuple[int, str]:
    number = _VERSION_NUMBER.match(version)
    return (int(number.group(1)) if number else 1_000_000, version)


def _refuse_unknown_keys(content: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in content:
        if key not in known:
            raise ConfigError(
                f"{where}: unknown key {key!r}; known keys: {', '.join(sorted(known))}"
            )


def _text(content: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = content.get(key, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise ConfigError(f"{where}: {key} must be a text")
    return value


def _table(content: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: [{key}] must be a table")
    return value


def _settings(values: Mapping[str, Any], where: str) -> PromptSettings:
    _refuse_unknown_keys(values, {"temperature", "max_tokens", "top_p"}, f"{where}: settings")
    for key, value in values.items():
        allowed = int if key == "max_tokens" else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed) or value < 0:
            raise ConfigError(f"{where}: settings.{key} must be a number, zero or above")
    settings = PromptSettings(**values)
    if settings.max_tokens < 1:
        raise ConfigError(f"{where}: settings.max_tokens must be at least 1")
    return dataclasses.replace(
        settings, temperature=float(settings.temperature), top_p=float(settings.top_p)
    )


def _example(item: Any, where: str) -> tuple[str, str]:
    if not isinstance(item, dict) or set(item) != {"user", "assistant"}:
        raise ConfigError(f"{where}: each of [[examples]] has exactly `user` and `assistant`")
    return _text(item, "user", where), _text(item, "assistant", where)
