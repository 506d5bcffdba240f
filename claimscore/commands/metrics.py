"""The metrics that can be named: listed and shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from claimscore.commands.options import EXIT_OK, Group, json_option, setting_option
from claimscore.config import RunConfig

if TYPE_CHECKING:
    from claimscore.metrics.catalogue import Catalogue


_metric_file_option = setting_option(RunConfig, "metric_files")


@click.group(cls=Group)
def metrics() -> None:
    """The metrics, their options and their needs."""


@metrics.command("list")
@_metric_file_option
@json_option
def metrics_list(metric_files: tuple[Path, ...], as_json: bool) -> int:
    """List every metric: the columns it reads, its models, what it still needs, a description.

    What it needs is said for a run without options: weights, packages, a language model.
    """
    from claimscore.console.table import print_rows
    from claimscore.metrics import catalogue

    known = catalogue(metric_files)
    listed = [_facts(known, name) for name in known.names()]
    if as_json:
        print(json.dumps({"metrics": listed}))
        return EXIT_OK
    header = ("metric", "columns", "models", "needs", "description")
    rows = [
        (m["name"], ", ".join(m["columns"]), _models(m), _short(m["needs"]), m["description"])
        for m in listed
    ]
    print_rows(header, rows)
    return EXIT_OK


@metrics.command("show")
@click.argument("metric", help="Name of a metric, also with options.")
@_metric_file_option
@json_option
def metrics_show(metric: str, metric_files: tuple[Path, ...], as_json: bool) -> int:
    """Show a metric (summac-zs, or summac-zs:variant=code), its needs and its options.

    Each option is shown with its values, the default first, and with its meaning.
    """
    from claimscore.console.table import print_facts
    from claimscore.metrics import catalogue

    known = catalogue(metric_files)
    facts = _facts(known, metric)
    if as_json:
        print(json.dumps(facts))
        return EXIT_OK
    low, high = facts["range"]
    lines = [
        ("metric", facts["name"]),
        ("version", facts["version"]),
        ("description", facts["description"]),
        ("columns", ", ".join(facts["columns"])),
        ("models", _models(facts) or "none"),
        ("still needs", "; ".join(facts["needs"]) or "nothing"),
        ("range", f"{_bound(low)} to {_bound(high)}"),
        ("higher is", facts["higher_is"]),
        ("source", facts["reference"]),
    ]
    for one in known.options(metric):
        lines += [(f":{one.name}=", one.described(" | ")), ("", one.help)]
    print_facts(lines)
    return EXIT_OK


def _facts(known: Catalogue, spec: str) -> dict[str, Any]:
    from claimscore.pipeline.passes import PASSES
    from claimscore.pipeline.plan import needs_of
    from claimscore.pipeline.scoring import described

    metric, options = known.load(spec), known.options(spec)
    roles = dict.fromkeys(PASSES[need.kind].role for need in metric.requires.passes)
    return {
        "name": metric.name,
        "version": metric.version,
        **described(metric),
        "columns": list(metric.requires.columns),
        "tasks": list(dict.fromkeys(need.task for need in metric.requires.tasks)),
        "models": [role.replace("_", "-") for role in roles],
        "needs": needs_of(metric),
        "options": {one.name: one.values and list(one.values) for one in options},
        "option_help": {one.name: one.help for one in options},
    }


def _short(needs: list[str]) -> str:
    """What is missing in one word each: the option, or the package."""
    words = []
    for need in needs:
        option = re.search(
            r"--llm\b|--[a-z]+2?[a-z]*-[a-z]+|WordNet|spaCy|weights|claimscore\[\w+\]", need
        )
        words.append(option[0] if option else need)
    return ", ".join(words) or "nothing"


def _bound(end: float | None) -> str:
    return "no bound" if end is None else f"{end:g}"


def _models(facts: dict[str, Any]) -> str:
    """The options that name the models: `--llm`, with its tasks, and others."""
    tasks = ", ".join(facts["tasks"])
    llm = [f"--llm ({tasks})"] if tasks else []
    return " ".join([*llm, *(f"--{model}" for model in facts["models"])])
