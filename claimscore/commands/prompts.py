"""The prompts and their versions."""

from __future__ import annotations

import json
from pathlib import Path

import click

from claimscore.commands.options import FOLDER


@click.group()
def prompts() -> None:
    """The prompts and their versions."""


@prompts.command("list")
@click.option("--prompts-dir", type=FOLDER)
def prompts_list(prompts_dir: Path | None) -> None:
    """Every prompt, its versions, digests and what changed."""
    from claimscore.console import print_rows
    from claimscore.prompts import available_versions, load_prompt, prompt_names

    found = [
        load_prompt(name, version, prompts_dir)
        for name in prompt_names()
        for version in available_versions(name, prompts_dir)
    ]
    rows = [(p.name, p.version, p.digest, p.changes) for p in found]
    print_rows(("prompt", "version", "digest", "changes"), rows)


@prompts.command("show")
@click.argument("task")
@click.option("--prompts-dir", type=FOLDER)
@click.option("--toml", is_flag=True, help="The prompt file, to be copied and changed.")
def prompts_show(task: str, prompts_dir: Path | None, toml: bool) -> None:
    """One prompt as it is sent: TASK or TASK=VERSION."""
    from claimscore.prompts import load_prompt, prompt_source

    name, _, version = task.partition("=")
    if toml:
        print(prompt_source(name, version or "v1", prompts_dir), end="")
        return
    prompt = load_prompt(name, version or "v1", prompts_dir)
    print(f"{prompt.name} {prompt.version} @{prompt.digest}")
    print(f"temperature {prompt.settings.temperature}, max_tokens {prompt.settings.max_tokens}")
    for role, content in prompt.render(**{name: f"${name}" for name in prompt.fields}):
        print(f"\n[{role}]\n{content}")
    if prompt.schema:
        print(f"\n[output schema]\n{json.dumps(prompt.schema.schema, indent=2)}")
