"""What a run has spent, in a file that a kill at any moment leaves true.

    {"reserve":17,"prompt_tokens":912,"completion_tokens":256,"pico_usd":139000000}
    {"settle":[16,17],"requests":2,"prompt_tokens":410,"completion_tokens":61,"pico_usd":...}

With a cap, a request is written down at its worst price before it is sent; what it really
cost follows in groups. A reservation that was never settled counts in full: its request may
have been answered and billed while nobody was left to hear of it. Each line is one write at
the end of the file, without a sync: it outlives the process, but not a power cut.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from claimscore.atomic import os_errors, reason
from claimscore.errors import ConfigError, StoppedEarly

#: Lines that are read at a time; one call of the JSON parser for all of them.
_BLOCK_LINES = 2000


@dataclasses.dataclass(slots=True)
class Spent:
    """Sums over settled requests. Dollars are whole picodollars.

    `possibly` is what may have been billed though no answer came. Tokens of requests whose
    price was not known are `unpriced`, as the most that they can have been.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    pico_usd: int = 0
    possibly_pico_usd: int = 0
    unpriced_prompt_tokens: int = 0
    unpriced_completion_tokens: int = 0

    def add(self, other: Spent) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def plus(self, other: Spent, sign: int = 1) -> Spent:
        """The sum of both, or with -1 the difference."""
        return Spent(*(getattr(self, n) + sign * getattr(other, n) for n in _COUNTS))


_COUNTS = tuple(field.name for field in dataclasses.fields(Spent))


class Ledger:
    """The one writer of a ledger; `earlier` is what was in it when it was opened, and `open`
    the part of it that was reserved and not settled, by number.

    Threads may share it. A half line at the end, which a full disk or a power cut leaves, is
    taken away: nothing was sent before its line was whole. A line before the last that cannot
    be read is a `ConfigError`: whatever it said is lost, so nothing that could be counted in
    its place is certain to be enough.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        with os_errors(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            self._lock()
            file = _File(path)
            with os_errors(path):
                os.ftruncate(self._descriptor, file.size)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._size = file.size
        self._next = file.last_number + 1
        self.earlier = file.spent()
        self.open = file.open

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"{self.path} is in use by another process; wait for it, or stop it"
            ) from None

    def close(self) -> None:
        os.close(self._descriptor)

    def reserve(self, prompt_tokens: int, completion_tokens: int, pico_usd: int | None) -> int:
        """Write down what a request may cost at most; its number, when that is in the file."""
        price = "null" if pico_usd is None else pico_usd
        with self._mutex:
            self._append(
                f'{{"reserve":{self._next},"prompt_tokens":{prompt_tokens},'
                f'"completion_tokens":{completion_tokens},"pico_usd":{price}}}\n'
            )
            self._next += 1
            return self._next - 1

    def settle(self, numbers: Iterable[int], spent: Spent) -> None:
        """Put what requests really cost in the place of their reservations."""
        counts = {name: value for name in _COUNTS if (value := getattr(spent, name))}
        line = json.dumps({"settle": list(numbers), **counts}, separators=(",", ":"))
        with self._mutex:
            self._append(line + "\n")

    def _append(self, line: str) -> None:
        """One write; `StoppedEarly` where there is no room, and then nothing was written."""
        data = line.encode("ascii")
        try:
            written = os.write(self._descriptor, data)
        except OSError as exc:
            raise StoppedEarly(f"{self.path}: spending cannot be recorded: {reason(exc)}") from exc
        if written < len(data):
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise StoppedEarly(f"{self.path}: spending cannot be recorded: the disk is full")
        self._size += written


def read_spent(path: Path) -> Spent:
    """What the ledger of a run says so far, while the run goes on or after; changes nothing."""
    return _File(path).spent() if path.exists() else Spent()


class _File:
    """A ledger's content: sums of what was settled, and what was not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._settled = Spent()
        self.open: dict[int, Spent] = {}
        self.last_number = 0
        self.size = 0
        self._n_lines = 0
        with os_errors(path):
            for block in self._blocks():
                self._take(block)

    def spent(self) -> Spent:
        """All of it, reservations without a settlement in full as possibly billed."""
        total = dataclasses.replace(self._settled)
        for spent in self.open.values():
            total.add(spent)
        return total

    def _blocks(self) -> Iterator[list[bytes]]:
        """Whole lines, some at a time; `size` is where they end."""
        lines: list[bytes] = []
        with self._path.open("rb") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                self.size += len(line)
                lines.append(line)
                if len(lines) == _BLOCK_LINES:
                    yield lines
                    lines = []
        yield lines

    def _take(self, lines: list[bytes]) -> None:
        try:
            for entry in json.loads(b"[" + b",".join(lines) + b"]"):
                self._apply(entry)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(
                f"{self._path}, line {self._n_lines + _damaged(lines) + 1} or after: damaged; what "
                "the run has spent cannot be told. Move the file away to count from nothing"
            ) from None
        self._n_lines += len(lines)

    def _apply(self, entry: dict[str, Any]) -> None:
        if "reserve" in entry:
            number = int(entry["reserve"])
            self.open[number] = reserved(
                entry["prompt_tokens"], entry["completion_tokens"], entry["pico_usd"]
            )
            self.last_number = max(self.last_number, number)
            return
        for number in entry["settle"]:
            del self.open[number]
        self._settled.add(Spent(**{name: int(entry.get(name, 0)) for name in _COUNTS}))


def reserved(prompt_tokens: int, completion_tokens: int, pico_usd: int | None) -> Spent:
    """A request that may have been sent and billed."""
    if pico_usd is not None:
        return Spent(requests=1, possibly_pico_usd=int(pico_usd))
    return Spent(
        requests=1,
        unpriced_prompt_tokens=int(prompt_tokens),
        unpriced_completion_tokens=int(completion_tokens),
    )


def _damaged(lines: list[bytes]) -> int:
    """How many of these lines come before the first that is no JSON object."""
    for number, line in enumerate(lines):
        try:
            if not isinstance(json.loads(line), dict):
                return number
        except ValueError:
            return number
    return 0
