"""Several servers as one: the share of each, servers that are left out, and no row lost.

In virtual time, so that shares are counts and not measurements.
"""

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import anyio
import pytest

from claimscore.errors import ClaimscoreError, OutageError, TransientError
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.pipeline.llm.budget.ledger import Ledger
from claimscore.pipeline.llm.providers.base import SeveralServers
from claimscore.pipeline.llm.question import Answer
from claimscore.types import Completion, Message, Request, Usage
from tests.support.engine_doubles import completion, make, text

pytestmark = pytest.mark.anyio


class Down(NamedTuple):
    """From when to when a server is down, and what it says meanwhile."""

    from_s: float
    to_s: float
    error: TransientError = TransientError("connection refused", "connect")


class TimedServer:
    """Answers after a latency, a quarter more or less.

    A request that is in flight when it goes down fails at that moment. `tokens` are those of an
    answer to a question.
    """

    family, model = "fake", "m"

    def __init__(
        self,
        name: str,
        latency_s: float,
        *,
        down: Sequence[Down] = (),
        fault: Callable[[Request], ClaimscoreError | None] = lambda request: None,
        tokens: Callable[[str], int] = lambda question: 5,
    ) -> None:
        self.base_url = self.namespace = f"http://{name}/v1"
        self.latency_s = latency_s
        self.asked: list[tuple[float, str]] = []
        self.answered: list[float] = []
        self.in_flight = self.most_in_flight = 0
        self._down = down
        self._fault = fault
        self._tokens = tokens
        self._draw = random.Random(name)

    async def complete(self, request: Request) -> Completion:
        now = anyio.current_time()
        self.asked.append((now, request.messages[0].content))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            down = next((down for down in self._down if now < down.to_s), None)
            with anyio.CancelScope(deadline=down.from_s if down else float("inf")) as up:
                await anyio.sleep(self.latency_s * self._draw.uniform(0.75, 1.25))
                fault = self._fault(request)
                if fault is not None:
                    raise fault
            if up.cancelled_caught:
                assert down is not None
                raise down.error
        finally:
            self.in_flight -= 1
        self.answered.append(anyio.current_time())
        question = request.messages[0].content
        usage = Usage(1, self._tokens(question))
        return dataclasses.replace(completion(question), usage=usage)

    def n_asked(self, from_s: float, to_s: float) -> int:
        return sum(from_s <= moment < to_s for moment, _ in self.asked)

    async def aclose(self) -> None:
        pass


class Run:
    """An engine that asks servers, and what came of it."""

    def __init__(self, *servers: TimedServer, slots: int = 64, **options: Any) -> None:
        self.servers = servers
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.engine = make(
            SeveralServers(servers, "set") if len(servers) > 1 else servers[0],
            max_concurrency=slots,
            on_event=lambda kind, **fields: self.events.append((kind, fields)),
            **options,
        )

    def request(self, number: int) -> Request:
        return self.engine.request([Message("user", str(number))])

    async def ask(self, n: int, until_s: float = float("inf")) -> Counter[str]:
        """How many of `n` questions were answered and have failed."""
        requests = [self.request(number) for number in range(n)]
        async with self.engine:
            with anyio.CancelScope(deadline=until_s):
                outcomes = await self.engine.answer_all(requests, text)
                return Counter(
                    "answered" if isinstance(outcome, Answer) else "failed" for outcome in outcomes
                )
        return Counter()

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]

    def shares(self, from_s: float, to_s: float) -> list[float]:
        counts = [sum(from_s <= t < to_s for t in server.answered) for server in self.servers]
        return [count / sum(counts) for count in counts]

    def asked_again(self) -> Counter[str]:
        """How often questions were asked beyond once, by all servers together."""
        asked = Counter(question for server in self.servers for _, question in server.asked)
        return Counter({question: n - 1 for question, n in asked.items() if n > 1})


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


# -- down


