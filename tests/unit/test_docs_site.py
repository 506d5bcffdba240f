"""The documentation hangs together: navigation, commands, names, generated pages."""

import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import claimscore
from claimscore.cli import cli
from claimscore.metrics import FUNCTIONS, METRICS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
TEXTS = {name: (DOCS / name).read_text(encoding="utf-8") for name in PAGES}
DECISIONS = [page for page in PAGES if re.match(r"decisions/\d{4}-", page)]
TEXTS["README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")


def in_navigation(items: list[Any]) -> Iterator[str]:
    for item in items:
        for target in item.values():
            if isinstance(target, str):
                yield target
            else:
                yield from in_navigation(target)


def test_every_page_is_in_the_navigation_once() -> None:
    """And nothing is there that is no page. Decisions are linked from their index instead."""
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    assert sorted(in_navigation(config["project"]["nav"])) == [
        page for page in PAGES if page not in DECISIONS
    ]


def test_every_decision_has_a_number_of_its_own_and_is_in_the_index() -> None:
    """`docs/decisions/0042-sdks-with-raw-replies.md` is decision 42, by name, title and index."""
    numbers = [int(Path(page).name[:4]) for page in DECISIONS]
    assert len({*numbers}) == len(numbers)
    linked = re.findall(r"^- (\d+)\. \[.*\]\((.*)\)$", TEXTS["decisions/index.md"], re.M)
    assert sorted(f"decisions/{target}" for _, target in linked) == DECISIONS
    assert sorted(int(number) for number, _ in linked) == numbers
    for page, number in zip(DECISIONS, numbers, strict=True):
        assert TEXTS[page].startswith(f"# {number}. "), page


def test_every_metric_answers_a_question() -> None:
    table, _, _ = TEXTS["metrics/index.md"].partition("## Name a metric")
    assert [name for name in METRICS if f"`{name}`" not in table] == []


@pytest.mark.parametrize("page", [*TEXTS])
def test_links_lead_somewhere(page: str) -> None:
    here = ROOT if page == "README.md" else DOCS
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(TEXTS[page])):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (here / page).parent / path if path else here / page
        assert file.exists(), target
        if page != "README.md":
            assert file.resolve().is_relative_to(DOCS.resolve()), f"{target} is not in the site"
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), target


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(text: str) -> set[str]:
    """The headings' anchors, as code hosts and the site make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in headings}


def commands() -> Iterator[Any]:
    """Every command line of ours in a shell block."""
    for page, text in TEXTS.items():
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            for line in re.sub(r"\\\n", " ", block).splitlines():
                line = re.sub(r" > [^']*$", "", line)  # a redirection, not what is quoted
                if line.startswith("claimscore "):
                    yield pytest.param(line, id=f"{page}: {line}")


@pytest.mark.parametrize("line", [*commands()])
def test_commands_are_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.Path, "convert", lambda self, value, param, ctx: Path(value))
    monkeypatch.setattr("claimscore.commands.options.read_toml", lambda path: {})
    command: click.Command = cli
    arguments = shlex.split(line, comments=True)[1:]
    with click.Context(cli, info_name="claimscore") as context:
        while isinstance(command, click.Group):
            name, *arguments = arguments
            found = command.get_command(context, name)
            assert found is not None, name
            command = found
        if "--help" not in arguments:
            command.make_context(command.name, arguments, parent=context)


def test_the_api_page_has_every_public_name() -> None:
    names = set(re.findall(r"^::: ([\w.]+)$", TEXTS["reference/python.md"], re.M))
    for name in claimscore.__all__:
        if name != "ClaimscoreError":  # with the others, under its module
            assert f"claimscore.{name}" in names
    for name, module in FUNCTIONS.items():
        assert f"{module}.{name}" in names
    for name in names - {"claimscore.errors"}:
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute).__doc__, name


def test_the_command_line_page_is_up_to_date() -> None:
    namespace: dict[str, Any] = {"__name__": "make_cli_doc"}
    script = ROOT / "scripts" / "make_cli_doc.py"
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), namespace)
    assert namespace["cli_doc"]() == TEXTS["reference/cli.md"], "run python scripts/make_cli_doc.py"


def test_nothing_is_loaded_from_elsewhere() -> None:
    """The site works from disk: no page and no asset of ours names a file on another machine."""
    for file in (*DOCS.rglob("*.md"), *(DOCS / "assets").glob("*.[!w]*")):  # no pictures
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"(?:src|@import|url\()\s*=?\s*[\"'(]?https?:", text), file
