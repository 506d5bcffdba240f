"""Several servers as one: the share of each, servers that are left out, and no row lost.

In virtual time, so that shares are counts and not measurements.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from claimscore.errors import OutageError, RateLimitError, TransientError
from claimscore.pipeline.llm.endpoints import Attempts
from claimscore.types import Request
from tests.support.server_doubles import Crowd, Down, TimedServer, question
from tests.support.virtual_time import VIRTUAL_TIME

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL_TIME


@pytest.fixture(autouse=True)
def same_draws_each_time() -> None:
    random.seed(7)


def at(*latencies_s: float, **options: Any) -> list[TimedServer]:
    return [
        TimedServer(f"gpu{number}", seconds, **options)
        for number, seconds in enumerate(latencies_s, 1)
    ]


def close_to(shares: Sequence[float], capacities: Sequence[float], tolerance: float) -> bool:
    """Each share within a part of what its server can do."""
    whole = sum(capacities)
    return all(
        abs(share / (capacity / whole) - 1) <= tolerance
        for share, capacity in zip(shares, capacities, strict=True)
    )


# -- shares


@pytest.mark.parametrize("slots", [1, 16])
async def test_with_all_slots_in_use_each_answers_what_it_can(slots: int) -> None:
    crowd = Crowd(*at(0.05, 0.1, 0.2), slots=slots)
    end_s = 40 / slots
    await crowd.ask(10**6, in_flight=3 * slots, until_s=end_s)
    assert close_to(crowd.shares(end_s / 5, end_s), (4, 2, 1), 0.05)
    assert all(server.most_in_flight == slots for server in crowd.servers)


# -- down


@pytest.mark.parametrize("kind", ["connect", "status", "timeout"])
async def test_one_that_dies_is_left_out_and_loses_no_row(kind: Any) -> None:
    down = Down(6, 10**6, TransientError("gone", kind))
    crowd = Crowd(*at(0.5, 1), TimedServer("dying", 1, down=[down]), slots=16)
    await crowd.ask(900, in_flight=48)
    dying = crowd.servers[2]
    assert crowd.outcomes == {"answered": 900}
    n_probes = sum(moment > 6 for moment, _ in dying.asked)
    assert 1 <= n_probes < 20
    assert crowd.asked_again().total() == 16 + n_probes
    assert close_to(crowd.shares(2, 6), (4, 2, 2), 0.1)
    assert close_to(crowd.shares(7, 14)[:2], (2, 1), 0.1)
    assert crowd.kinds() == ["first retry", "server down"]
    assert crowd.events[1][2]["server"] == "http://dying/v1"


async def test_what_a_row_met_at_a_server_that_died_does_not_count() -> None:
    """Each server fails a few rows before it is known to be down; the same row may be among
    those of several, and must not be given up for it."""
    crowd = Crowd(*at(1, 1, 1), attempts=3)
    attempts = Attempts(3)
    error = TransientError("gone", "status")
    endpoints = crowd.dispatcher.endpoints
    for endpoint, rows in zip(endpoints, ("rabcd", "rabcd", "r"), strict=True):
        for row in rows:
            endpoint.failed(row, error, attempts if row == "r" else Attempts(3))
    assert [endpoint.is_down for endpoint in endpoints] == [True, True, False]
    assert (attempts.used, attempts.exhausted) == (1, False)


@pytest.mark.parametrize("lasts_s", [5.0, 20.0, 120.0, 1200.0])
@pytest.mark.parametrize("kind", ["connect", "status", "dropped"])
async def test_an_outage_costs_few_probes_and_is_noticed_to_be_over_soon(
    kind: Any, lasts_s: float
) -> None:
    """Of one server: noticed within an eighth of the time it was gone, with few probes, one at a
    time, and no row lost."""
    down = Down(3, 3 + lasts_s, TransientError("gone", kind))
    server = TimedServer("only", 0.1, down=[down])
    crowd = Crowd(server, slots=8)
    await crowd.ask(400, in_flight=8)
    assert crowd.outcomes == {"answered": 400}
    assert crowd.kinds() == ["first retry", "outage began", "outage ended"]
    late_s = next(moment for moment, _ in server.asked if moment >= down.to_s) - down.to_s
    assert late_s <= max(1.3, lasts_s / 8)
    assert sum(3.2 < moment < down.to_s for moment, _ in server.asked) <= 30 + lasts_s / 15
    assert server.most_in_flight == 8


async def test_an_outage_begins_when_all_are_down() -> None:
    crowd = Crowd(
        TimedServer("a", 0.5, down=[Down(5, 10**6)]),
        TimedServer("b", 0.5, down=[Down(100, 10**6)]),
        max_outage_s=30,
    )
    await crowd.ask(10**6, in_flight=8)
    assert isinstance(crowd.reason, OutageError)
    ended_s = max(moment for server in crowd.servers for moment, _ in server.asked)
    assert 130 <= ended_s < 140
    assert "outage began" in crowd.kinds()
    assert set(crowd.outcomes) == {"answered"}


async def test_when_all_come_back_in_time_the_run_goes_on() -> None:
    crowd = Crowd(*at(0.5, 0.5, down=[Down(5, 65)]), max_outage_s=100)
    await crowd.ask(300, in_flight=8)
    assert crowd.outcomes == {"answered": 300}
    assert {"outage began", "outage ended"} <= set(crowd.kinds())
    n_probes = sum(6 < moment < 65 for server in crowd.servers for moment, _ in server.asked)
    assert n_probes < 60


# -- what fails


def poison(*numbers: int) -> Any:
    def fault(request: Request) -> TransientError | None:
        bad = request.messages[0].content in set(map(str, numbers))
        return TransientError("HTTP 500", "status") if bad else None

    return fault


async def test_a_poisonous_request_is_a_failure_and_no_outage() -> None:
    """It is asked of every server, and given up after as many attempts as at one; those that are
    left alone at the end do not look like an outage of all."""
    crowd = Crowd(*at(0.1, 0.1, 0.1, fault=poison(110, 111, 112, 113, 114, 290, 291)))
    await crowd.ask(300, in_flight=30)
    assert crowd.outcomes == {"answered": 293, "failed": 7}
    assert not any("down" in kind or "outage" in kind for kind in crowd.kinds())
    assert crowd.asked_again().most_common(1)[0][1] == 7


async def test_what_fails_at_one_is_asked_of_the_others() -> None:
    """A server that answers the half of what it is asked costs no row, though it is never taken
    to be down."""

    def half(request: Request) -> TransientError | None:
        even = int(request.messages[0].content) % 2
        return TransientError("HTTP 500", "status") if even else None

    crowd = Crowd(TimedServer("bad", 0.01, fault=half), *at(0.1, 0.1), slots=4)
    await crowd.ask(500, in_flight=12)
    assert crowd.outcomes == {"answered": 500}
    assert set(crowd.asked_again().values()) == {1}


async def test_a_limit_of_one_is_not_waited_for_where_another_is_free() -> None:
    def busy(request: Request) -> RateLimitError:
        return RateLimitError("too fast", 60.0)

    crowd = Crowd(TimedServer("busy", 0.1, fault=busy), *at(0.1))
    await crowd.ask(100, in_flight=10)
    assert crowd.outcomes == {"answered": 100}
    assert crowd.servers[1].answered[-1][0] < 3


# -- waiting


async def test_who_stops_waiting_leaves_everything_free() -> None:
    crowd = Crowd(*at(0.1, 0.1), slots=2)

    async def one(number: int, give_up_s: float) -> None:
        with anyio.move_on_after(give_up_s):
            await crowd.ask_one(question(str(number)))

    async with anyio.create_task_group() as background:
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(one, number, random.choice([0.0, 0.1, 0.1, 0.2, 0.25, 0.3, 5]))
        assert [server.in_flight for server in crowd.dispatcher.servers()] == [0, 0]
        assert crowd.stats.in_flight == 0
        for number in range(4):  # all four slots can be had at once
            background.start_soon(one, number, 10)
        await anyio.sleep(0.05)
        assert [server.in_flight for server in crowd.dispatcher.servers()] == [2, 2]
        crowd.stop.halt(RuntimeError("done"))
