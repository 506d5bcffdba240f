"""Prompt files: read, checked, with what they inherit. Errors name file and line."""

from __future__ import annotations

import dataclasses
import json
import re
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from claimscore.config import extra_problem, read_toml
from claimscore.errors import ConfigError
from claimscore.prompts.output import json_schema
from claimscore.prompts.prompt import TEXTS_FIELD, Prompt, PromptSettings

#: The keys of a file, with the type of each and what is said of another.
_KEYS: dict[str, tuple[type, str]] = {
    **dict.fromkeys(
        ("name", "version", "inherits", "changes", "system", "user"), (str, "must be a text")
    ),
    **dict.fromkeys(("settings", "output"), (dict, "must be a table")),
    "examples": (list, "are tables, each under [[examples]]"),
}
_SETTINGS = {field.name: field for field in dataclasses.fields(PromptSettings)}
_WHOLE = {"max_tokens", "max_tokens_limit", "samples", "texts_per_request"}
#: What a prompt and a version may be called.
NAME = re.compile(r"\w[\w.+-]*")
_FAMILIES = ("openai:", "openai-batch:", "builtin")

#: Says which file a version of a task is: task, version, the file that asks for it.
Find = Callable[[str, str, Path], Path]


@dataclasses.dataclass(frozen=True, slots=True)
class _File:
    """One file as it stands, checked by itself."""

    path: Path
    text: str
    content: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> _File:
        content = read_toml(path)
        file = cls(path, path.read_text(encoding="utf-8"), content)
        _check(content, file)
        return file

    def error(self, message: str, *key: str) -> ConfigError:
        """A refusal that names the file, and the line of the key where it can be found."""
        line = line_of(self.text, *key) if key else None
        return ConfigError(f"{self.path}{f', line {line}' if line else ''}: {message}")


# -- what one file says


def _check(content: Mapping[str, Any], file: _File) -> None:
    """`ConfigError` for a key that is not known, or what cannot stand under one that is."""
    for key, value in content.items():
        if key not in _KEYS:
            known = ", ".join(sorted(_KEYS))
            raise file.error(f"unknown key {key!r}; known keys: {known}", key)
        kind, wrong = _KEYS[key]
        if not isinstance(value, kind):
            raise file.error(f"{f'[{key}]' if kind is dict else key} {wrong}", key)
    for key in ("name", "version"):
        if content.get(key, "").strip() and not NAME.fullmatch(content[key]):
            raise file.error(
                f"{key} = {json.dumps(content[key])}: it stands in tables and signatures, so it is "
                "of letters, digits and . _ + - alone, and begins with a letter or digit",
                key,
            )
    if "inherits" in content:
        _check_spec(content["inherits"], file)
    _check_settings(content, file)
    try:
        json_schema(content.get("output", {}), f"{file.path}: output")
    except ConfigError as exc:
        raise file.error(str(exc).removeprefix(f"{file.path}: "), "output") from None
    if not string.Template(content.get("user", "")).is_valid():
        raise file.error("user has a lone $; write $$ for a dollar sign", "user")
    for item in content.get("examples", []):
        texts = isinstance(item, dict) and all(isinstance(text, str) for text in item.values())
        if not texts or set(item) != {"user", "assistant"}:
            raise file.error(
                "each of [[examples]] has exactly `user` and `assistant`, both texts", "examples"
            )


def _check_spec(spec: str, file: _File) -> None:
    if not spec.endswith(".toml") and ("/" in spec or not spec.rpartition("=")[2].strip()):
        raise file.error(
            f'inherits = "{spec}": name a version ("v1"), a prompt ("TASK=v1") or a file '
            'ending in .toml ("base.toml")',
            "inherits",
        )


def _check_settings(content: Mapping[str, Any], file: _File) -> None:
    settings = content.get("settings", {})
    for_summary = settings.get("summary", {})
    if not isinstance(for_summary, dict):
        raise file.error("[settings.summary] must be a table", "settings", "summary")
    for values, where in ((settings, ("settings",)), (for_summary, ("settings", "summary"))):
        for key, value in values.items():
            if key == "summary" and values is settings:
                continue
            if key not in _SETTINGS:
                known = ", ".join((*_SETTINGS, "summary")[: None if values is settings else -1])
                raise file.error(f"settings: unknown key {key!r}; known keys: {known}", *where, key)
            _check_setting(key, value, file, (*where, key))


def _check_setting(key: str, value: Any, file: _File, where: tuple[str, ...]) -> None:
    name = ".".join(where)
    if key == "extra":
        if not isinstance(value, dict):
            raise file.error(f"[{name}] must be a table", *where)
        for param, item in value.items():
            if problem := extra_problem(param, item):
                raise file.error(f"{name}.{param}: {problem}", *where, param)
        return
    if key == "model":
        if not isinstance(value, str) or not value.strip() or value.startswith(_FAMILIES):
            raise file.error(
                f"{name} must be the model's name at the server of --llm, without openai:, "
                f"not {value!r}",
                *where,
            )
        return
    allowed: Any = int if key in _WHOLE else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed) or not 0 <= value < float("inf"):
        raise file.error(f"{name} must be a number, zero or above", *where)
    if key in _WHOLE and value < 1:
        raise file.error(f"{name} must be at least 1", *where)


# -- a file with what it inherits


