"""The engine: what is sent, what is kept, what a caller gets."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import lowlevel

from claimscore.cache.base import MemoryCache
from claimscore.cache.entry import Entry
from claimscore.cache.key import request_key
from claimscore.cache.store import DiskCache
from claimscore.errors import ParseError, RateLimitError, RejectedError, TransientError
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.question import Answer
from claimscore.pipeline.llm.ratelimit.limiter import RateLimiter
from claimscore.types import Completion, Failure, Message, Request
from tests.support.engine_doubles import (
    FakeProvider,
    Gate,
    VirtualClock,
    completion,
    scripted,
    text,
)

pytestmark = pytest.mark.anyio


def make(provider: FakeProvider, cache: MemoryCache | DiskCache | None = None, **options: Any):
    """An engine whose pauses and back-offs take no time."""
    clock = VirtualClock()
    limiter = RateLimiter(clock=clock)
    store = MemoryCache() if cache is None else cache
    return Engine(provider, store, limiter=limiter, sleep=clock.sleep, **options)


def ask(engine: Engine, *texts: str, **options: Any) -> list[Request]:
    return [engine.request([Message("user", item)], **options) for item in texts]


def values(outcomes: list[Answer[str] | Failure]) -> list[str]:
    return [o.value if isinstance(o, Answer) else f"{o.kind}!" for o in outcomes]


async def test_answers_come_in_the_order_of_the_requests():
    """However many workers there are, a row's answer is the row's."""
    async with make(FakeProvider(), max_concurrency=4) as engine:
        outcomes = await engine.answer_all(ask(engine, *map(str, range(50))), text)
    assert values(outcomes) == [f"{i}/0" for i in range(50)]
    assert engine.stats.sent == engine.stats.answered == 50
    stats = engine.observe()
    assert (stats.prompt_tokens, stats.completion_tokens) == (500, 250)


async def test_a_request_carries_the_provider_and_the_settings():
    """What determines an answer is filled in from the provider and the caller."""
    async with make(FakeProvider()) as engine:
        request = engine.request([Message("user", "x")], temperature=0.5, max_tokens=7)
    assert (request.provider, request.namespace, request.model) == ("fake", "here", "fake-1")
    assert (request.temperature, request.max_tokens, request.sample_index) == (0.5, 7, 0)


async def test_nothing_is_asked_twice_on_a_rerun(tmp_path: Path):
    """A second engine over the same cache sends nothing; one new row is one request."""
    provider = FakeProvider()
    for texts, sent in ((["a", "b"], 2), (["a", "b"], 2), (["a", "new", "b"], 3)):
        cache = DiskCache(tmp_path / "cache")
        async with make(provider, cache) as engine:
            outcomes = await engine.answer_all(ask(engine, *texts), text)
        cache.close()
        assert values(outcomes) == [f"{item}/0" for item in texts]
        assert len(provider.asked) == sent
    assert [o.cached for o in outcomes if isinstance(o, Answer)] == [True, False, True]
    assert engine.stats.hits == 2


async def test_the_key_of_an_answer_is_the_key_in_the_cache():
    """Tables say `request_key`; with it the stored answer is found."""
    cache = MemoryCache()
    async with make(FakeProvider(), cache) as engine:
        answer = await engine.answer(ask(engine, "a")[0], text)
    assert isinstance(answer, Answer)
    assert cache.entries[answer.key] == Entry(answer.completion)


async def test_equal_requests_of_one_call_are_sent_once():
    """Ten equal rows are one request and ten answers."""
    provider = FakeProvider()
    async with make(provider) as engine:
        outcomes = await engine.answer_all(ask(engine, *["a"] * 10), text)
    assert values(outcomes) == ["a/0"] * 10
    assert len(provider.asked) == 1


async def test_equal_requests_of_several_calls_are_sent_once():
    """Single flight: a later call waits for the answer that is on its way."""
    gate = Gate()
    provider = FakeProvider(gate)
    got: list[str] = []
    async with make(provider) as engine, anyio.create_task_group() as tasks:

        async def run() -> None:
            got.extend(values([await engine.answer(ask(engine, "a")[0], text)]))

        for _ in range(3):
            tasks.start_soon(run)
        await gate.full.wait()
        for _ in range(5):
            await lowlevel.checkpoint()
        gate.open.set()
    assert got == ["a"] * 3
    assert len(provider.asked) == 1


async def test_a_sample_of_another_row_is_shared():
    """A row whose first sample is refused uses the second sample that another row asks for."""
    provider = FakeProvider(scripted(completion("bad"), completion("good")))
    async with make(provider, max_concurrency=1) as engine:
        first, second = ask(engine, "a"), ask(engine, "a", sample_index=1)
        outcomes = await engine.answer_all(first + second, text)
    assert values(outcomes) == ["good", "good"]
    assert len(provider.asked) == 2


async def test_concurrency_is_bounded_over_all_calls():
    """Three calls at a time share the slots; all slots are used."""
    provider = FakeProvider()
    async with make(provider, max_concurrency=5) as engine, anyio.create_task_group() as tasks:
        for call in range(3):
            requests = ask(engine, *(f"{call}-{i}" for i in range(40)))
            tasks.start_soon(engine.answer_all, requests, text)
    assert provider.most_busy == 5


# -- samples


async def test_a_refused_answer_is_kept_and_the_next_sample_asked():
    """A paid answer that fails its check stays in the cache with the reason."""
    provider, cache = FakeProvider(scripted(completion("bad"), completion("good"))), MemoryCache()
    async with make(provider, cache) as engine:
        (outcome,) = await engine.answer_all(ask(engine, "a"), text)
    assert values([outcome]) == ["good"]
    assert [request.sample_index for request in provider.asked] == [0, 1]
    assert [entry.rejected for entry in cache.entries.values()] == ["bad is bad", None]
    assert engine.stats.rejected == 1


async def test_rejected_samples_are_counted_over_runs():
    """Going on continues with the next sample; after max_samples it is a failure, for free."""
    provider, cache = (
        FakeProvider(scripted(*[completion(f"bad{i}") for i in range(9)])),
        MemoryCache(),
    )
    for sent, max_samples in ((2, 2), (2, 2), (3, 3), (3, 3)):
        async with make(provider, cache, max_samples=max_samples) as engine:
            (outcome,) = await engine.answer_all(ask(engine, "a"), text)
        assert len(provider.asked) == sent
        assert isinstance(outcome, Failure)
        assert (outcome.kind, outcome.attempts, outcome.raw) == ("parse", sent, f"bad{sent - 1}")
        assert outcome.request_key == request_key(provider.asked[-1])
        assert engine.stats.failed == 1


async def test_retry_failed_asks_for_new_samples():
    """As many new ones as usual, after the stored ones; a later run reads all that are stored."""
    steps = [completion(t) for t in ("bad", "bad", "bad", "good")]
    provider, cache = FakeProvider(scripted(*steps)), MemoryCache()
    for retry_failed, expected, sent in (
        (False, "parse!", 2),
        (True, "good", 4),
        (False, "good", 4),
    ):
        async with make(provider, cache, max_samples=2, retry_failed=retry_failed) as engine:
            outcomes = await engine.answer_all(ask(engine, "a"), text)
        assert values(outcomes) == [expected]
        assert len(provider.asked) == sent


async def test_a_changed_parser_needs_no_request():
    """Stored answers are judged again, rejected ones too."""
    provider, cache = FakeProvider(scripted(completion("bad"), completion("good"))), MemoryCache()
    async with make(provider, cache) as engine:
        await engine.answer_all(ask(engine, "a"), text)
        outcomes = await engine.answer_all(ask(engine, "a"), lambda answer: answer.text)
    assert values(outcomes) == ["bad"]
    assert len(provider.asked) == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(completion("half an ans", "length"), "length", id="cut off"),
        pytest.param(completion("  \n"), "empty", id="empty"),
        pytest.param(completion("I cannot", "refusal"), "refusal", id="declined"),
    ],
)
async def test_unusable_answers_are_new_samples_then_failures(answer: Completion, kind: str):
    """The parser never sees them, and each is paid for once."""
    provider = FakeProvider(scripted(*[answer] * 3))
    async with make(provider, max_samples=3) as engine:
        (outcome,) = await engine.answer_all(ask(engine, "a"), text)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.raw) == (kind, answer.text)
    assert len(provider.asked) == 3


async def test_a_rejected_request_is_a_failure_and_not_cached():
    """One row fails; the others go on; nothing is stored for it."""
    refused = RejectedError("no", "context_length")
    provider, cache = FakeProvider(scripted(refused, completion("good"))), MemoryCache()
    async with make(provider, cache, max_concurrency=1) as engine:
        outcomes = await engine.answer_all(ask(engine, "a", "b"), text)
    assert values(outcomes) == ["context_length!", "good"]
    assert len(cache.entries) == 1


async def test_a_filtered_answer_is_kept_as_rejected_and_not_asked_for_again():
    """It was paid for and another sample would be filtered too; `retry_failed` tries once more."""
    filtered = completion("", "content_filter")
    provider, cache = FakeProvider(scripted(filtered, completion("good"))), MemoryCache()
    async with make(provider, cache) as engine:
        outcomes = await engine.answer_all(ask(engine, "a"), text)
    assert values(outcomes) == ["content_filter!"]
    async with make(provider, cache) as engine:
        outcomes = await engine.answer_all(ask(engine, "a"), text)
    assert values(outcomes) == ["content_filter!"]
    assert len(provider.asked) == 1
    async with make(provider, cache, retry_failed=True) as engine:
        outcomes = await engine.answer_all(ask(engine, "a"), text)
    assert values(outcomes) == ["good"]


# -- retries and pauses


async def test_transient_errors_are_retried_then_a_failure():
    """Up to max_attempts in all; the failure keeps the server's words."""
    steps = [TransientError("one"), completion("good"), *[TransientError("two")] * 3]
    provider = FakeProvider(scripted(*steps))
    async with make(provider, max_attempts=3, max_concurrency=1) as engine:
        outcomes = await engine.answer_all(ask(engine, "a"), text)
        outcomes += await engine.answer_all(ask(engine, "b"), text)
    assert values(outcomes) == ["good", "transient!"]
    failure = outcomes[1]
    assert isinstance(failure, Failure)
    assert (failure.message, failure.attempts) == ("two", 3)
    assert engine.stats.retries == {"status": 1 + 3}
    assert engine.stats.last_error == "two"


