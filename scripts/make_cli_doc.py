"""Write docs/reference/cli.md from the commands themselves: `python scripts/make_cli_doc.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from claimscore.cli import cli
from claimscore.commands.options import PANELS, PanelOption

HEAD = """# The command line

Written by `scripts/make_cli_doc.py` from the commands; `claimscore COMMAND --help` says the same.

Exit status: 0 nothing failed, 1 a fault of claimscore or a model that does not agree, 2 wrong input
or settings, 3 some records failed, 75 stopped early (run the same command to go on).

A list has commas (`--metrics caspr,ds`); an option with key=value, an address or a file is
repeated. A duration is a number of seconds, or has a unit: `90s`, `30m`, `12h`, `30d`, `2w`.
Options can stand in a TOML file (`--config FILE`, one `option = value` a line) or behind `--set`;
a typed option goes before `--set`, and that before the file. Options with ° are rare: `--help`
leaves them out, `--help-all` shows them.
"""

Row = Mapping[str, str]  # option -> its line of a table

TABLE = "| option | default | |\n|---|---|---|\n"

#: Panels of `run` that are described once, for all commands.
SHARED = ("Language model", "Limits", "Models", "Machines", "Output", "This command")


def cli_doc() -> str:
    """The page: the commands, each with its own options, then the options that they share."""
    shared = _panels(cli.commands["run"])
    sections = [*_sections(cli, "claimscore", shared), "## Shared options\n"]
    sections += [f"### {name}\n\n{TABLE}{_lines(shared[name])}" for name in SHARED]
    return HEAD + "".join(f"\n{section}" for section in sections)


def _sections(group: click.Group, path: str, shared: Mapping[str, Row]) -> Iterator[str]:
    for name, command in group.commands.items():
        yield _section(command, f"{path} {name}", shared)
        if isinstance(command, click.Group):
            yield from _sections(command, f"{path} {name}", shared)


def _section(command: click.Command, path: str, shared: Mapping[str, Row]) -> str:
    """Usage, help, arguments, own options, and references to the shared ones."""
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"## {path}\n", f"`{usage}`\n", *(f"{text}\n" for text in _help(command))]
    params = command.get_params(context)
    arguments = [param for param in params if isinstance(param, click.Argument)]
    if arguments:
        said = (f"- `{one.make_metavar(context)}`: {one.help}" for one in arguments)
        parts.append("\n".join(said) + "\n")
    own: dict[str, str] = {}
    references = []
    if path == "claimscore run":
        for name in (name for name in shared if name not in SHARED):
            own |= shared[name]
        remark = "And all [shared options](#shared-options).\n"
        return "\n".join([*parts, TABLE + _lines(own), remark])
    for name, rows in _panels(command).items():
        common = {key for key, row in rows.items() if shared.get(name, {}).get(key) == row}
        own |= {key: row for key, row in rows.items() if key not in common}
        if common:
            where = name.lower().replace(" ", "-") if name in SHARED else "claimscore-run"
            link = f"[{name}](#{where})"
            names = ", ".join(f"`{key}`" for key in rows if key in common)
            references.append(link if common == set(shared[name]) else f"{link} ({names})")
    if own:
        parts.append(TABLE + _lines(own))
    if references:
        parts.append(f"{'And the' if own else 'The'} options of {', '.join(references)}.\n")
    return "\n".join(parts)


def _lines(rows: Row) -> str:
    return "\n".join(rows.values()) + "\n"


def _panels(command: click.Command) -> dict[str, dict[str, str]]:
    """The rows of the options, by panel and name."""
    context = click.Context(command)
    found: dict[str, dict[str, str]] = {name: {} for name in PANELS}
    for option in command.get_params(context):
        if isinstance(option, PanelOption):
            found[option.panel][max(option.opts, key=len)] = _row(option, context)
    return {name: rows for name, rows in found.items() if rows}


def _help(command: click.Command) -> Iterator[str]:
    """The help's paragraphs; those after a `\\b` keep their lines."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```text\n{paragraph[2:].strip()}\n```"
        elif paragraph:
            yield " ".join(paragraph.split())


def _row(option: PanelOption, context: click.Context) -> str:
    names, _ = option.get_help_record(context)
    marks = [
        *(["required"] if option.required else []),
        *(["may be repeated"] if option.multiple and "epeat" not in (option.help or "") else []),
    ]
    said = f"{option.help} ({', '.join(marks)})" if marks else str(option.help)
    default = option.shown_default()
    rare = " °" if option.hidden else ""
    return f"| `{_cell(names)}`{rare} | {f'`{default}`' if default else ''} | {_cell(said)} |"


def _cell(text: str) -> str:
    """The text as a cell of a table, where a bar would begin another."""
    return re.sub(r"(?<!\\)\|", r"\\|", text)


if __name__ == "__main__":
    target = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
    target.write_text(cli_doc(), encoding="utf-8")
