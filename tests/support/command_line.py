"""The command line as tests call it, and the tables that it leaves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from claimscore.cli import main


class Result(NamedTuple):
    """What one command left: its exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as JSON, as `--json` prints it; the errors where it is none."""
        assert self.out, self.err
        return json.loads(self.out)


def claimscore(*arguments: object) -> int:
    """The exit status of a command in this process, whose output goes where the test's goes."""
    return main([str(argument) for argument in arguments])


def table(out: Path, name: str) -> pl.DataFrame:
    """All parts of a table of a run directory."""
    return pl.read_parquet(sorted((out / name).glob("*.parquet")))


#: The fixture `cli` of `conftest.py`, as in `cli("run", path, "--limit", 5)`.
Command = Callable[..., Result]
