"""The queue between the stages: bounded by work, fair, and never stuck."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.model_stage import TokenQueue


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Ends by itself: what hangs is a failure and not a test that never ends."""

    async def in_time() -> None:
        with anyio.fail_after(20):
            await work()

    anyio.run(in_time)


async def settle() -> None:
    """Let all tasks go on as far as they can."""
    for _ in range(20):
        await checkpoint()


@given(
    costs=st.lists(st.integers(0, 50), max_size=30),
    most=st.integers(1, 60),
    putters=st.integers(1, 5),
    takers=st.integers(1, 4),
    pauses=st.lists(st.integers(0, 4), min_size=8, max_size=8),
)
def test_everything_passes_once_within_the_bound(
    costs: list[int], most: int, putters: int, takers: int, pauses: list[int]
) -> None:
    """Fast or slow: no item is lost or doubled, what waits costs at most the bound or is one
    single item, and all who take hear of the end."""
    taken: list[int] = []

    async def work() -> None:
        queue = TokenQueue[int](most)
        items = iter(range(len(costs)))

        async def put(number: int) -> None:
            for item in items:
                for _ in range(pauses[number % 8]):
                    await checkpoint()
                await queue.put(item, costs[item])
                assert queue.waiting_tokens <= most or len(queue) == 1

        async def take(number: int) -> None:
            async for item in queue:
                taken.append(item)
                for _ in range(pauses[(number + 3) % 8]):
                    await checkpoint()

        async with anyio.create_task_group() as group:
            for number in range(takers):
                group.start_soon(take, number)
            async with anyio.create_task_group() as all_put:
                for number in range(putters):
                    all_put.start_soon(put, number)
            await queue.close()
        assert (len(queue), queue.waiting_tokens) == (0, 0)

    run(work)
    assert sorted(taken) == list(range(len(costs)))


@pytest.mark.parametrize(
    ("costs", "entered"),
    [
        pytest.param([1] * 100 + [901, 1], 100, id="large beside small"),
        pytest.param([10_000, 1], 1, id="above the bound"),
        pytest.param([0] * 1001, 1000, id="each costs a token"),
        pytest.param([800, 900, 1], 1, id="small ones do not overtake"),
    ],
)
def test_what_fits_enters_in_the_order_of_the_calls(costs: list[int], entered: int) -> None:
    """At once, and no more than that; the others follow as those before them are taken."""

    async def work() -> None:
        queue = TokenQueue[int](1000)
        async with anyio.create_task_group() as group:
            for item, cost in enumerate(costs[:entered]):
                await queue.put(item, cost)
            for item, cost in enumerate(costs[entered:], start=entered):
                group.start_soon(queue.put, item, cost)
                await settle()
            assert len(queue) == entered
            taken = []
            for _ in costs:
                taken.append(await anext(queue))
                await settle()
        assert taken == list(range(len(costs)))

    run(work)


def test_a_cancelled_put_leaves_no_trace() -> None:
    """The next in line enters as if it had not been there, and no taker loses an item."""

    async def work() -> None:
        queue = TokenQueue[str](10)
        await queue.put("first", 10)
        async with anyio.create_task_group() as group:
            cancelled = anyio.CancelScope()

            async def give_up() -> None:
                with cancelled:
                    await queue.put("never", 5)

            group.start_soon(give_up)
            await settle()
            group.start_soon(queue.put, "second", 5)
            await settle()
            cancelled.cancel()
            await settle()
            with anyio.move_on_after(0):
                await anext(queue)
            taken = [await anext(queue), await anext(queue)]
        assert (taken, len(queue), queue.waiting_tokens) == (["first", "second"], 0, 0)

    run(work)


def test_an_item_that_is_put_back_is_the_next_one() -> None:
    """At once, also where there is no room for it: the chunk of a dead worker must not wait."""

    async def work() -> None:
        queue = TokenQueue[str](10)
        await queue.put("first", 5)
        await queue.put("second", 5)
        assert await anext(queue) == "first"
        await queue.put("third", 5)
        await queue.put_back("first", 5)
        assert (len(queue), queue.waiting_tokens) == (3, 15)
        assert [await anext(queue) for _ in range(3)] == ["first", "second", "third"]

    run(work)
