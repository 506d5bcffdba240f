"""The command line as tests call it: the fixture `cli` of `conftest.py` returns these."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Result(NamedTuple):
    """What one command left: its exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as JSON, as `--json` prints it; the errors where it is none."""
        assert self.out, self.err
        return json.loads(self.out)


#: `cli("run", path, "--limit", 5)`: runs the command in this process; arguments of any type.
Command = Callable[..., Result]
