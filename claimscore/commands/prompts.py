"""The prompts and their versions: listed, shown, compared, checked."""

from __future__ import annotations

import dataclasses
import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from claimscore.commands.evaluate import finish, report_written
from claimscore.commands.options import (
    EXIT_OK,
    EXIT_USAGE,
    NEW_FILE,
    Group,
    json_option,
    own_option,
    setting_option,
)
from claimscore.config import RunConfig
from claimscore.errors import ConfigError, ParseError

if TYPE_CHECKING:
    from claimscore.evaluation.prompt_examples import ExamplesConfig
    from claimscore.prompts import Prompt

_folder = setting_option(RunConfig, "prompts_dir")


@click.group(cls=Group)
def prompts() -> None:
    """The prompts and their versions.

    A prompt is named TASK (its default version), TASK=VERSION, or by a file ending in .toml.
    """


@prompts.command("list")
@_folder
@json_option
def prompts_list(prompts_dir: Path | None, as_json: bool) -> int:
    """List every prompt: version, digest, place, the default version, changes.

    A prompt of the folder goes before ours of the same name. A default with the name of a
    provider is that provider's, in the place of the one marked yes.
    """
    from claimscore.console.table import print_rows
    from claimscore.pipeline.llm.providers.base import PROVIDERS, provider_class
    from claimscore.prompts import DEFAULT_VERSION, Spec, available_versions, prompt_names
    from claimscore.prompts.files import PACKAGE

    code, listed = EXIT_OK, list[dict[str, Any]]()
    for spec in (
        Spec(n, v) for n in prompt_names(prompts_dir) for v in available_versions(n, prompts_dir)
    ):
        try:
            prompt, path = spec.load(prompts_dir), spec.path(prompts_dir)
        except ConfigError as exc:
            print(f"claimscore: error: {exc}", file=sys.stderr)
            code = EXIT_USAGE
            continue
        listed.append(
            {
                "name": prompt.name,
                "version": prompt.version,
                "digest": prompt.digest,
                "source": "claimscore" if PACKAGE in path.parents else str(prompts_dir),
                "path": str(path),
                "default": prompt.version == DEFAULT_VERSION,
                "default_of": [
                    family
                    for family in PROVIDERS
                    if provider_class(family).prompts.get(prompt.name) == prompt.version
                ],
                "changes": prompt.changes,
            }
        )
    if as_json:
        print(json.dumps({"prompts": listed}))
        return code
    header = ("name", "version", "digest", "source", "default", "changes")
    shown = [
        {**one, "default": "yes" if one["default"] else ", ".join(one["default_of"])}
        for one in listed
    ]
    rows = [[" ".join(str(one[name]).split()) for name in header] for one in shown]
    print_rows(("prompt", *header[1:]), rows)
    return code


@prompts.command("show")
@click.argument("prompt", metavar="PROMPT", help="TASK, TASK=VERSION, or a file.")
@_folder
@own_option("--toml", is_flag=True, help="Print the prompt file as it is, to copy and change it.")
@json_option
def prompts_show(prompt: str, prompts_dir: Path | None, toml: bool, as_json: bool) -> None:
    """Show a prompt as it is sent."""
    from claimscore.prompts import Spec

    spec = Spec.parse(prompt)
    loaded = spec.load(prompts_dir)  # a broken one is refused
    path = spec.path(prompts_dir)
    if toml:
        print(path.read_text(encoding="utf-8"), end="")
        return
    if as_json:
        resolved = dataclasses.asdict(loaded)
        print(json.dumps({**resolved, "digest": loaded.digest, "path": str(path)}))
        return
    print(f"{loaded.name} {loaded.version} @{loaded.digest}   {path}")
    print("\n".join(_resolved(loaded)))


def _resolved(prompt: Prompt) -> Iterator[str]:
    """Everything that is sent, a line at a time."""
    yield from _settings_lines(prompt)
    if prompt.system:
        yield from ("", "[system]", *prompt.system.split("\n"))
    for user, assistant in prompt.examples:
        yield from ("", "[example: user]", *user.split("\n"))
        yield from ("", "[example: assistant]", *assistant.split("\n"))
    yield from ("", "[user]", *prompt.user.split("\n"))
    yield from ("", "[output schema]")
    yield from _schema_lines(prompt)


def _settings_lines(prompt: Prompt) -> Iterator[str]:
    common = dataclasses.asdict(prompt.settings)
    for name, value in common.items():
        if value not in ("", None):
            yield f"{name} = {json.dumps(value)}"
    for name, value in dataclasses.asdict(prompt.summary_settings).items():
        if value != common[name]:
            yield f"{name} = {json.dumps(value)}   (--granularity summary)"
    for name in ("explode", "max_items", "gather") if prompt.explode else ():
        yield f"{name} = {json.dumps(getattr(prompt, name))}"


