"""`Services` letter by letter: what is obeyed, what is answered, who is told to join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from claimscore.cache.entry import Entry, encode_entry
from claimscore.cache.store import DiskCache
from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.services.head import Services
from claimscore.pipeline.llm.services.letters import Lane, checked, error_of, reason_of
from tests.pipeline.llm.fakes import completion
from tests.pipeline.llm.services.post import Run

pytestmark = pytest.mark.anyio

KEY, OTHER = "a" * 64, "b" * 64
ENTRY = encode_entry(KEY, Entry(completion("yes")))
SPENT = ("spent", 0, 1, 10, 5, 0, 0, 10, 5, 0)


class Writer:
    """Somebody who writes letters by hand."""

    def __init__(self, services: Services, name: str) -> None:
        self._services = services
        self._name = name
        self._numbers: dict[Lane, int] = {"quick": 0, "keep": 0}

    async def join(self, *keys: str) -> None:
        await self._services.handle((self._name, "quick", 0, [("join", list(keys), [])]))

    async def __call__(self, lane: Lane, *ops: tuple[Any, ...], number: int = 0) -> Any:
        """The results, or None where the services ask who this is."""
        self._numbers[lane] = number or self._numbers[lane] + 1
        reply = await self._services.handle((self._name, lane, self._numbers[lane], list(ops)))
        return reply[3] if reply[0] == "ok" else None


async def test_a_letter_that_comes_again_is_obeyed_once(tmp_path: Path) -> None:
    """And answered as before, from then on until the next one; an older one never."""
    run = Run(tmp_path, LLMConfig())
    services = run.start()
    write = Writer(services, "a")
    await write.join()
    for _ in range(2):
        assert await write("keep", SPENT, ("put", KEY, ENTRY), number=5) == [None, None]
        assert await write("quick", ("begin", OTHER), number=3) == [True]
    assert services.spent().requests == 1
    await write("keep", SPENT, number=6)
    await write("keep", SPENT, number=5)
    assert services.spent().requests == 2
    run.end()


async def test_a_letter_that_comes_again_too_early_waits(tmp_path: Path) -> None:
    """For what the first one comes to; it is no reason to begin anew."""
    run = Run(tmp_path, LLMConfig())
    services = run.start()
    await Writer(services, "a").join()
    found = []

    async def send() -> None:
        found.append(await services.handle(("a", "keep", 1, [SPENT, ("put", KEY, ENTRY)])))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(send)
    assert [(reply[0], reply[3]) for reply in found] == [("ok", [None, None])] * 3
    assert services.spent().requests == 1
    run.end()


async def test_a_stranger_is_asked_to_join(tmp_path: Path) -> None:
    """Nothing of the letter is done before."""
    run = Run(tmp_path, LLMConfig())
    services = run.start()
    write = Writer(services, "a")
    assert await write("keep", SPENT) is None
    assert services.spent().requests == 0
    await write.join()
    assert await write("keep", SPENT) == [None]
    run.end()


async def test_after_a_restart_no_key_is_given_to_two(tmp_path: Path) -> None:
    """Until everybody has said what it holds, stored answers are all that there is."""
    run = Run(tmp_path, LLMConfig())
    services = run.start()
    a, b = Writer(services, "a"), Writer(services, "b")
    await a.join()
    await b.join()
    assert await a("quick", ("begin", KEY)) == [True]
    assert await b("keep", ("put", OTHER, ENTRY)) == [None]
    run.kill()
    services = run.start()
    a, b = Writer(services, "a"), Writer(services, "b")
    await b.join()
    assert await b("quick", ("begin", OTHER), ("begin", KEY), ("begin", "c" * 64)) == [
        ENTRY,
        False,
        False,
    ]
    await a.join(KEY)
    assert await b("quick", ("begin", KEY), ("begin", "c" * 64)) == [False, True]
    assert await a("keep", ("put", KEY, ENTRY)) == [None]
    assert await b("quick", ("begin", KEY)) == [ENTRY]
    run.end()


async def test_after_a_restart_what_is_in_flight_may_still_make_room(tmp_path: Path) -> None:
    """A member that comes back has its grants again: others wait to see what becomes of them."""
    run = Run(tmp_path, LLMConfig(max_requests=1))
    write = Writer(run.start(), "a")
    await write.join()
    ((number, pico),) = await write("quick", ("reserve", 10, 5, 0))
    run.kill()
    services = run.start()
    write, other = Writer(services, "a"), Writer(services, "b")
    await other.join()
    await services.handle(("a", "quick", 0, [("join", [], [(number, 10, 5, pico)])]))
    assert await other("quick", ("reserve", 10, 5, 0)) == [0]
    assert await write("keep", ("spent", number, 0, 0, 0, 0, 0, 0, 0, 0)) == [None]
    assert isinstance((await other("quick", ("reserve", 10, 5, 0)))[0], tuple)
    run.end()


async def test_claims_hold_against_other_processes_too(tmp_path: Path) -> None:
    """A local run with the same cache folder waits, and is waited for."""
    run = Run(tmp_path, LLMConfig())
    write, local = Writer(run.start(), "a"), DiskCache(tmp_path / "cache")
    await write.join()
    assert await write("quick", ("begin", KEY)) == [True]
    assert not local.claim(KEY)
    await write("quick", ("end", KEY))
    assert local.claim(KEY)
    assert await write("quick", ("begin", KEY)) == [False]
    local.put_many({KEY: Entry(completion("yes"))})
    local.release(KEY)
    assert isinstance((await write("quick", ("begin", KEY)))[0], bytes)
    assert await write("quick", ("begin", OTHER)) == [True]
    assert not local.claim(OTHER)
    await write("keep", ("put", OTHER, ENTRY))
    assert local.claim(OTHER)
    local.close()
    run.end()


async def test_an_answer_that_cannot_be_kept_is_an_error_of_its_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its member hears it, as class and text; the others are not concerned."""
    run = Run(tmp_path, LLMConfig())
    write = Writer(run.start(), "a")
    await write.join()
    monkeypatch.setattr(DiskCache, "read_only", True)
    (result,) = await write("keep", ("put", KEY, ENTRY))
    with pytest.raises(ConfigError, match="cannot be kept"):
        checked(result)
    run.end()


async def test_more_members_write_less_often(tmp_path: Path) -> None:
    """All together send about as many letters as before."""
    run = Run(tmp_path, LLMConfig())
    services = run.start()
    for number in range(100):
        await Writer(services, str(number)).join()
    reply = await services.handle(("0", "quick", 1, [("get", [])]))
    assert reply[2] == pytest.approx(0.2)
    run.end()


def test_errors_survive_the_post() -> None:
    """Ours keep class and text; a bug is told as one, an unknown class stops the run."""
    assert type(error_of(reason_of(ConfigError("no")))) is ConfigError
    assert str(error_of(reason_of(ValueError("x")))) == "ValueError: x"
    assert str(error_of(("Path", "odd"))) == "odd"
