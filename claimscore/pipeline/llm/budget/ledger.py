"""The spending of a run, in a file that a kill at any moment leaves true.

    {"reserve":17,"pico_usd":139000000}
    {"settle":[16,17],"requests":2,"prompt_tokens":410,"completion_tokens":61,"pico_usd":...}

A request is written down at its worst price before it is sent, `null` where none is known; what it
really cost follows in groups. A reservation that was never settled counts in full: its request may
have been answered and billed although the process that sent it was killed. Each line is one write
at the end of the file, without a sync: it outlives the process, but not a power cut.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from claimscore.atomic import os_errors, reason
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.types import JSON

#: The name of a run's ledger in its state folder.
SPEND_FILE = "spend.jsonl"

#: Costs are whole picodollars, so that sums are exact: a millionth of a dollar a million tokens.
PICO = 10**12


@dataclasses.dataclass(slots=True)
class Spent:
    """Sums over requests that have ended: counts, tokens as servers reported them, picodollars.

    `possibly_pico_usd` is what may have been billed though no answer came. Of the prompt tokens
    servers had `cached_prompt_tokens` in a cache of their own. Of `answers_at_most` it is not
    known what they cost, only the most that they can have cost, and that counts. `unpriced` are
    requests that cost something, nothing tells what.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    pico_usd: int = 0
    possibly_pico_usd: int = 0
    answers_at_most: int = 0
    cached_prompt_tokens: int = 0
    unpriced: int = 0

    def add(self, other: Spent) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def worst_pico_usd(self) -> int:
        """Picodollars that were or may have been billed."""
        return self.pico_usd + self.possibly_pico_usd

    @property
    def usd(self) -> float | None:
        """Dollars of the answers; None where the price of one is not known."""
        return None if self.unpriced else self.pico_usd / PICO

    @property
    def possibly_billed_usd(self) -> float:
        """Dollars that may have been billed besides."""
        return self.possibly_pico_usd / PICO

    def to_json(self) -> JSON:
        """The sums as people read them, in dollars."""
        counts = ("requests", "prompt_tokens", "completion_tokens", "usd", "possibly_billed_usd")
        names = (*counts, "answers_at_most", "cached_prompt_tokens")
        return {name: getattr(self, name) for name in names}


_COUNTS = tuple(field.name for field in dataclasses.fields(Spent))


def in_doubt(pico_usd: int | None) -> Spent:
    """A request that was sent and whose answer never came, with the most that it can have cost."""
    return Spent(1, possibly_pico_usd=pico_usd or 0, unpriced=int(pico_usd is None))


class Ledger:
    """The one writer of a ledger, and what its lines come to; without a path, in memory alone.

    `earlier` is what was in it when it was opened, `now` what has ended since; `open` has what is
    reserved for requests in flight, by their numbers, and `held_pico` is the sum of that. Settled
    requests wait for `flush`, which another thread may call.

    A half line at the end, which a full disk or a power cut leaves, does not count: nothing was
    sent before its line was whole. A line before the last that cannot be read is a `ConfigError`:
    whatever it said is lost, so nothing that could be counted in its place is certain to be
    enough. No other process may have it open: the lock of its run directory sees to that.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.earlier, self.now = Spent(), Spent()
        self.open: dict[int, int | None] = {}
        self.held_pico = self._n_reserved = self._size = 0
        self._unwritten: tuple[list[int], Spent] = ([], Spent())
        self._mutex = threading.Lock()
        self._file: int | None = None
        if path is not None:
            self.earlier, self._n_reserved, self._size = read_ledger(path)
            with os_errors(path):
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def reserve(self, pico_usd: int | None) -> int:
        """Write down what a request may cost at most; its number, once that is in the file."""
        with self._mutex:
            number = self._n_reserved + 1
            self._append({"reserve": number, "pico_usd": pico_usd})
            self._n_reserved = number
            self.open[number] = pico_usd
            self.held_pico += pico_usd or 0
            return number

    def settle(self, number: int, spent: Spent) -> None:
        """Put what a request really cost in the place of its reservation."""
        with self._mutex:
            self.held_pico -= self.open.pop(number) or 0
            self.now.add(spent)
            self._unwritten[0].append(number)
            self._unwritten[1].add(spent)

    def flush(self) -> None:
        """Write what was settled since the last time as one line.

        Raises `StoppedEarly` where that cannot be written; the next call tries again.
        """
        with self._mutex:
            numbers, spent = self._unwritten
            if numbers:
                self._append({"settle": numbers, **_counts(spent)})
                self._unwritten = ([], Spent())

    def _append(self, entry: JSON) -> None:
        """One write; `StoppedEarly` where there is no room: the next one takes its place."""
        if self._file is None:
            return
        data = _line(entry)
        try:
            is_whole = os.pwrite(self._file, data, self._size) == len(data)
        except OSError as exc:
            raise StoppedEarly(f"{self.path}: spending cannot be recorded: {reason(exc)}") from exc
        if not is_whole:
            raise StoppedEarly(f"{self.path}: spending cannot be recorded: the disk is full")
        self._size += len(data)


def read_ledger(path: Path) -> tuple[Spent, int, int]:
    """What a ledger says so far, while the run goes on or after; changes nothing."""
    if not path.exists():
        return Spent(), 0, 0
    with os_errors(path), path.open("rb") as lines:
        return _parsed(lines, str(path))


def _parsed(lines: Iterable[bytes], name: str) -> tuple[Spent, int, int]:
    """What lines come to, the last number of a reservation, and the bytes of all whole lines.

    Reservations without a settlement count in full as possibly billed. Raises `ConfigError`, with
    `name` and the line, where one is none of a ledger.
    """
    spent, last_number, size = Spent(), 0, 0
    reserved: dict[int, int | None] = {}
    for n_line, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break
        try:
            entry = orjson.loads(line)
            if number := entry.get("reserve"):
                pico_usd = entry["pico_usd"]
                reserved[number] = None if pico_usd is None else _amount(pico_usd)
                last_number = operator.index(number)
            else:
                for number in entry.pop("settle"):
                    del reserved[number]
                spent.add(Spent(**{count: _amount(value) for count, value in entry.items()}))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ConfigError(
                f"{name}, line {n_line}: damaged; what the run has spent cannot be told. Move the "
                "file away to count from nothing"
            ) from None
        size += len(line)
    return _total([spent, *map(in_doubt, reserved.values())]), last_number, size


def _total(parts: Iterable[Spent]) -> Spent:
    total = Spent()
    for part in parts:
        total.add(part)
    return total


def _line(entry: JSON) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _amount(value: Any) -> int:
    """A count or a sum; `ValueError` for one that no run can have, as a negative one."""
    if not 0 <= value < 1 << 100:
        raise ValueError(f"no amount: {value}")
    return int(value)


def _counts(spent: Spent) -> JSON:
    return {name: value for name in _COUNTS if (value := getattr(spent, name))}