def _schema_lines(prompt: Prompt) -> list[str]:
    if prompt.label_words:
        words = (f"{json.dumps(word)} is {label}" for label, word in prompt.label_words.items())
        return [f"none: the answer is one word, {', '.join(words)}"]
    if prompt.schema is None:
        return ["none: the answer is one text"]
    return json.dumps(prompt.schema.schema, indent=2, ensure_ascii=False).split("\n")


@prompts.command("diff")
@click.argument("one", metavar="PROMPT", help="TASK, TASK=VERSION, or a file.")
@click.argument("other", metavar="PROMPT", help="The prompt to compare it with.")
@_folder
@json_option
def prompts_diff(one: str, other: str, prompts_dir: Path | None, as_json: bool) -> None:
    """Show the differences of two prompts, as a unified diff of their requests."""
    from claimscore.prompts import Spec

    before, after = (Spec.parse(name).load(prompts_dir) for name in (one, other))
    lines = list(
        difflib.unified_diff(
            list(_resolved(before)),
            list(_resolved(after)),
            f"{before.name} {before.version} @{before.digest}",
            f"{after.name} {after.version} @{after.digest}",
            lineterm="",
        )
    )
    if as_json:
        print(json.dumps({"digests": [before.digest, after.digest], "diff": lines}))
    else:
        print("\n".join(lines) if lines else f"no difference: both are @{before.digest}")


@prompts.command("check")
@click.argument("prompt", metavar="PROMPT", help="TASK, TASK=VERSION, FILE or TASK=FILE.")
@_folder
@json_option
def prompts_check(prompt: str, prompts_dir: Path | None, as_json: bool) -> int:
    """Check a prompt: its keys, what its task needs, its examples. Nothing is sent."""
    from claimscore.pipeline.plan import prompt_problems
    from claimscore.pipeline.tasks import TASKS
    from claimscore.prompts import Spec

    spec = Spec.parse(prompt)
    loaded = spec.load(prompts_dir)
    path = spec.path(prompts_dir)
    task = TASKS.get(spec.name or loaded.name)
    problems = [f"{path}: {problem}" for problem in prompt_problems(task, loaded)] if task else []
    notes = list(_notes(loaded))
    code = EXIT_USAGE if problems else EXIT_OK
    if as_json:
        checked = {
            "name": loaded.name,
            "version": loaded.version,
            "digest": loaded.digest,
            "path": str(path),
            "task": None if task is None else task.name,
            "problems": problems,
            "notes": notes,
        }
        print(json.dumps(checked))
        return code
    purpose = "a table (claimscore map)" if task is None else f"the task {task.name}"
    print(f"{loaded.name} {loaded.version} @{loaded.digest}, for {purpose}   {path}")
    for line in (*(f"problem: {one}" for one in problems), *(f"note: {one}" for one in notes)):
        print(line)
    return code


@prompts.command(
    "from-labels", settings={"config": "claimscore.evaluation.prompt_examples:ExamplesConfig"}
)
@own_option(
    *("-o", "--out"), type=NEW_FILE, metavar="FILE", required=True, help="Prompt file to write."
)
@json_option
def prompts_from_labels(config: ExamplesConfig, out: Path, as_json: bool) -> int:
    """Make labelled claims the examples of a verify prompt, for the model of --llm.

    The model is asked about each claim as the prompt is, and with examples of other records. Prints
    what that gains. Where it gains nothing, no file is written.
    """
    from claimscore.evaluation.prompt_examples import from_labels

    def say(text: str) -> None:
        print(f"claimscore: {text}", file=sys.stderr, flush=True)

    result, helps = from_labels(config, out, say)
    finish(result, as_json)
    return report_written(out, helps, as_json)


def _notes(prompt: Prompt) -> Iterator[str]:
    """Warnings about what is right and may still not be meant."""
    from claimscore.prompts import available_versions, load_prompt

    for number, (_, assistant) in enumerate(prompt.examples, start=1):
        try:
            (prompt.parse_several if prompt.takes_several else prompt.parse)(assistant)
        except ParseError as exc:
            yield f"example {number} answers what would be refused: {exc}"
    if prompt.version in available_versions(prompt.name):
        ours = load_prompt(prompt.name, prompt.version)
        if ours.digest != prompt.digest:
            yield (
                f"rows will say {prompt.name} {prompt.version}, as those of our prompt of that "
                f"name, which is another (@{ours.digest}); give it a version of its own"
            )