@pytest.mark.parametrize("kind", ["connect", "status", "timeout"])
async def test_one_that_dies_is_left_out_and_loses_no_row(kind: Any) -> None:
    down = Down(6, 10**6, TransientError("gone", kind))
    run = Run(*at(0.5, 1), TimedServer("dying", 1, down=[down]), slots=16)
    assert await run.ask(900) == {"answered": 900}
    n_probes = sum(moment > 6 for moment, _ in run.servers[2].asked)
    assert 1 <= n_probes < 20
    assert run.asked_again().total() == 16 + n_probes
    assert close_to(run.shares(2, 6), (4, 2, 2), 0.1)
    assert close_to(run.shares(7, 14)[:2], (2, 1), 0.1)
    assert run.kinds() == ["first retry", "server down"]
    assert run.events[1][1]["server"] == "http://dying/v1"


async def test_one_that_comes_back_is_used_again() -> None:
    back = TimedServer("back", 1, down=[Down(6, 20)])
    run = Run(*at(1), back, slots=16)
    assert await run.ask(900) == {"answered": 900}
    n_probes = sum(6 < moment < 20 for moment, _ in back.asked)
    assert run.asked_again().total() == 16 + n_probes
    assert close_to(run.shares(25, 35), (1, 1), 0.1)
    assert run.kinds() == ["first retry", "server down", "server back"]


async def test_what_a_row_met_at_a_server_that_died_does_not_count() -> None:
    """One server fails a few rows before it is known to be down; the next dies with them."""
    met: set[str] = set()
    is_dead = anyio.Event()

    def dies_first(request: Request) -> TransientError | None:
        if anyio.current_time() < 6:
            return None
        met.add(request.messages[0].content)
        return TransientError("gone", "status")

    def dies_next(request: Request) -> TransientError | None:
        if request.messages[0].content in met:
            is_dead.set()
        return TransientError("gone", "status") if is_dead.is_set() else None

    first, second = TimedServer("1", 1, fault=dies_first), TimedServer("2", 1, fault=dies_next)
    run = Run(first, second, *at(1), slots=8, max_attempts=2)
    assert await run.ask(500) == {"answered": 500}
    assert 2 in run.asked_again().values()


@pytest.mark.parametrize("lasts_s", [5.0, 120.0, 1200.0])
@pytest.mark.parametrize("kind", ["connect", "status", "dropped", "body"])
async def test_an_outage_costs_few_probes_and_is_noticed_to_be_over_soon(
    kind: Any, lasts_s: float
) -> None:
    """Of one server: noticed within an eighth of the time it was gone, with few probes, one at a
    time, and no row lost."""
    down = Down(3, 3 + lasts_s, TransientError("gone", kind))
    run = Run(TimedServer("only", 0.1, down=[down]), slots=8)
    assert await run.ask(400) == {"answered": 400}
    assert run.kinds() == ["first retry", "server down", "server back"]
    moments = [moment for moment, _ in run.servers[0].asked]
    late_s = next(moment for moment in moments if moment >= down.to_s) - down.to_s
    assert late_s <= max(1.3, lasts_s / 8)
    assert sum(3.2 < moment < down.to_s for moment in moments) <= 30 + lasts_s / 15
    assert run.servers[0].most_in_flight == 8


async def test_an_outage_of_all_ends_the_run_after_max_outage_s() -> None:
    a, b = (TimedServer(f"{t}", 0.5, down=[Down(t, 10**6)]) for t in (5, 100))
    run = Run(a, b, slots=4, max_outage_s=30)
    with pytest.raises(OutageError, match=r"30 s .*max-outage-s 30.*refused"):
        await run.ask(3000)
    assert 120 <= max(moment for server in (a, b) for moment, _ in server.asked) <= 130


