"""What a run is waiting for, at hardly any cost."""

from __future__ import annotations

import timeit

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.llm.inflight import InFlight
from tests.pipeline.llm.fakes import VirtualClock


def test_the_oldest_is_the_one_that_is_out_longest():
    """With its age, whatever has come and gone since."""
    clock = VirtualClock()
    in_flight = InFlight(clock)
    tokens = []
    for key in ("a", "b", "c"):
        tokens.append(in_flight.enter(key))
        clock.now += 10
    assert (in_flight.oldest(), len(in_flight)) == (("a", 30), 3)
    in_flight.leave(tokens[0])
    in_flight.leave(tokens[2])
    assert (in_flight.oldest(), len(in_flight)) == (("b", 20), 1)


def test_nothing_in_flight_has_no_oldest():
    """Before the first request and after the last."""
    in_flight = InFlight()
    assert (in_flight.oldest(), len(in_flight)) == (None, 0)
    in_flight.leave(in_flight.enter("a"))
    assert (in_flight.oldest(), len(in_flight)) == (None, 0)


def test_one_key_may_be_out_twice():
    """Each time has its own token."""
    in_flight = InFlight()
    first, second = in_flight.enter("a"), in_flight.enter("a")
    in_flight.leave(second)
    assert len(in_flight) == 1
    in_flight.leave(first)
    assert len(in_flight) == 0


def test_leaving_twice_is_a_bug():
    """It would hide that something else was never taken away."""
    in_flight = InFlight()
    token = in_flight.enter("a")
    in_flight.leave(token)
    with pytest.raises(KeyError):
        in_flight.leave(token)


@pytest.mark.anyio
async def test_who_waits_for_all_to_land_is_woken_by_the_last_one():
    """At once where nothing is out."""
    in_flight = InFlight()
    await in_flight.landed()
    tokens = [in_flight.enter("a"), in_flight.enter("b")]
    landed = []

    async def wait() -> None:
        await in_flight.landed()
        landed.append(len(in_flight))

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        in_flight.leave(tokens[0])
        await anyio.wait_all_tasks_blocked()
        assert landed == []
        in_flight.leave(tokens[1])
    assert landed == [0, 0]


@given(st.lists(st.integers(0, 9)))
def test_it_always_knows_who_is_out(steps: list[int]):
    """Against a plain list: enter, or leave the n-th of those that are out."""
    clock = VirtualClock()
    in_flight, out = InFlight(clock), []
    for n in steps:
        clock.now += 1
        if n < len(out):
            in_flight.leave(out.pop(n)[0])
        else:
            out.append((in_flight.enter(str(clock.now)), clock.now))
        oldest = (str(out[0][1]), clock.now - out[0][1]) if out else None
        assert (in_flight.oldest(), len(in_flight)) == (oldest, len(out))


def test_it_costs_next_to_nothing():
    """A microsecond for coming and going; five are allowed here for a busy machine."""
    in_flight = InFlight()
    waiting = [in_flight.enter("waits") for _ in range(128)]
    seconds = min(
        timeit.repeat(lambda: in_flight.leave(in_flight.enter("a")), number=1000, repeat=5)
    )
    assert seconds / 1000 < 5e-6
    assert len(in_flight) == len(waiting)