async def test_a_rate_limit_holds_its_own_request_back():
    """The refused request waits as long as it was told; the others go on meanwhile."""
    clock, asked = VirtualClock(), []

    async def answer(request: Request) -> Completion:
        asked.append(request.messages[0].content)
        await lowlevel.checkpoint()
        if len(asked) == 1:
            raise RateLimitError("slow down", 30.0)
        return completion("good")

    limiter = RateLimiter(clock=clock)
    async with Engine(
        FakeProvider(answer), MemoryCache(), limiter=limiter, sleep=clock.sleep, max_concurrency=1
    ) as engine:
        outcomes = await engine.answer_all(ask(engine, "a", "b", "c"), text)
    assert values(outcomes) == ["good"] * 3
    assert sorted(asked) == ["a", "a", "b", "c"]
    assert clock.now >= 30
    assert engine.stats.retries == {"rate_limit": 1}


async def test_no_answer_in_time_is_transient():
    """A server that says nothing is asked again, then given up; each try counts as two."""
    provider = FakeProvider(Gate())
    async with make(provider, timeout_s=0.01, max_attempts=4) as engine:
        (outcome,) = await engine.answer_all(ask(engine, "a"), text)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.message) == ("transient", "no answer within 0.01 s")
    assert len(provider.asked) == 2


