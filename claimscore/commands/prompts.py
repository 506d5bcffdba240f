"""The prompts and their versions: listed, shown, compared, tried."""

from __future__ import annotations

import dataclasses
import difflib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from claimscore.commands.options import (
    EXIT_OK,
    EXIT_USAGE,
    Group,
    complete_file,
    json_option,
    own_option,
    setting_option,
)
from claimscore.config import TASK_NAMES, LLMConfig, RunConfig
from claimscore.errors import ConfigError, ParseError

if TYPE_CHECKING:
    from claimscore.pipeline.prompt_trial import Trial
    from claimscore.prompts import Listed, Prompt, Spec

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
    """List every prompt: version, digest, place, the default version, changes."""
    from claimscore.console.table import print_rows
    from claimscore.prompts import list_prompts

    _refuse_no_folder(prompts_dir)
    broken: list[ConfigError] = []
    found = list_prompts(prompts_dir, broken.append)
    code = EXIT_USAGE if broken else EXIT_OK
    for error in broken:
        print(f"claimscore: error: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps({"prompts": [_listed_json(one) for one in found]}))
        return code
    header = ("prompt", "version", "digest", "source", "", "changes")
    rows = [
        (one.prompt.name, one.prompt.version, one.prompt.digest, one.source, _state(one), changes)
        for one in found
        for changes in [" ".join(one.prompt.changes.split())]
    ]
    print_rows(header, rows)
    return code


def _state(one: Listed) -> str:
    if one.hidden:
        return "hidden"
    return "default" if one.default else ""


def _listed_json(one: Listed) -> dict[str, Any]:
    return {
        "name": one.prompt.name,
        "version": one.prompt.version,
        "digest": one.prompt.digest,
        "source": one.source,
        "path": str(one.path),
        "inherits": [str(path) for path in one.inherits],
        "default": one.default,
        "hidden": one.hidden,
        "changes": one.prompt.changes,
    }


def _refuse_no_folder(prompts_dir: Path | None) -> None:
    if prompts_dir is not None and not prompts_dir.is_dir():
        raise ConfigError(f"--prompts-dir {prompts_dir}: there is no such folder")


@prompts.command("show")
@click.argument("prompt", metavar="PROMPT", help="TASK, TASK=VERSION, or a file.")
@_folder
@own_option("--toml", is_flag=True, help="Print the prompt file as it is, to copy and change it.")
@json_option
def prompts_show(prompt: str, prompts_dir: Path | None, toml: bool, as_json: bool) -> None:
    """Show a prompt as it is sent, with all that it inherits."""
    from claimscore.prompts import Spec

    _refuse_no_folder(prompts_dir)
    spec = Spec.parse(prompt)
    found = spec.load(prompts_dir)  # a broken one is refused
    path = spec.path(prompts_dir)
    if toml:
        print(path.read_text(encoding="utf-8"), end="")
        return
    if as_json:
        resolved = dataclasses.asdict(found)
        print(json.dumps({**resolved, "digest": found.digest, "path": str(path)}))
        return
    print(f"{found.name} {found.version} @{found.digest}   {path}")
    print("\n".join(_resolved(found)))


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


def _schema_lines(prompt: Prompt) -> list[str]:
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

    _refuse_no_folder(prompts_dir)
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


@prompts.command("check", settings={"llm": LLMConfig})
@click.argument("prompt", metavar="PROMPT", help="TASK, TASK=VERSION, or a file.")
@click.argument(
    "source",
    metavar="[INPUT]",
    required=False,
    shell_complete=complete_file,
    help="Records, or the table of a map; the first row is the example.",
)
@own_option(
    "--task", type=click.Choice(TASK_NAMES), help="Task of a prompt file; default: by its name."
)
@_folder
@setting_option(RunConfig, "columns")
@setting_option(RunConfig, "cache_dir")
@json_option
def prompts_check(
    llm: LLMConfig,
    prompt: str,
    source: str | None,
    prompts_dir: Path | None,
    columns: Mapping[str, str],
    cache_dir: Path | None,
    task: str | None,
    as_json: bool,
) -> int:
    """Try a prompt: its errors, an example as it is sent, its tokens, one answer.

    The example is the first record of INPUT, else a built-in one. With --llm builtin (the default)
    nothing is sent; another model is asked once, at its price.
    """
    from claimscore.pipeline.plan import problems_for
    from claimscore.pipeline.prompt_trial import try_prompt
    from claimscore.prompts import Spec

    _refuse_no_folder(prompts_dir)
    spec = Spec.parse(prompt)
    found = spec.load(prompts_dir)
    about = task or spec.name or found.name
    used_for = about if about in TASK_NAMES else None
    path = spec.path(prompts_dir)
    found_wrong = problems_for(used_for, found) if used_for else ()
    problems = [_placed(path, *problem) for problem in found_wrong]
    trial = None
    if not problems:
        trial = try_prompt(
            found,
            llm,
            task=used_for,
            source=source,
            columns=columns,
            stdin=sys.stdin.buffer,
            cache_dir=cache_dir,
        )
    notes = list(_notes(spec, found, path))
    if as_json:
        print(json.dumps(_check_json(found, path, used_for, problems, notes, trial)))
    else:
        print("\n".join(_check_lines(found, path, used_for, problems, notes, trial)))
    return EXIT_USAGE if problems or (trial is not None and trial.failures) else EXIT_OK


def _placed(path: Path, key: tuple[str, ...], message: str) -> str:
    """A problem with the file, and the line where the key stands in it."""
    from claimscore.prompts.files import line_of

    line = line_of(path.read_text(encoding="utf-8"), *key)
    return f"{path}{f', line {line}' if line else ''}: {message}"


def _notes(spec: Spec, prompt: Prompt, path: Path) -> Iterator[str]:
    """Warnings about settings that are right and may still not be meant."""
    from claimscore.config import read_toml
    from claimscore.prompts import available_versions, load_prompt

    for number, (_, assistant) in enumerate(prompt.examples, start=1):
        try:
            (prompt.parse_several if prompt.takes_several else prompt.parse)(assistant)
        except ParseError as exc:
            yield f"example {number} answers what would be refused: {exc}"
    says = read_toml(path).get("version", prompt.version)
    if says != prompt.version:
        yield f'the file says version = "{says}"; in a folder of prompts its name counts'
    if prompt.version in available_versions(prompt.name):
        ours = load_prompt(prompt.name, prompt.version)
        if ours.digest != prompt.digest:
            yield (
                f"rows will say {prompt.name} {prompt.version}, as those of our prompt of that "
                f"name, which is another (@{ours.digest}); give it a version of its own"
            )


def _check_lines(
    prompt: Prompt,
    path: Path,
    task: str | None,
    problems: list[str],
    notes: list[str],
    trial: Trial | None,
) -> Iterator[str]:
    purpose = f"for the task {task}" if task else "for a table (claimscore map)"
    yield f"{prompt.name} {prompt.version} @{prompt.digest}, {purpose}   {path}"
    yield from (f"problem: {problem}" for problem in problems)
    yield from (f"note: {note}" for note in notes)
    if trial is None:
        return
    yield f"\nrendered for {trial.about}:"
    for role, content in trial.messages:
        yield f"\n[{role}]\n{content}"
    yield f"\ntokens: {_tokens(prompt, trial)}"
    yield "\n[output schema]"
    yield from _schema_lines(prompt)
    if trial.why_not:
        yield f"\nnot sent: {trial.why_not}"
        return
    yield f"\n[answer of {trial.llm}]\n{trial.answer}" if trial.answer else ""
    yield from (f"problem: {failure}" for failure in trial.failures)
    yield f"\n[{len(trial.rows)} row{'s' * (len(trial.rows) != 1)}]"
    for row in trial.rows:
        shown = {name: value for name, value in row.items() if value is not None}
        yield json.dumps(shown, ensure_ascii=False)


def _tokens(prompt: Prompt, trial: Trial) -> str:
    texts = f"{trial.n_texts} texts" if trial.n_texts > 1 else "the text"
    return (
        f"about {trial.prompt_tokens:,} in the prompt ({trial.prompt_bytes:,} bytes, 4 a token, as "
        f"estimate counts where no answer of the model is stored): {trial.own_tokens:,} are its "
        f"own, {trial.prompt_tokens - trial.own_tokens:,} are of {texts}; the answer may have "
        f"{prompt.settings.max_tokens:,}"
    )


def _check_json(
    prompt: Prompt,
    path: Path,
    task: str | None,
    problems: list[str],
    notes: list[str],
    trial: Trial | None,
) -> dict[str, Any]:
    schema = prompt.schema
    checked: dict[str, Any] = {
        "name": prompt.name,
        "version": prompt.version,
        "digest": prompt.digest,
        "path": str(path),
        "task": task,
        "problems": problems,
        "notes": notes,
        "schema": None if schema is None else schema.schema,
        "trial": None,
    }
    if trial is not None:
        shown = dataclasses.asdict(trial)
        shown["messages"] = [message._asdict() for message in trial.messages]
        checked["trial"] = {
            **shown,
            "prompt_tokens": trial.prompt_tokens,
            "own_tokens": trial.own_tokens,
        }
    return checked
