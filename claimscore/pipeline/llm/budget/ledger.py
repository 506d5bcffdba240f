"""The spending of a run, in a file that a kill at any moment leaves true.

    {"reserve":17,"prompt_tokens":912,"completion_tokens":256,"pico_usd":139000000}
    {"settle":[16,17],"requests":2,"prompt_tokens":410,"completion_tokens":61,"pico_usd":...}

With a cap, a request is written down at its worst price before it is sent; what it really
cost follows in groups. A reservation that was never settled counts in full: its request may
have been answered and billed although the process that sent it was killed. Each line is one write
at the end of the file, without a sync: it outlives the process, but not a power cut.

A run in an object store keeps its ledger on this machine and a short form of it in the store: one
line with the sums, and with a cap one reservation for many requests (`Allowance`). Another
machine goes on from that short form as from any ledger.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from claimscore.atomic import os_errors, reason
from claimscore.errors import ConfigError, StoppedEarly
from claimscore.file_lock import FileLock


@dataclasses.dataclass(slots=True)
class Spent:
    """Sums over settled requests. Dollars are whole picodollars.

    `possibly` is what may have been billed though no answer came. Tokens of requests whose
    price was not known are `unpriced`, as the most that they can have been. `without_usage` are
    answers whose tokens the server did not tell: they are counted at their most. Of the prompt
    tokens `cached_prompt_tokens` came from the server's own cache.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    pico_usd: int = 0
    possibly_pico_usd: int = 0
    unpriced_prompt_tokens: int = 0
    unpriced_completion_tokens: int = 0
    without_usage: int = 0
    cached_prompt_tokens: int = 0

    def add(self, other: Spent) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def worst_pico_usd(self) -> int:
        """Picodollars that were or may have been billed."""
        return self.pico_usd + self.possibly_pico_usd


_COUNTS = tuple(field.name for field in dataclasses.fields(Spent))


class Allowance:
    """How far a run in an object store may go before the store must say so.

    The ledger is on one machine and its short form in the store is seconds behind. So the store
    holds one reservation for many requests before the first of them is sent: a machine that goes
    on after a kill and has only the store counts all of it as spent, and passes no cap.

    `step_requests` and `step_pico` are its size; 0 is no bound. `write_through`,
    called in a thread, puts the short form of the ledger, reservation included, into the store.
    """

    def __init__(
        self, write_through: Callable[[], None], step_requests: int, step_pico: int
    ) -> None:
        self._write_through = write_through
        self._steps = (step_requests, step_pico)
        self._allowed = (0, 0)
        self._extending = anyio.Lock()
        #: The sums that the store holds or is about to hold; None once the run has ended well.
        self.reserved: tuple[int, int] | None = None

    def covers(self, requests: int, pico_usd: int) -> bool:
        """Whether the run may come to these sums, earlier calls included, without asking."""
        sums = (requests, pico_usd)
        return all(
            not step or value <= allowed
            for value, allowed, step in zip(sums, self._allowed, self._steps, strict=True)
        )

    async def extend(self, requests: int, pico_usd: int) -> None:
        """Return once the store allows these sums and a step more.

        Raises `StoppedEarly` or `ConfigError` where the store cannot be written.
        """
        async with self._extending:
            if not self.covers(requests, pico_usd):
                self.reserved = (requests + self._steps[0], pico_usd + self._steps[1])
                await anyio.to_thread.run_sync(self._write_through)
                self._allowed = self.reserved


