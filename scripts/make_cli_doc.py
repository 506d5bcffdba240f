"""Write docs/reference/cli.md from the commands themselves: `python scripts/make_cli_doc.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from claimscore.cli import cli

HEAD = """# The command line

Written by `scripts/make_cli_doc.py` from the commands; `claimscore COMMAND --help` says the same.

Exit status: 0 nothing failed, 1 a fault of claimscore or a model that does not agree, 2 wrong input
or settings, 3 some records failed, 75 stopped early (run the same command to go on).

Where a command has `--config FILE`, its options can stand in a TOML file, one `option = value` a
line; what is typed goes first.
"""

#: A command refers to `run` for its options where it takes all but so many of them.
LACKING = 6


def cli_doc() -> str:
    return HEAD + "".join(f"\n{section}" for section in _sections(cli, "claimscore"))


def _sections(group: click.Group, path: str) -> Iterator[str]:
    for name, command in group.commands.items():
        yield _section(command, f"{path} {name}")
        if isinstance(command, click.Group):
            yield from _sections(command, f"{path} {name}")


def _section(command: click.Command, path: str) -> str:
    """Usage, help, and the options; those of `run` are referred to where there are many."""
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"## {path}\n", f"```text\n{usage}\n```\n", *(f"{text}\n" for text in _help(command))]
    options, of_run = _options(command), _options(cli.commands["run"])
    lacking = [f"`{name}`" for row, name in of_run.items() if row not in options]
    refers = len(lacking) <= LACKING and command is not cli.commands["run"]
    own = [row for row in options if row not in of_run] if refers else list(options)
    if own:
        parts.append("| option | default | |\n|---|---|---|\n" + "\n".join(own) + "\n")
    if refers:
        but = f", but for {', '.join(lacking)}" if lacking else ""
        parts.append(
            f"{'And the' if own else 'The'} options of [claimscore run](#claimscore-run){but}.\n"
        )
    return "\n".join(parts)


def _options(command: click.Command) -> dict[str, str]:
    """The row of each option, and its name."""
    context = click.Context(command)
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {_row(option, context): option.opts[0] for option in options if not option.hidden}


def _help(command: click.Command) -> Iterator[str]:
    """The help's paragraphs; those after a `\\b` keep their lines."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```text\n{paragraph[2:]}\n```"
        elif paragraph:
            yield " ".join(paragraph.split())


def _row(option: click.Option, context: click.Context) -> str:
    names = ", ".join(option.opts + option.secondary_opts)
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    marks = [
        *(["required"] if option.required else []),
        *(["may be repeated"] if option.multiple else []),
    ]
    text = " ".join((option.help or "").split())
    said = f"{text} ({', '.join(marks)})".strip() if marks else text
    shown = option.show_default and isinstance(option.default, str | int | float)
    default = f"`{option.default}`" if shown else ""
    return f"| `{_cell(names + value)}` | {default} | {_cell(said)} |"


def _cell(text: str) -> str:
    """The text as a cell of a table, where a bar would begin another."""
    return re.sub(r"(?<!\\)\|", r"\\|", text)


if __name__ == "__main__":
    target = Path(__file__).parent.parent / "docs" / "reference/cli.md"
    target.write_text(cli_doc(), encoding="utf-8")