async def test_a_sleeping_retry_holds_no_slot():
    """While one row waits to try again, the only slot serves another."""
    napping, wake = anyio.Event(), anyio.Event()

    async def sleep(seconds: float) -> None:
        napping.set()
        await wake.wait()

    provider = FakeProvider(scripted(TransientError("x"), completion("b"), completion("a")))
    async with (
        Engine(provider, MemoryCache(), max_concurrency=1, sleep=sleep) as engine,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(engine.answer_all, ask(engine, "a"), text)
        await napping.wait()
        assert values(await engine.answer_all(ask(engine, "b"), text)) == ["b"]
        wake.set()
    assert engine.stats.answered == 2


# -- commits


class SlowCache(MemoryCache):
    """Writes wait until allowed, as on a slow disk; counts its transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = threading.Event()
        self.sizes: list[int] = []

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        assert self.allowed.wait(5)
        self.sizes.append(len(entries))
        super().put_many(entries)


async def settle() -> None:
    for _ in range(20):
        await lowlevel.checkpoint()


async def test_an_answer_is_in_the_cache_before_it_is_used():
    """While its commit is on the way, a request is in flight and holds its slot."""
    cache, provider, done = SlowCache(), FakeProvider(), []
    async with (
        make(provider, cache, max_concurrency=2) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def run() -> None:
            done.extend(await engine.answer_all(ask(engine, *"abcd"), text))
            assert len(cache.entries) == 4

        tasks.start_soon(run)
        await settle()
        assert (len(provider.asked), engine.stats.in_flight, done) == (2, 2, [])
        cache.allowed.set()
    assert len(done) == 4
    assert engine.stats.in_flight == 0


async def test_commits_are_grouped():
    """What arrives while one transaction is written goes into the next one together."""
    cache = SlowCache()
    async with make(FakeProvider(), cache) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(engine.answer_all, ask(engine, *map(str, range(40))), text)
        await settle()
        cache.allowed.set()
    assert sum(cache.sizes) == 40
    assert len(cache.sizes) < 10


async def test_a_bug_in_the_parser_does_not_lose_the_answer():
    """The bug is raised as it is, and the paid answer is in the cache."""
    cache = MemoryCache()

    def broken(answer: Completion) -> str:
        raise ZeroDivisionError

    async with make(FakeProvider(), cache) as engine:
        with pytest.raises(ZeroDivisionError):
            await engine.answer_all(ask(engine, "a"), broken)
    assert [entry.rejected for entry in cache.entries.values()] == [None]


async def test_an_engine_must_be_entered():
    """A forgotten `async with` is said so."""
    engine = Engine(FakeProvider(), MemoryCache())
    with pytest.raises(RuntimeError, match="async with"):
        await engine.answer_all(ask(engine, "a"), text)


async def test_a_parse_error_is_the_only_refusal():
    """`ParseError` and its subclasses refuse; the message is the failure's."""

    class Subtle(ParseError):
        pass

    def parse(answer: Completion) -> str:
        raise Subtle("not so")

    async with make(FakeProvider(), max_samples=1) as engine:
        (outcome,) = await engine.answer_all(ask(engine, "a"), parse)
    assert isinstance(outcome, Failure)
    assert outcome.message == "not so"


async def test_it_says_when_it_runs_short():
    """Once fewer rows are left to be begun than may be in flight: then more would be of use."""
    gate, short = Gate(), []
    async with (
        make(FakeProvider(gate), max_concurrency=2) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def wait() -> None:
            await engine.runs_short()
            short.append(len(engine.provider.asked))

        await wait()
        tasks.start_soon(engine.answer_all, ask(engine, *map(str, range(6))), text)
        await settle()
        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await settle()
        assert short == [0]
        gate.open.set()
    assert len(short) == 3
    assert all(4 <= asked <= 6 for asked in short[1:])


async def test_what_is_stored_stopped_or_cancelled_is_not_left_to_be_begun():
    """A task that waits for the engine to run short never waits for rows that no call asks."""
    gate = Gate()
    async with make(FakeProvider(gate), max_concurrency=1) as engine:
        with anyio.move_on_after(0.01):
            await engine.answer_all(ask(engine, *"abcd"), text)
        with anyio.fail_after(5):
            await engine.runs_short()
        gate.open.set()
        await engine.answer_all(ask(engine, *"abcd"), text)
        await engine.answer_all(ask(engine, *"abcd"), text)
        with anyio.fail_after(5):
            await engine.runs_short()
