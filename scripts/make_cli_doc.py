"""Write docs/reference/cli.md from the commands themselves: `python scripts/make_cli_doc.py`."""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from claimscore.cli import cli
from claimscore.commands.options import PANELS, PanelOption

HEAD = """# The command line

Written by `scripts/make_cli_doc.py`. It has every option of {in_full};
of the [other commands](#other-commands) `claimscore COMMAND --help` has them.
[Troubleshooting](../troubleshooting.md) explains the exit statuses.

Defaults stand in brackets. A list has commas (`--metrics caspr,ds`). A duration is a number of
seconds, or has a unit: `90s`, `30m`, `12h`, `30d`, `2w`.

Options can stand in a TOML file (`--config FILE`, one `option = value` a line) or behind `--set`.
A typed option goes before `--set`, and that before the file. Only `--help-all` shows options
with °. Commands name the [shared options](#shared-options) that they take; {often} are in most and
not named.
"""

#: The commands whose options stand on the page.
IN_FULL = ("run", "status", "score", "report", "compare", "estimate", "map")

#: Options of most commands, which do not name them.
OFTEN = ("--json", "--quiet", "--verbose", "--config", "--set", "--help-all")

#: Stands where other options have a default.
REQUIRED = "required"


class Row(NamedTuple):
    """What the page says of an option; options of two commands are one where this is equal."""

    name: str
    title: str
    help: str


#: The options of a command and their defaults.
Rows = Mapping[Row, str]


def cli_doc() -> str:
    """The page: commands with their own options, shared options, a table of other commands."""
    commands = dict(_commands(cli, "claimscore"))
    in_full = [f"claimscore {name}" for name in IN_FULL]
    panels: dict[Row, str] = {}
    options = {path: _rows(commands[path], panels) for path in in_full}
    uses = Counter(row for rows in options.values() for row in rows)
    shared: dict[str, dict[Row, str]] = defaultdict(dict)
    for rows in options.values():
        for row, default in rows.items():
            if uses[row] > 1:
                shared[panels[row]].setdefault(row, default)
    sections = [_section(path, commands[path], options[path], shared) for path in in_full]
    sections.append("## Shared options\n")
    sections += [f"### {panel}\n\n{_lines(shared[panel])}" for panel in PANELS if panel in shared]
    others = "".join(_usage(*item) for item in commands.items() if item[0] not in in_full)
    sections.append(f"## Other commands\n\n| command | what it does |\n|---|---|\n{others}")
    *most, last = (f"`{name}`" for name in IN_FULL)
    head = HEAD.replace("{in_full}", f"{', '.join(most)} and {last}")
    head = head.replace("{often}", ", ".join(f"`{name}`" for name in OFTEN))
    return head + "".join(f"\n{section}" for section in sections)


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _section(
    path: str, command: click.Command, rows: Rows, shared: Mapping[str, Mapping[Row, str]]
) -> str:
    """Summary, arguments, own options, and the names of the shared ones."""
    context = click.Context(command, info_name=path)
    parts = [f"## {path}\n", f"{_summary(command)}\n"]
    if arguments := [one for one in command.params if isinstance(one, click.Argument)]:
        said = (f"- `{one.make_metavar(context)}`: {one.help}" for one in arguments)
        parts.append("\n".join(said) + "\n")
    everywhere = {row for every in shared.values() for row in every}
    if own := {row: default for row, default in rows.items() if row not in everywhere}:
        parts.append(_lines(own))
    taken = [_taken(panel, every, rows) for panel, every in shared.items()]
    if names := ", ".join(text for text in taken if text):
        parts.append(f"Shared: {names}.\n")
    return "\n".join(parts)


def _usage(path: str, command: click.Command) -> str:
    """A row of the table: the command with its arguments and required options, and its summary."""
    context = click.Context(command, info_name=path)
    words = [path.removeprefix("claimscore ")]
    for one in command.get_params(context):
        if isinstance(one, click.Argument):
            words.append(one.make_metavar(context).replace("|", "\\|"))
        elif one.required:
            words.append(f"{max(one.opts, key=len)} {one.make_metavar(context)}")
    return f"| `{' '.join(words)}` | {_summary(command)} |\n"


def _summary(command: click.Command) -> str:
    """The first paragraph of a command's help, in one line."""
    return " ".join(inspect.cleandoc(command.help or "").partition("\n\n")[0].split())


def _taken(panel: str, every: Mapping[Row, str], rows: Rows) -> str:
    """The shared options of a panel that a command takes: all, all but a few, or by name."""
    names = [
        f"`{row.name}`" if rows[row] == default else f"`{row.name}` ({rows[row] or 'optional'})"
        for row, default in every.items()
        if row in rows and row.name not in OFTEN
    ]
    missing = [f"`{row.name}`" for row in every if row not in rows and row.name not in OFTEN]
    link = f"[{panel}](#{panel.lower().replace(' ', '-')})"
    if len(names) > 2 and len(names) > len(missing):
        own = [name for name in names if "(" in name]
        without = f" without {' and '.join(missing)}" if missing else ""
        return link + without + (f" with {' and '.join(own)}" if own else "")
    return ", ".join(names)


def _lines(rows: Rows) -> str:
    lines = []
    for row, default in rows.items():
        shown = default if default == REQUIRED else f"`{default}`"
        lines.append(f"- {row.title}{f' ({shown})' if default else ''}: {row.help}\n")
    return "".join(lines)


def _rows(command: click.Command, panels: dict[Row, str]) -> dict[Row, str]:
    """The options of a command in the order of the panels; `panels` gets the panel of new ones."""
    context = click.Context(command)
    found = {}
    for option in command.get_params(context):
        if isinstance(option, PanelOption):
            names, _ = option.get_help_record(context)
            title = f"`{names}`" + (" °" if option.hidden else "")
            row = Row(max(option.opts, key=len), title, str(option.help))
            panels.setdefault(row, option.panel)
            found[row] = REQUIRED if option.required else str(option.shown_default() or "")
    return dict(sorted(found.items(), key=lambda item: PANELS.index(panels[item[0]])))


if __name__ == "__main__":
    target = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
    target.write_text(cli_doc(), encoding="utf-8")
