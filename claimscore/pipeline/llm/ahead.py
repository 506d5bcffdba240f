"""What a run may spend before whoever goes on from another machine must know more.

A ledger is on one machine, and its copy elsewhere is behind. So elsewhere it stands beforehand what
the run may reach; nobody reserves more than that. Two small files beside the ledger, written by a
rename: here it is read what is allowed, and written what is wanted; another thread or process (see
`pipeline.spending`) makes the wanted allowed.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import NamedTuple

from claimscore.errors import StoppedEarly

#: The names of the two files, beside the ledger.
AHEAD_FILE, WANTED_FILE = "ahead.json", "wanted.json"

#: What cannot be told is asked for again this often.
ASK_AGAIN_S = 0.1


class Sums(NamedTuple):
    """Requests and picodollars, reserved ones included, over all calls of a run."""

    requests: int
    pico_usd: int

    def within(self, other: Sums) -> bool:
        """Whether neither is more than the other's."""
        return self.requests <= other.requests and self.pico_usd <= other.pico_usd

    @classmethod
    def of(cls, content: bytes) -> Sums:
        """What a file says; `ValueError` or `KeyError` where it is another one."""
        found = json.loads(content)
        return cls(int(found["requests"]), int(found["pico_usd"]))

    def at_least(self, other: Sums) -> Sums:
        """The larger of each."""
        return Sums(*map(max, self, other))

    def to_bytes(self, **more: object) -> bytes:
        """The content of a file."""
        return json.dumps({**more, **self._asdict()}).encode() + b"\n"


class Ahead:
    """The bound of one ledger, if it has one: there is none without the file."""

    def __init__(self, ledger: Path) -> None:
        self._allowed_path = ledger.with_name(AHEAD_FILE)
        self._wanted_path = ledger.with_name(WANTED_FILE)
        self.is_bound = self._allowed_path.exists()
        self._allowed = Sums(0, 0)
        self._ask_at = Sums(0, 0)

    def covers(self, sums: Sums) -> bool:
        """Whether the run may come to these sums now; if not, that is asked for.

        It is asked for before it is needed, when half of what was allowed last is used up.
        `StoppedEarly` where it cannot be allowed.
        """
        if not self.is_bound:
            return True
        if not sums.within(self._ask_at):
            self._look()
        is_covered = sums.within(self._allowed)
        if not (is_covered and sums.within(self._ask_at)):
            replace(self._wanted_path, sums.to_bytes())
        return is_covered

    def _look(self) -> None:
        content = self._allowed_path.read_bytes()
        said = json.loads(content)
        if "error" in said:
            raise StoppedEarly(said["error"])
        self._allowed = Sums.of(content)
        self._ask_at = Sums(*said["ask_at"])


def replace(path: Path, content: bytes) -> None:
    """Put the content there at once; not synced, since nothing of it outlives the call."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise StoppedEarly(f"{path}: spending cannot be recorded: {exc.strerror}") from exc
