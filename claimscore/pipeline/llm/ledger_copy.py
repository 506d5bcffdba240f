"""A ledger in few lines that say the same, for a copy that another machine can go on with."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from claimscore.atomic import os_errors
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.ahead import Sums
from claimscore.pipeline.llm.ledger import Spent

_COUNTS = tuple(field.name for field in dataclasses.fields(Spent))

#: Lines that are read at a time.
_BLOCK_LINES = 2000


class ShortLedger:
    """The sums of what was settled, and the reservations that were not; `name` is for errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._settled: Counter[str] = Counter()
        self._open: dict[int, dict[str, Any]] = {}

    @classmethod
    def of(cls, content: bytes, name: str) -> ShortLedger:
        """What a ledger's content says."""
        ledger = cls(name)
        ledger.take(content.splitlines())
        return ledger

    def take(self, lines: Iterable[bytes]) -> None:
        """Count more lines; `ConfigError` where one is none of a ledger."""
        try:
            for entry in json.loads(b"[" + b",".join(lines) + b"]"):
                self._apply(entry)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(
                f"{self._name}: damaged; what the run has spent cannot be told. "
                "Move it away to count from nothing"
            ) from None

    def _apply(self, entry: dict[str, Any]) -> None:
        if "reserve" in entry:
            self._open[int(entry["reserve"])] = entry
            return
        for number in entry["settle"]:
            del self._open[number]
        self._settled.update({name: int(entry.get(name, 0)) for name in _COUNTS})

    def content(self) -> bytes:
        """The lines, of which there is one more than there are open reservations."""
        lines = [{"settle": [], **self._settled}, *self._open.values()]
        return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)

    def sums(self) -> Sums:
        """What it comes to, reservations in full."""
        settled = self._settled
        pico = settled["pico_usd"] + settled["possibly_pico_usd"]
        pico += sum(int(entry["pico_usd"] or 0) for entry in self._open.values())
        return Sums(settled["requests"] + len(self._open), pico)

    def is_further_than(self, other: ShortLedger) -> bool:
        """Whether, if both are states of one ledger, this is the later one."""
        return self._progress() > other._progress()

    def _progress(self) -> tuple[int, int, int]:
        """Requests, then those of them that are settled, then money: each only grows."""
        settled = self._settled["requests"]
        cost = self._settled["pico_usd"] + self._settled["possibly_pico_usd"]
        return settled + len(self._open), settled, cost


class LedgerCopy:
    """Gives the short ledger of a file that grows: called again, it reads what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._short = ShortLedger(str(path))
        self._size = 0
        self._given = b""

    def __call__(self) -> bytes | None:
        """The content; None where it is what it was the last time, or there is no file."""
        self.read_on()
        content = self._short.content()
        if not self._size or content == self._given:
            return None
        self._given = content
        return content

    def read_on(self) -> ShortLedger:
        """What all whole lines of the file say now."""
        with os_errors(self._path):
            if not self._path.exists():
                return self._short
            with self._path.open("rb") as stream:
                stream.seek(self._size)
                while lines := list(itertools.islice(stream, _BLOCK_LINES)):
                    whole = [line for line in lines if line.endswith(b"\n")]
                    self._short.take(whole)
                    self._size += sum(map(len, whole))
        return self._short