async def test_servers_that_were_never_reached_are_waited_for_two_minutes() -> None:
    a, b = (TimedServer(name, 0.5, down=[Down(0, 10**6)]) for name in "ab")
    with pytest.raises(OutageError, match=r"12\d s \(no server was reached; is --base-url right"):
        await Run(a, b, slots=4).ask(3000)
    assert 110 <= max(moment for server in (a, b) for moment, _ in server.asked) <= 130


@pytest.mark.parametrize("reached", ["by an answer", "by a refusal", "by an earlier call"])
async def test_one_that_was_reached_in_this_run_is_waited_for_longer(reached: str) -> None:
    ledger = Ledger()
    ledger.earlier.prompt_tokens = 9 * (reached == "by an earlier call")
    loading = Down(0, 1, TransientError("HTTP 503", "status"))
    first = [loading] if reached == "by a refusal" else []
    down = Down(0 if reached == "by an earlier call" else 1, 1000)
    server = TimedServer("only", 0.5, down=[*first, down])
    assert await Run(server, slots=4, spending=Budget(ledger=ledger)).ask(30) == {"answered": 30}
    assert server.answered[-1] > down.to_s


async def test_what_one_asks_for_ends_no_run_while_another_answers() -> None:
    def asks_for_much(request: Request) -> TransientError:
        return TransientError("HTTP 503", "status", retry_after_s=500)

    run = Run(TimedServer("down", 0.1, fault=asks_for_much), *at(0.1), slots=4, max_outage_s=3)
    assert await run.ask(400) == {"answered": 400}
    assert run.servers[1].answered[-1] > 3


# -- what fails


def failing(*numbers: int) -> Any:
    def fault(request: Request) -> TransientError | None:
        is_bad = request.messages[0].content in set(map(str, numbers))
        return TransientError("HTTP 500", "status") if is_bad else None

    return fault


async def test_a_poisonous_request_is_a_failure_and_no_outage() -> None:
    """It is asked of every server, and given up after as many attempts as at one; those that are
    left alone at the end do not look like an outage of all."""
    run = Run(*at(0.1, 0.1, 0.1, fault=failing(110, 111, 112, 113, 114, 290, 291)), slots=10)
    assert await run.ask(300) == {"answered": 293, "failed": 7}
    assert "server down" not in run.kinds()
    assert run.asked_again().most_common(1)[0][1] == 7


async def test_what_fails_at_one_is_asked_of_the_others() -> None:
    """A server that answers the half of what it is asked costs no row, though it is never taken
    to be down."""
    run = Run(TimedServer("bad", 0.01, fault=failing(*range(1, 500, 2))), *at(0.1, 0.1), slots=4)
    assert await run.ask(500) == {"answered": 500}
    assert set(run.asked_again().values()) == {1}


async def test_a_server_that_answers_too_late_is_asked_less_at_once() -> None:
    class Loaded(TimedServer):
        async def complete(self, request: Request) -> Completion:
            self.latency_s = 2.0 * (self.in_flight + 1)
            with anyio.move_on_after(20):
                return await super().complete(request)
            raise TransientError("no answer within 20 s", "timeout")

    run = Run(Loaded("loaded", 2), slots=64)
    assert await run.ask(300) == {"answered": 300}
    assert 64 <= run.asked_again().total() < 150


# -- waiting


async def test_a_call_that_stops_waiting_leaves_everything_free() -> None:
    run = Run(*at(0.1, 0.1), slots=2)

    async def one(number: int, give_up_s: float) -> None:
        with anyio.move_on_after(give_up_s):
            await run.engine.answer_all([run.request(number)], text)

    async with run.engine, anyio.create_task_group() as background:
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(one, number, random.choice([0.0, 0.1, 0.1, 0.2, 0.25, 0.3, 5]))
        await anyio.sleep(1)
        assert [server.in_flight for server in run.servers] == [0, 0]
        for number in range(1000, 1004):  # all four slots can be had at once
            background.start_soon(one, number, 10)
        await anyio.sleep(0.05)
        assert [server.in_flight for server in run.servers] == [2, 2]