class Ledger:
    """The one writer of a ledger; `earlier` is what was in it when it was opened.

    Threads may share it. A half line at the end, which a full disk or a power cut leaves, is
    taken away: nothing was sent before its line was whole. A line before the last that cannot
    be read is a `ConfigError`: whatever it said is lost, so nothing that could be counted in
    its place is certain to be enough. A second process that opens it gets a `ConfigError`.
    """

    def __init__(self, path: Path, allowance: Allowance | None = None) -> None:
        self.path = path
        self.allowance = allowance
        self._mutex = threading.Lock()
        with os_errors(path):
            lock = FileLock.take(path)
            if lock is None:
                raise ConfigError(f"{path} is in use by another process; wait for it, or stop it")
            self._lock = lock
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            self._content = _Content(str(path))
            self._size = self._content.read(path)
            with os_errors(path):
                os.ftruncate(self._descriptor, self._size)
        except BaseException:
            self.close()
            raise
        self._next = self._content.last_number + 1
        self.earlier = self._content.spent()

    def close(self) -> None:
        os.close(self._descriptor)
        self._lock.release()

    def reserve(self, prompt_tokens: int, completion_tokens: int, pico_usd: int | None) -> int:
        """Write down what a request may cost at most; its number, when that is in the file."""
        price = "null" if pico_usd is None else pico_usd
        with self._mutex:
            number = self._next
            self._append(
                f'{{"reserve":{number},"prompt_tokens":{prompt_tokens},'
                f'"completion_tokens":{completion_tokens},"pico_usd":{price}}}\n'
            )
            self._next += 1
            self._content.open[number] = _reserved(1, prompt_tokens, completion_tokens, pico_usd)
            return number

    def settle(self, numbers: Iterable[int], spent: Spent) -> None:
        """Put what requests really cost in the place of their reservations."""
        settled = list(numbers)
        line = _settlement(settled, spent)
        with self._mutex:
            self._append(line)
            self._content.settle(settled, spent)

    def short_form(self, machine: str) -> bytes:
        """A ledger of two lines that says the same; `machine` names the one that has the long form.

        Reservations in flight are part of what `allowance` has reserved; without one they
        count as possibly billed.
        """
        with self._mutex:
            spent = self._content.spent()
        content = _settlement([], spent, machine)
        reserved = None if self.allowance is None else self.allowance.reserved
        if reserved is not None:
            requests = max(0, reserved[0] - spent.requests)
            pico_usd = max(0, reserved[1] - spent.worst_pico_usd)
            line = {"reserve": 1, "requests": requests, "prompt_tokens": 0, "completion_tokens": 0}
            content += json.dumps({**line, "pico_usd": pico_usd}) + "\n"
        return content.encode()

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
    """The sums of a ledger so far, while the run goes on or after; changes nothing."""
    content = _Content(str(path))
    if path.exists():
        content.read(path)
    return content.spent()


def parse_spent(short_form: bytes, name: str) -> tuple[Spent, str]:
    """The sums of a short form, its reservation included, and the machine that it names.

    Raises `ConfigError`, with `name`, where it is none.
    """
    content = _Content(name)
    for line in short_form.splitlines():
        content.take(line)
    return content.spent(), content.machine


class _Content:
    """The lines of a ledger as sums: settled requests, and by number those that are `open`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._settled = Spent()
        self._n_lines = 0
        self.open: dict[int, Spent] = {}
        self.last_number = 0
        self.machine = ""

    def spent(self) -> Spent:
        """All of it, reservations without a settlement in full as possibly billed."""
        total = dataclasses.replace(self._settled)
        for spent in self.open.values():
            total.add(spent)
        return total

    def read(self, path: Path) -> int:
        """Take all whole lines of a file; the byte at which they end."""
        size = 0
        with os_errors(path), path.open("rb") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                self.take(line)
                size += len(line)
        return size

    def take(self, line: bytes) -> None:
        """Take one more line; `ConfigError` where it is none of a ledger."""
        self._n_lines += 1
        try:
            self._apply(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ConfigError(
                f"{self._name}, line {self._n_lines}: damaged; what the run has spent cannot be "
                "told. Move the file away to count from nothing"
            ) from None

    def _apply(self, entry: dict[str, Any]) -> None:
        if "reserve" in entry:
            number = int(entry["reserve"])
            self.open[number] = _reserved(
                _amount(entry.get("requests", 1)),
                _amount(entry["prompt_tokens"]),
                _amount(entry["completion_tokens"]),
                None if entry["pico_usd"] is None else _amount(entry["pico_usd"]),
            )
            self.last_number = max(self.last_number, number)
            return
        self.settle(
            entry["settle"], Spent(**{name: _amount(entry.get(name, 0)) for name in _COUNTS})
        )
        self.machine = entry.get("machine", self.machine)

    def settle(self, numbers: Iterable[int], spent: Spent) -> None:
        for number in numbers:
            del self.open[number]
        self._settled.add(spent)


def _amount(value: Any) -> int:
    """A count or a sum; `ValueError` for one that no run can have, as a negative one."""
    if not 0 <= value < 1 << 100:
        raise ValueError(f"no amount: {value}")
    return int(value)


def _settlement(numbers: list[int], spent: Spent, machine: str = "") -> str:
    counts = {name: value for name in _COUNTS if (value := getattr(spent, name))}
    named = {"machine": machine} if machine else {}
    return json.dumps({"settle": numbers, **named, **counts}, separators=(",", ":")) + "\n"


def _reserved(
    requests: int, prompt_tokens: int, completion_tokens: int, pico_usd: int | None
) -> Spent:
    """Requests that may have been sent and billed."""
    if pico_usd is not None:
        return Spent(requests=requests, possibly_pico_usd=pico_usd)
    return Spent(
        requests=requests,
        unpriced_prompt_tokens=prompt_tokens,
        unpriced_completion_tokens=completion_tokens,
    )
