"""claimscore's engine beside its peers, one table:

    python benchmarks/engine/run.py [--rows NAME ...] [--rounds 3] [--clients NAME ...] [--out FILE]

Every run has a fresh server, a fresh cache and a process of its own; the clients of a row
take turns within each round, and figures are medians over the rounds. Peers are used where
`setup_peers.sh` installed them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from measure import CLIENTS, Run, python_of, run_client
from rows import ROWS, SCENARIOS, Cell, Row, Runs, Scenario

HERE = Path(__file__).parent
COLUMNS = ("claimscore", "aiohttp", "openai", "litellm", "curator")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def play_row(row: Row, pythons: dict[str, Path], rounds: int, scale: float) -> dict[str, list[Run]]:
    """All runs of a row; `NAME clean` are the runs without the row's faults."""
    found: dict[str, list[Run]] = defaultdict(list)
    names = [name for name in row.clients if name in pythons]
    for number in range(rounds):
        turn = number % max(1, len(names))
        for name in names[turn:] + names[:turn]:
            run, clean = play(row, name, pythons[name], scale), []
            if row.without:
                kept = {k: v for k, v in row.settings.items() if k not in row.without}
                clean = [play(dataclasses.replace(row, settings=kept), name, pythons[name], scale)]
            found[name].append(run)
            found[f"{name} clean"] += clean
            cell = row.cell(Runs([run], clean=clean))
            say(f"{row.name} {number + 1}/{rounds} {name}: {cell.text}")
    return found


def play(row: Row, name: str, python: Path, scale: float) -> Run:
    """One run, on a server and a cache of its own."""
    n, settings = max(1, round(row.n * scale)), dict(row.settings)
    if "quota_after" in settings:
        settings["quota_after"] = round(settings["quota_after"] * scale)
    return run_client(
        name,
        python,
        settings,
        n=n,
        concurrency=row.concurrency,
        options=row.told,
        timeout_s=row.timeout_s,
    )


def cells_of(row: Row, runs: dict[str, list[Run]]) -> dict[str, Cell]:
    """What each client reached."""
    bare = runs.get("aiohttp", [])
    return {
        name: row.cell(Runs(mine, bare, runs.get(f"{name} clean", [])))
        for name, mine in runs.items()
        if not name.endswith(" clean")
    }


def warm_up(pythons: dict[str, Path]) -> dict[str, Any]:
    """A few requests by each client, so that nobody's first run compiles and fills caches;
    returns their versions."""
    versions = {}
    for name, python in pythons.items():
        run = run_client(name, python, {}, n=20, concurrency=4, options=("--unlimited",))
        if name in COLUMNS:
            versions[name] = run.client.get("versions", run.ended)
    return versions


class Line(NamedTuple):
    """One row as it is printed; `clients` are those that belong into it."""

    what: str
    target: str
    clients: tuple[str, ...]
    cells: dict[str, Cell]

    def text(self, column: str, missing: set[str]) -> str:
        """A client's cell."""
        if column in self.cells:
            return self.cells[column].text
        return "not installed" if column in self.clients and column in missing else "-"


def table(lines: list[Line], missing: set[str]) -> str:
    """One Markdown table; a client that has no place in a row has a dash."""
    rows = [["what", "to reach", "", *COLUMNS]]
    for line in lines:
        own = line.cells.get("claimscore")
        met = "" if own is None or own.met is None else "met" if own.met else "**not met**"
        rows.append(
            [line.what, line.target, met, *(line.text(column, missing) for column in COLUMNS)]
        )
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def play_scenario(scenario: Scenario, rounds: int, scale: float) -> Cell:
    """The last round's words; met only if all rounds were."""
    met = True
    for number in range(1 if scenario.once else rounds):
        outcome = scenario.play(scale)
        met = met and outcome.met
        say(f"{scenario.name} {number + 1}: {outcome.text}")
    return Cell(outcome.text, met)


def main() -> None:
    names = [row.name for row in ROWS] + [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS))
    parser.add_argument("--environments", type=Path, default=HERE / ".venvs")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the items: to try it")
    parser.add_argument("--out", type=Path, help="everything measured, as JSON")
    asked = parser.parse_args()

    found = {name: python_of(name, asked.environments) for name in asked.clients}
    pythons = {name: python for name, python in found.items() if python is not None}
    missing = set(found) - set(pythons)
    for name in sorted(missing):
        say(f"{name} is not installed (setup_peers.sh); skipped")
    versions = warm_up(pythons)
    wanted = asked.rows or [name for name in names if name not in on_request()]

    lines: list[Line] = []
    everything: dict[str, Any] = {}
    for row in ROWS:
        if row.name in wanted:
            runs = play_row(row, pythons, asked.rounds, asked.scale)
            lines.append(Line(row.what, row.target, row.clients, cells_of(row, runs)))
            everything[row.name] = {
                name: [dataclasses.asdict(run) for run in mine] for name, mine in runs.items()
            }
    for scenario in SCENARIOS:
        if scenario.name in wanted and "claimscore" in pythons:
            cell = play_scenario(scenario, asked.rounds, asked.scale)
            cells = {"claimscore": cell}
            lines.append(Line(scenario.what, scenario.target, ("claimscore",), cells))
            everything[scenario.name] = dataclasses.asdict(cell)

    print(table(lines, missing))
    print(f"\n{os.cpu_count()} cores, Python {platform.python_version()}, {asked.rounds} rounds")
    for name, version in versions.items():
        print(f"{name}: {version}")
    if asked.out is not None:
        asked.out.write_text(json.dumps({"versions": versions, "rows": everything}, indent=1))


def on_request() -> set[str]:
    """Rows that take hours."""
    return {scenario.name for scenario in SCENARIOS if scenario.on_request}


if __name__ == "__main__":
    main()