def read_prompt(path: Path, find: Find, task: str | None = None) -> Prompt:
    """The prompt in a file, with all that it inherits; `ConfigError` where it is broken.

    `task` is what it is asked for, where that is known: it need not be named in a file that
    inherits. A file that inherits needs no version either, and then has its own name.
    """
    chain = _chain(path, find, task)
    file, content = chain[0][0], chain[-1][0].content
    for heir, own in reversed(chain[:-1]):
        _refuse_other_task(heir, content.get("name", own), own)
        content = _merged(content, heir.content)
    if "inherits" in content:
        content = {"version": path.stem, **content}
    for key in ("name", "version", "user"):
        if not content.get(key, "").strip():
            raise file.error(f"{key} must be a text", key)
    settings = dict(content.get("settings", {}))
    own_limits = settings.pop("summary", {})
    for_summary = {**settings, **own_limits}
    if "max_tokens" in own_limits:  # the limit goes with the number that it is a limit of
        for_summary["max_tokens_limit"] = own_limits.get("max_tokens_limit")
    prompt = Prompt(
        name=content["name"],
        version=content["version"],
        system=content.get("system", "").strip(),
        user=content["user"].removeprefix("\n"),
        settings=_settings(settings),
        summary_settings=_settings(for_summary),
        output=content.get("output", {}),
        examples=tuple((item["user"], item["assistant"]) for item in content.get("examples", [])),
        changes=content.get("changes", ""),
    )
    _check_whole(prompt, file)
    return prompt


def parents(path: Path, find: Find, task: str | None = None) -> list[Path]:
    """The files that a file takes from, nearest first."""
    return [file.path for file, _ in _chain(path, find, task)[1:]]


def _chain(path: Path, find: Find, task: str | None) -> list[tuple[_File, str | None]]:
    """A file and those that it inherits from, each with the task that it is for, if it is known."""
    chain: list[tuple[_File, str | None]] = []
    while True:
        seen = [file.path for file, _ in chain]
        if path.resolve() in [other.resolve() for other in seen]:
            ring = " inherits ".join(map(str, (*seen, path)))
            raise ConfigError(f"prompts inherit from each other in a ring: {ring}")
        file = _File.read(path)
        spec = file.content.get("inherits", "")
        named, _, version = spec.rpartition("=")
        task = file.content.get("name") or task or named or None
        chain.append((file, task))
        if not spec:
            return chain
        if spec.endswith(".toml"):
            path = path.parent / spec
        elif task is None:
            raise file.error(
                f'inherits = "{spec}": of which prompt? Say name = "..." or inherits = '
                f'"TASK={spec}"',
                "inherits",
            )
        else:
            _refuse_other_task(file, named or task, task)
            try:
                path = find(task, version, path)
            except ConfigError as exc:
                raise file.error(f'inherits = "{spec}": {exc}', "inherits") from None
        if not path.is_file():
            raise file.error(f'inherits = "{spec}": there is no such file: {path}', "inherits")


def _refuse_other_task(file: _File, parents: str | None, own: str | None) -> None:
    if own is not None and parents != own:
        raise file.error(
            f'inherits = "{file.content["inherits"]}": that is a prompt of another task '
            f"({parents}, and this one is for {own}); inherit from one of {own}",
            "inherits",
        )


def _merged(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    """Every field that the child has, else the parent's; settings one by one."""
    merged = {**{k: v for k, v in parent.items() if k not in ("version", "changes")}, **child}
    ours, theirs = child.get("settings", {}), parent.get("settings", {})
    for_summary = {**theirs.get("summary", {}), **ours.get("summary", {})}
    merged["settings"] = {**theirs, **ours, **({"summary": for_summary} if for_summary else {})}
    return merged


def _check_whole(prompt: Prompt, file: _File) -> None:
    """Check the values that must fit each other."""
    for settings, *where in (
        (prompt.settings, "settings"),
        (prompt.summary_settings, "settings", "summary"),
    ):
        limit, first = settings.max_tokens_limit, settings.max_tokens
        if limit is not None and limit < first:
            raise file.error(
                f"{'.'.join(where)}.max_tokens_limit = {limit} is below max_tokens = {first}",
                *where,
                "max_tokens_limit",
            )
        if settings.samples > 1 and not settings.temperature > 0:
            raise file.error(
                f"samples = {settings.samples} at temperature 0 would be the same answer again; "
                "set a temperature",
                *("settings", "samples"),
            )
    several = prompt.settings.texts_per_request > 1
    if several != (TEXTS_FIELD in prompt.fields):
        raise file.error(
            "settings.texts_per_request above 1 and $texts in user go together: several texts, "
            "numbered, in the place of $text",
            *(("settings", "texts_per_request") if several else ("user",)),
        )
    if several and not prompt.output:
        raise file.error("$texts needs [output]: the columns of the answer about each text", "user")


def _settings(values: Mapping[str, Any]) -> PromptSettings:
    numbers = {key: float(values[key]) for key in ("temperature", "top_p") if key in values}
    return PromptSettings(**{**values, **numbers})


# -- where a key stands, which tomllib does not say

_HEADER = re.compile(r"\s*\[\[?\s*([\w.\-\"' ]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*([\w\-.]+|\"[^\"]*\"|'[^']*')\s*=")
_LONG_TEXT = re.compile(r"(\"{3}|'{3}).*?(\1|\Z)", re.DOTALL)


def line_of(text: str, *path: str) -> int | None:
    """The line, from 1, of a key such as `settings`, `max_tokens`, or of a table's header.

    The first of several; None where it is written in a way that is not looked for (inline tables).
    """
    table: tuple[str, ...] = ()
    lines = _LONG_TEXT.sub(lambda long: "\n" * long[0].count("\n"), text).split("\n")
    for number, line in enumerate(lines, start=1):
        found = _HEADER.match(line)
        here = table = _names(found[1]) if found else table
        if not found and (found := _KEY.match(line)):
            here = (*table, *_names(found[1]))
        if found and here == path:
            return number
    return None


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
