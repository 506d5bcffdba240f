"""The queue between the stages: bounded by work, fair, and never stuck."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.pipeline.model_stage import QueueClosedError, TokenQueue

steady = settings(deadline=None, max_examples=60)


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


@steady
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
    """Fast or slow: no item is lost or doubled, and what waits costs at most the
    bound, or is one single item."""
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


def test_a_large_item_holds_the_next_back_and_small_ones_do_not() -> None:
    """The bound is in tokens: a hundred small items enter at once, two large ones do not."""

    async def work() -> None:
        queue = TokenQueue[str](1000)
        async with anyio.create_task_group() as group:
            for number in range(100):
                await queue.put(f"small {number}", 1)
            assert len(queue) == 100
            group.start_soon(queue.put, "large", 901)
            await settle()
            assert len(queue) == 100
            assert await anext(queue) == "small 0"
            await settle()
            assert (len(queue), queue.waiting_tokens) == (100, 1000)

    run(work)


def test_an_item_above_the_bound_enters_alone() -> None:
    """At least one is always admitted, or a huge chunk would wait for ever."""

    async def work() -> None:
        queue = TokenQueue[str](10)
        await queue.put("huge", 10_000)
        with anyio.move_on_after(0.01) as waited:
            await queue.put("after it", 1)
        assert waited.cancelled_caught
        assert await anext(queue) == "huge"
        await queue.put("after it", 1)
        assert queue.waiting_tokens == 1

    run(work)


def test_small_items_do_not_overtake_a_large_one() -> None:
    """Who asked first enters first, so a stream of small ones cannot starve it."""

    async def work() -> None:
        queue = TokenQueue[str](10)
        await queue.put("first", 8)
        async with anyio.create_task_group() as group:
            group.start_soon(queue.put, "large", 9)
            await settle()
            group.start_soon(queue.put, "small", 1)
            await settle()
            assert len(queue) == 1
            order = [await anext(queue)]
            await settle()
            order += [await anext(queue), await anext(queue)]
        assert order == ["first", "large", "small"]

    run(work)


def test_items_that_cost_nothing_are_bounded_too() -> None:
    """Each costs one token at least."""

    async def work() -> None:
        queue = TokenQueue[int](3)
        for number in range(3):
            await queue.put(number, 0)
        with anyio.move_on_after(0.01) as waited:
            await queue.put(3, 0)
        assert waited.cancelled_caught

    run(work)


def test_after_the_end_nothing_enters_and_what_is_left_is_taken() -> None:
    """All who take hear of the end, also those who wait already."""

    async def work() -> None:
        queue = TokenQueue[str](10)
        ended: list[int] = []

        async def take(number: int) -> None:
            async for _ in queue:
                pass
            ended.append(number)

        async with anyio.create_task_group() as group:
            group.start_soon(take, 0)
            group.start_soon(take, 1)
            await settle()
            await queue.put("last", 1)
            await queue.close()
        assert sorted(ended) == [0, 1]
        with pytest.raises(QueueClosedError):
            await queue.put("too late", 1)

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


def test_a_queue_that_holds_nothing_is_refused() -> None:
    """It would be a bug of ours."""
    with pytest.raises(ValueError, match="holds nothing"):
        TokenQueue[int](0)
