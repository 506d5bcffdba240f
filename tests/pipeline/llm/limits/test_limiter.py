"""The queue in front of the limits: its order, and what cancellation leaves behind."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
from anyio import lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.pipeline.llm.limits import Limiter, Permit
from claimscore.types import LimitState, RateLimits
from tests.pipeline.llm.limits.simulation import SimulatedServer, World

pytestmark = pytest.mark.anyio


def make(**settings: object) -> tuple[Limiter, World]:
    world, n_asleep = World(), 0

    async def sleep(seconds: float) -> None:
        nonlocal n_asleep
        n_asleep += 1
        assert n_asleep == 1, "only the head of the queue waits for its turn"
        try:
            await world.sleep(seconds)
        finally:
            n_asleep -= 1

    return Limiter(clock=world, sleep=sleep, **settings), world  # type: ignore[arg-type]


class Crowd:
    """Tasks that reserve, in a known order; each may be cancelled."""

    def __init__(self, limiter: Limiter, world: World) -> None:
        self.served: list[tuple[int, float]] = []
        self.permits: list[Permit] = []
        self.scopes: dict[int, anyio.CancelScope] = {}
        self._limiter = limiter
        self._world = world

    async def join(self, number: int, tokens: int | Callable[[], int] = 0) -> None:
        with anyio.CancelScope() as self.scopes[number]:
            permit = await self._limiter.reserve(tokens)
            self.permits.append(permit)
            self.served.append((number, self._world.now))

    @property
    def order(self) -> list[int]:
        return [number for number, _ in self.served]


async def test_without_limits_nobody_waits():
    """A permit at once, from either method."""
    limiter, world = make(max_concurrency=4)
    for _ in range(10):
        permit = limiter.try_reserve(100)
        assert permit is not None
        limiter.answered(permit, 100, None)
    assert (await limiter.reserve(100)).tokens == 100
    assert world.now == 0


async def test_served_in_the_order_of_asking():
    """Twenty tasks at ten a second: each in its turn."""
    limiter, world = make(rpm=600)
    crowd = Crowd(limiter, world)
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(crowd.join, number)
        await world.run_tasks()
    assert crowd.order == list(range(20))
    assert crowd.served[-1][1] == pytest.approx(1.9, abs=0.1)


async def test_the_fast_path_overtakes_nobody():
    """Even when it is time and the head of the queue has not woken yet."""
    limiter, world = make(rpm=600)
    crowd = Crowd(limiter, world)
    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(crowd.join, number)
        await anyio.wait_all_tasks_blocked()
        world.now += 10
        assert limiter.try_reserve(0) is None
        await world.run_tasks()
        world.now += 10
        assert limiter.try_reserve(0) is not None
    assert crowd.order == [0, 1, 2]


@pytest.mark.parametrize("victim", [1, 2, 3], ids=["head", "second", "last"])
async def test_cancel_while_waiting_takes_nothing(victim: int):
    """The others are served as if it had never been there."""
    limiter, world = make(rpm=600)
    crowd = Crowd(limiter, world)
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(crowd.join, number)
        await anyio.wait_all_tasks_blocked()
        crowd.scopes[victim].cancel()
        await world.run_tasks()
    assert crowd.order == [n for n in range(4) if n != victim]
    assert crowd.served[-1][1] == pytest.approx(0.2, abs=0.02)


async def test_cancel_after_the_head_has_left():
    """The one whose turn has just come is cancelled at that moment: the next goes on."""
    limiter, world = make(rpm=600)
    crowd = Crowd(limiter, world)
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(crowd.join, number)
        await anyio.wait_all_tasks_blocked()
        world.step()  # the sleep of 1 is over
        crowd.scopes[1].cancel()
        crowd.scopes[2].cancel()
        await world.run_tasks()
    assert crowd.order in ([0, 3], [0, 1, 3])


async def test_cancel_all():
    """Nobody waits, nothing is taken, the next one is served."""
    limiter, world = make(rpm=60)
    crowd = Crowd(limiter, world)
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(crowd.join, number)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    world.now += 1.1
    assert limiter.try_reserve(0) is not None


async def test_the_head_wakes_when_a_place_becomes_free():
    """Eight are in flight, the ninth waits for half a second or for an answer."""
    limiter, world = make()
    crowd = Crowd(limiter, world)
    async with anyio.create_task_group() as tasks:
        for number in range(9):
            tasks.start_soon(crowd.join, number)
        world.at(0.05, lambda: limiter.answered(crowd.permits[0], 0, None))
        await world.run_tasks()
    assert crowd.served[-1] == (8, 0.05)


async def test_the_head_wakes_when_headers_show_credit():
    """It was waiting for its turn at ten a second; the server has a whole minute."""
    limiter, world = make(rpm=600)
    crowd = Crowd(limiter, world)
    limits = RateLimits(LimitState(600, 500, 10))
    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(crowd.join, number)
        world.at(0.05, lambda: limiter.answered(crowd.permits[0], 0, limits))
        await world.run_tasks()
    assert crowd.served[-1][1] == pytest.approx(0.05)


async def test_the_head_wakes_when_tokens_come_back():
    """What was reserved and not sent is free for the next."""
    limiter, world = make(tpm=6000)
    crowd = Crowd(limiter, world)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crowd.join, 0, 1000)
        tasks.start_soon(crowd.join, 1, 10)
        world.at(1.0, lambda: limiter.failed(crowd.permits[0], counted=False))
        await world.run_tasks()
    assert crowd.served == [(0, 0.0), (1, 1.0)]


async def test_a_pause_holds_the_head_that_sleeps_already():
    """It wakes, sees the pause and sleeps on; nobody slips by."""
    limiter, world = make(rpm=600)
    crowd = Crowd(limiter, world)

    async def refuse() -> None:
        for permit in crowd.permits[-5:]:
            limiter.refused(permit, 30.0, None)

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(crowd.join, number)
        world.at(0.45, lambda: tasks.start_soon(refuse))
        await world.run_tasks()
    assert sum(0.45 < t < 30.45 for _, t in crowd.served) == 0
    assert crowd.order == list(range(12))


async def test_tokens_are_asked_for_when_it_is_time():
    """Estimates get better while one waits."""
    limiter, world = make(tpm=6000)
    crowd, expected = Crowd(limiter, world), 5000
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crowd.join, 0, 100)
        tasks.start_soon(crowd.join, 1, lambda: expected)
        await anyio.wait_all_tasks_blocked()
        expected = 50
        await world.run_tasks()
    assert crowd.permits[1].tokens == 50


async def test_it_may_be_made_before_there_is_a_loop():
    """Nothing asks for the time until somebody wants to send."""

    def clock() -> float:
        raise AssertionError("too early")

    Limiter(rpm=60, tpm=100, clock=clock)


async def test_race_on_reserve():
    """A hundred tasks against a simulated server: all served, in order, none refused."""
    limiter, world = make(rpm=6000, max_concurrency=100)
    server, order = SimulatedServer(rpm=6000), []

    async def work(number: int) -> None:
        permit = limiter.try_reserve(0) or await limiter.reserve(0)
        order.append(number)
        reply = server.arrive(world.now, 0)
        await world.sleep(reply.latency_s)
        assert reply.ok
        limiter.answered(permit, 0, None)

    async with anyio.create_task_group() as tasks:
        for number in range(300):
            tasks.start_soon(work, number)
        await world.run_tasks()
    assert order == list(range(300))
    assert limiter.state().source == "option"


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(0, 400)), min_size=1, max_size=25),
    st.dictionaries(st.integers(0, 24), st.floats(0, 5), max_size=10),
    st.sampled_from([{"rpm": 120}, {"tpm": 6000}, {"rpm": 300, "tpm": 9000}, {}]),
    st.floats(0.01, 2),
)
@settings(deadline=None, max_examples=60)
def test_everybody_who_is_not_cancelled_is_served(
    arrivals: list[tuple[float, int]],
    cancels: dict[int, float],
    limits: dict[str, float],
    latency_s: float,
):
    """In the order of asking, each once, and no permit is lost: whenever who is cancelled."""

    async def main() -> None:
        limiter, world = make(**limits)
        crowd, asked, ended = Crowd(limiter, world), [], []

        async def come(number: int, tokens: int) -> None:
            asked.append(number)
            await crowd.join(number, tokens)
            if crowd.scopes[number].cancelled_caught:
                return
            permit = crowd.permits[crowd.order.index(number)]
            await world.sleep(latency_s)
            ended.append(number)
            limiter.answered(permit, tokens, None)

        async with anyio.create_task_group() as tasks:
            for number, (when, tokens) in enumerate(arrivals):
                world.at(when, lambda n=number, t=tokens: tasks.start_soon(come, n, t))
            for number, when in cancels.items():
                world.at(when, lambda n=number: n in crowd.scopes and crowd.scopes[n].cancel())
            await world.run_tasks()
        gone = {n for n, scope in crowd.scopes.items() if scope.cancelled_caught}
        assert crowd.order == [n for n in asked if n not in gone]
        assert sorted(ended) == sorted(crowd.order)
        assert limiter.try_reserve(0) is not None or limits

    anyio.run(main)


async def test_cancelling_the_nap_leaves_no_mark_on_the_task():
    """The head is woken by a cancellation of its own; the task itself is not cancelled."""
    limiter, world = make()
    crowd = Crowd(limiter, world)
    async with anyio.create_task_group() as tasks:
        for number in range(9):
            tasks.start_soon(crowd.join, number)
        await anyio.wait_all_tasks_blocked()
        limiter.answered(crowd.permits[0], 0, None)
        await lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert crowd.order == list(range(9))
    assert not crowd.scopes[8].cancelled_caught
