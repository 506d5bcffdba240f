"""Recording the contract: `python -m tests.e2e.record` writes tests/e2e/contract/*.json anew.

A recorded value changes only in a commit that says which decision changed it.
"""

import dataclasses
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

import claimscore
from tests.e2e.sessions import Session, play, private_environment
from tests.e2e.shapes import public_names

RECORDED = Path(__file__).parent / "contract"

#: Runs whose scores come from texts alone: they are the same everywhere.
PLAIN = ("plain-pairs", "plain-summaries")


def contract(session: Session) -> dict[str, Any]:
    """Everything that is compared, by the name of its file."""
    return {
        "names": public_names(claimscore),
        "outcomes": {name: _outcome(outcome) for name, outcome in session.outcomes.items()},
        "scores": {name: score_rows(path) for name, path in session.scores.items()},
        "machine": {"models": machine()},
        "requests": session.requests,
    }


def _outcome(outcome: Any) -> dict[str, Any]:
    """What there is of it: exit code, shape of the JSON, files and tables."""
    about = dataclasses.asdict(outcome)
    return {key: value for key, value in about.items() if value not in (None, {})}


def score_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of `scores.parquet`, the components as JSON."""
    rows = pl.read_parquet(path).to_dicts()
    return [{**row, "components": json.loads(row["components"] or "null")} for row in rows]


def machine() -> str:
    """A digest of what the last bits of a model's numbers depend on: CPU, its caches, libraries."""
    import torch

    facts = [torch.__version__, torch.backends.cpu.get_cpu_capability()]
    facts += [platform.machine(), str(torch.get_num_threads())]
    with_cpu = Path("/proc/cpuinfo")
    if with_cpu.exists():
        about = ("vendor_id", "cpu family", "model\t", "stepping", "cache size", "flags")
        lines = with_cpu.read_text(encoding="utf-8").splitlines()
        facts += sorted({line for line in lines if line.startswith(about)})
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def write(contract: Mapping[str, Any]) -> None:
    """A file for each kind of thing."""
    RECORDED.mkdir(exist_ok=True)
    for name, value in contract.items():
        rows = [f"{json.dumps(key)}: {_lines(item)}" for key, item in value.items()]
        text = "{\n" + ",\n".join(rows) + "\n}\n"
        (RECORDED / f"{name}.json").write_text(text, encoding="utf-8")


def _lines(value: Any) -> str:
    """JSON with a line for each row or key: what changes is seen in a diff."""
    if isinstance(value, list):
        return "[\n " + ",\n ".join(map(_line, value)) + "\n]"
    if isinstance(value, dict) and value:
        items = (f"{json.dumps(key)}: {_line(item)}" for key, item in value.items())
        return "{\n " + ",\n ".join(items) + "\n}"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def recorded(name: str) -> Any:
    """One file of the contract."""
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, private_environment(Path(folder)):
        write(contract(play()))


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # as in the tests
    main()
