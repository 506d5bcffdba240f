"""Two processes, or two engines, on one cache never ask the same question at once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
from anyio import lowlevel

from claimscore.cache.in_flight_locks import InFlightLocks
from claimscore.cache.store import DiskCache
from claimscore.types import Completion, Message, Request
from tests.support.engine_doubles import FakeProvider, completion, make

pytestmark = pytest.mark.anyio

KEY, OTHER = "a1" * 32, "b2" * 32

HOLD = """
import sys
from pathlib import Path
from claimscore.cache.in_flight_locks import InFlightLocks
locks = InFlightLocks(Path(sys.argv[1]))
print(locks.try_lock(sys.argv[2]), flush=True)
sys.stdin.read()
"""


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "in-flight"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), KEY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"True\n"
    locks = InFlightLocks(path)
    assert not locks.try_lock(KEY)
    assert locks.try_lock(OTHER)
    holder.kill()
    holder.communicate()
    assert locks.try_lock(KEY)


def test_where_nothing_can_be_locked_nothing_is(tmp_path: Path) -> None:
    locks = InFlightLocks(tmp_path / "none" / "in-flight")
    assert locks.try_lock(KEY)
    locks.unlock(KEY)
    locks.close()


async def test_engines_that_ask_the_same_at_the_same_time(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()

    async def reply(request: Request) -> Completion:
        asked[request.messages[-1].content] += 1
        for _ in range(20):
            await lowlevel.checkpoint()
        return completion(request.messages[-1].content)

    found: list[list[str]] = []

    async def ask() -> None:
        cache = DiskCache(tmp_path / "cache")
        async with make(FakeProvider(reply), cache, max_concurrency=4) as engine:
            requests = [engine.request([Message("user", str(n))]) for n in range(100)]
            outcomes = await engine.answer_all(requests, lambda answer: answer.text)
        cache.close()
        found.append([outcome.value for outcome in outcomes])  # type: ignore[union-attr]

    async with anyio.create_task_group() as engines:
        for _ in range(3):
            engines.start_soon(ask)
    assert asked == {str(n): 1 for n in range(100)}
    assert found == [[str(n) for n in range(100)]] * 3
