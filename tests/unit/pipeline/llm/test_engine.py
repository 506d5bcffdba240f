"""The engine: what is sent, what is kept, what a caller gets."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import lowlevel

from claimscore.cache.key import request_key
from claimscore.cache.store import Cache, MemoryCache
from claimscore.errors import AskAgain, RejectedError, StoppedEarly, TransientError
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import Collecting
from claimscore.pipeline.llm.question import Answer
from claimscore.types import Completion, Failure, Message, Request
from tests.support.engine_doubles import FakeProvider, Gate, completion, make, scripted, text
from tests.unit.pipeline.llm.conftest import SlowDisk

pytestmark = pytest.mark.anyio

Outcomes = list[Answer[str] | Failure]


def ask(engine: Engine, *texts: str, **options: Any) -> list[Request]:
    return [engine.request([Message("user", item)], **options) for item in texts]


async def asked(
    provider: FakeProvider,
    *texts: str,
    cache: Cache | None = None,
    parse: Callable[[Completion], str] = text,
    **options: Any,
) -> tuple[Outcomes, Engine]:
    """The outcomes of these questions, of an engine that is made for them."""
    async with make(provider, cache, **options) as engine:
        return await engine.answer_all(ask(engine, *texts), parse), engine


def values(outcomes: Outcomes) -> list[str]:
    return [o.value if isinstance(o, Answer) else f"{o.kind}!" for o in outcomes]


async def settle() -> None:
    for _ in range(20):
        await lowlevel.checkpoint()


async def test_equal_requests_of_several_calls_are_sent_once() -> None:
    gate = Gate()
    provider = FakeProvider(gate)
    got: list[str] = []
    async with make(provider) as engine, anyio.create_task_group() as tasks:

        async def run() -> None:
            got.extend(values(await engine.answer_all(ask(engine, "a"), text)))

        for _ in range(3):
            tasks.start_soon(run)
        await gate.full.wait()
        await settle()
        gate.open.set()
    assert got == ["a"] * 3
    assert (len(provider.asked), engine.stats.hits) == (1, 2)


async def test_equal_requests_of_one_call_are_sent_once_and_add_up() -> None:
    steps = completion("a"), RejectedError("no"), completion("b")
    provider = FakeProvider(scripted(*steps))
    outcomes, engine = await asked(provider, "a", "x", "a", "b", "a", "x", max_concurrency=1)
    assert values(outcomes) == ["a", "rejected!", "a", "b", "a", "rejected!"]
    assert (engine.stats.sent, engine.stats.hits, engine.stats.failed) == (3, 2, 1)


async def test_concurrency_is_bounded_over_all_calls() -> None:
    provider = FakeProvider()
    async with make(provider, max_concurrency=5) as engine, anyio.create_task_group() as tasks:
        for call in range(3):
            requests = ask(engine, *(f"{call}-{i}" for i in range(40)))
            tasks.start_soon(engine.answer_all, requests, text)
    assert provider.most_busy == 5


# -- samples


async def test_the_first_question_of_a_text_goes_ahead_and_holds_up_no_others() -> None:
    """Those that share its prompt's beginning follow once it is answered, failed or not, before
    questions that came later; meanwhile others are sent in all slots."""
    first, others = Gate(), Gate(n_expected=3)

    async def answer(request: Request) -> Completion:
        name = request.messages[-1].content
        if name == "a1":
            await first(request)
            raise RejectedError("no")
        return await others(request) if name[0] in "bcd" else completion(name)

    provider = FakeProvider(answer)
    shared = ["a", "a", "a", "b", "b", "c", "", "e", "e"]
    async with make(provider, max_concurrency=4) as engine, anyio.create_task_group() as group:
        requests = ask(engine, "a1", "a2", "a3", "b1", "b2", "c1", "d1", "e1", "e2")
        requests = [
            dataclasses.replace(request, shared=beginning)
            for request, beginning in zip(requests, shared, strict=True)
        ]

        async def work() -> None:
            outcomes = await engine.answer_all(requests, text)
            assert [isinstance(outcome, Answer) for outcome in outcomes] == [False] + 8 * [True]

        group.start_soon(work)
        await others.full.wait()
        assert sorted(r.messages[-1].content for r in provider.asked) == ["a1", "b1", "c1", "d1"]
        first.open.set()
        with anyio.move_on_after(60):
            while len(provider.asked) < 8:  # an answer is kept by a thread
                await anyio.sleep(0.001)
        sent = [request.messages[-1].content for request in provider.asked[4:]]
        assert sent == ["a2", "a3", "e1", "e2"]
        others.open.set()
    assert provider.asked[-1].messages[-1].content == "b2"


async def test_a_refused_answer_is_kept_and_the_next_sample_asked() -> None:
    provider, cache = FakeProvider(scripted(completion("bad"), completion("good"))), MemoryCache()
    outcomes, engine = await asked(provider, "a", cache=cache)
    assert values(outcomes) == ["good"]
    assert [request.sample_index for request in provider.asked] == [0, 1]
    assert [answer.text for answer in cache.answers.values()] == ["bad", "good"]
    assert engine.stats.rejected == 1


async def test_a_changed_parser_needs_no_request() -> None:
    provider, cache = FakeProvider(scripted(completion("bad"), completion("good"))), MemoryCache()
    await asked(provider, "a", cache=cache)
    outcomes, _ = await asked(provider, "a", cache=cache, parse=lambda answer: answer.text)
    assert values(outcomes) == ["bad"]
    assert len(provider.asked) == 2


async def test_rejected_samples_are_counted_over_runs() -> None:
    provider = FakeProvider(scripted(*[completion(f"bad{i}") for i in range(9)]))
    cache = MemoryCache()
    for sent, max_samples in ((2, 2), (2, 2), (3, 3), (3, 3)):
        (outcome,), engine = await asked(provider, "a", cache=cache, max_samples=max_samples)
        assert len(provider.asked) == sent
        assert isinstance(outcome, Failure)
        assert (outcome.kind, outcome.attempts, outcome.raw) == ("parse", sent, f"bad{sent - 1}")
        assert outcome.request_key == request_key(provider.asked[-1])
        assert engine.stats.failed == 1


async def test_retry_failed_asks_for_as_many_new_samples_as_usual() -> None:
    steps = [completion(t) for t in ("bad", "bad", "bad", "good")]
    provider, cache = FakeProvider(scripted(*steps)), MemoryCache()
    for retry_failed, expected, sent in (
        (False, "parse!", 2),
        (True, "good", 4),
        (False, "good", 4),
    ):
        outcomes, _ = await asked(
            provider, "a", cache=cache, max_samples=2, retry_failed=retry_failed
        )
        assert values(outcomes) == [expected]
        assert len(provider.asked) == sent


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(completion("half an ans", "length"), "length", id="cut off"),
        pytest.param(completion("half an ans", "model_length"), "length", id="no more context"),
        pytest.param(completion("  \n"), "empty", id="empty"),
        pytest.param(completion("I cannot", "refusal"), "refusal", id="declined"),
    ],
)
async def test_unusable_answers_are_new_samples_then_failures(
    answer: Completion, kind: str
) -> None:
    provider = FakeProvider(scripted(*[answer] * 3))
    (outcome,), _ = await asked(provider, "a", max_samples=3)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.raw) == (kind, answer.text)
    assert len(provider.asked) == 3


async def test_a_filtered_answer_is_kept_as_rejected_and_not_asked_for_again() -> None:
    """Another sample would be filtered too; `retry_failed` tries once more."""
    filtered = completion("", "content_filter")
    provider, cache = FakeProvider(scripted(filtered, completion("good"))), MemoryCache()
    for _ in range(2):
        outcomes, _ = await asked(provider, "a", cache=cache)
        assert values(outcomes) == ["content_filter!"]
    assert len(provider.asked) == 1
    outcomes, _ = await asked(provider, "a", cache=cache, retry_failed=True)
    assert values(outcomes) == ["good"]


# -- retries and pauses


async def test_transient_errors_are_retried_then_a_failure() -> None:
    steps = [TransientError("one"), completion("good"), *[TransientError("two")] * 3]
    provider = FakeProvider(scripted(*steps))
    async with make(provider, max_attempts=3) as engine:
        (good,) = await engine.answer_all(ask(engine, "a"), text)
        (failure,) = await engine.answer_all(ask(engine, "b"), text)
    assert isinstance(good, Answer)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.message, failure.attempts) == ("transient", "two", 3)
    assert engine.stats.retries == {"status": 1 + 3}
    assert engine.stats.last_error == "two"


async def test_how_a_server_wants_to_be_asked_is_asked_at_once_and_counts_as_sent() -> None:
    """It is no failed attempt, and no server goes down of it."""
    provider = FakeProvider(scripted(*[AskAgain("no such parameter")] * 9, completion("good")))
    events: list[str] = []
    spending = Budget(max_requests=10)
    outcomes, engine = await asked(
        provider,
        "a",
        max_attempts=1,
        spending=spending,
        on_event=lambda kind, **fields: events.append(kind),
    )
    assert values(outcomes) == ["good"]
    assert (engine.stats.sent, engine.stats.answered, engine.stats.retries) == (10, 1, {})
    assert spending.ledger.now.requests == 10
    assert events == []


async def test_a_task_may_have_a_provider_of_its_own() -> None:
    """With bounds of its own, in one budget and one cache."""
    gate, other_gate = Gate(4), Gate(2)
    provider, other = FakeProvider(gate), FakeProvider(other_gate)
    other.namespace = "there"
    spending = Budget(max_requests=9)
    async with (
        make(
            provider,
            tasks={"verify": other},
            by_task={"verify": {"max_concurrency": 2}},
            max_concurrency=4,
            spending=spending,
        ) as engine,
        anyio.create_task_group() as tasks,
    ):
        assert engine.provider_for("verify") is other
        assert engine.provider_for("decompose") is provider
        tasks.start_soon(engine.answer_all, ask(engine, *"abcdef"), text)
        call = functools.partial(engine.answer_all, provider=other)
        tasks.start_soon(call, ask(engine, *"xyz"), text)
        await gate.full.wait()
        await other_gate.full.wait()
        await settle()
        assert (len(provider.asked), len(other.asked)) == (4, 2)
        assert [server.in_flight for server in engine.stats.servers] == [2, 4]
        gate.open.set()
        other_gate.open.set()
    assert (len(provider.asked), len(other.asked)) == (6, 3)
    assert (engine.stats.answered, spending.ledger.now.requests) == (9, 9)


class FakeBatches(FakeProvider, Collecting):
    """Waits for a batch job of three."""

    batch_size = 3

    def is_sent(self, key: str) -> bool:
        return False

    def under_way(self) -> tuple[str, float]:
        return "batch 1", 3600.0


async def test_a_task_may_be_answered_by_batches_and_another_at_once() -> None:
    """A stop waits for what was asked at once, and not for the batch."""
    gate, batch = Gate(), Gate(3)
    provider, batches = FakeProvider(gate), FakeBatches(batch)
    async with (
        make(provider, tasks={"verify": batches}, max_concurrency=1) as engine,
        anyio.create_task_group() as tasks,
    ):
        stopped: list[str] = []

        async def run(name: str, texts: str, **options: Any) -> None:
            try:
                await engine.answer_all(ask(engine, *texts), text, **options)
            except StoppedEarly as exc:
                stopped.append(f"{name}: {exc}")

        tasks.start_soon(run, "online", "ab")
        tasks.start_soon(functools.partial(run, "batch", "wxyz", provider=batches))
        with anyio.fail_after(60):
            await batch.full.wait()
        await settle()
        assert (len(provider.asked), len(batches.asked)) == (1, 3)
        assert (engine.stats.why, engine.stats.waiting_s) == ("batch 1", 3600.0)
        engine.stop()
        await settle()
        why = "interrupted; batch 1; run the same command to collect the answers"
        assert stopped == [f"batch: {why}"]
        gate.open.set()
    assert stopped[1:] == [f"online: {why}"]
    assert engine.stats.answered == 1


async def test_no_answer_in_time_is_transient_and_counts_as_two_attempts() -> None:
    provider = FakeProvider(scripted(*[TransientError("no answer within 1 s", "timeout")] * 4))
    (outcome,), _ = await asked(provider, "a", max_attempts=4)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.message) == ("transient", "no answer within 1 s")
    assert len(provider.asked) == 2


async def test_a_sleeping_retry_holds_no_slot() -> None:
    provider = FakeProvider(scripted(TransientError("x"), completion("b"), completion("a")))
    outcomes, _ = await asked(provider, "a", "b", max_concurrency=1)
    assert values(outcomes) == ["a", "b"]


# -- commits


async def test_an_answer_is_in_the_cache_before_it_is_used(slow_disk: SlowDisk) -> None:
    """While its commit is on the way, a request is in flight and holds its slot."""
    cache, provider, done = MemoryCache(), FakeProvider(), []
    async with (
        make(provider, cache, max_concurrency=2) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def run() -> None:
            done.extend(await engine.answer_all(ask(engine, *"abcd"), text))
            assert len(cache.answers) == 4

        tasks.start_soon(run)
        await settle()
        assert (len(provider.asked), engine.stats.in_flight, done) == (2, 2, [])
        slow_disk.allowed.set()
    assert len(done) == 4
    assert engine.stats.in_flight == 0


async def test_commits_are_grouped(slow_disk: SlowDisk) -> None:
    async with make(FakeProvider()) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(engine.answer_all, ask(engine, *map(str, range(40))), text)
        await settle()
        slow_disk.allowed.set()
    assert sum(slow_disk.sizes) == 40
    assert len(slow_disk.sizes) < 10


async def test_a_bug_in_the_parser_does_not_lose_the_answer() -> None:
    cache = MemoryCache()

    def broken(answer: Completion) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await asked(FakeProvider(), "a", cache=cache, parse=broken)
    assert len(cache.answers) == 1
