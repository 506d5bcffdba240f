"""What a server's answers must not undo: declared limits, waits that it asks for, one row's end."""

from collections import Counter

import anyio
import pytest

from claimscore.errors import AskAgain, ClaimscoreError, OutageError, RateLimitError, TransientError
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.types import Request
from tests.unit.pipeline.llm.test_endpoints import Run, TimedServer

pytestmark = pytest.mark.anyio


def question(request: Request) -> str:
    return request.messages[0].content


async def test_every_request_that_asks_for_the_dialect_is_paced_and_counted() -> None:
    """`--rpm 60`: one request a second, and a quarter of a second's worth to begin with."""
    asked: Counter[str] = Counter()

    def wants_plain_text(request: Request) -> AskAgain | None:
        asked[question(request)] += 1
        return AskAgain("no such parameter") if asked[question(request)] <= 4 else None

    server, spending = TimedServer("only", 2, fault=wants_plain_text), Budget()
    assert await Run(server, rpm=60, spending=spending).ask(20) == {"answered": 20}
    assert server.n_asked(0, 6) <= 7
    assert spending.ledger.now.requests == len(server.asked) == 100


@pytest.mark.parametrize("completion_tokens", [256, 128, 30])
async def test_no_minute_passes_tpm_by_what_was_used(completion_tokens: int) -> None:
    """Answers are up to as long as they may be, and come after most of a minute."""
    server = TimedServer("only", 58, tokens=lambda _: completion_tokens)
    assert await Run(server, tpm=5000).ask(60, until_s=7200) == {"answered": 60}
    used = 1 + completion_tokens
    for moment, _ in server.asked:
        assert used * server.n_asked(moment, moment + 60) <= 5000


async def test_a_low_limit_that_nothing_declares_loses_no_row() -> None:
    """Though others are answered between the refusals of a row."""
    level = at = 0.0

    def fault(request: Request) -> RateLimitError | None:
        nonlocal level, at
        now = anyio.current_time()
        level, at = min(2.0, level + (now - at) / 2), now
        if level < 1:
            return RateLimitError("slow down")
        level -= 1
        return None

    run = Run(TimedServer("only", 0.1, fault=fault))
    assert await run.ask(200, until_s=3600) == {"answered": 200}


async def test_a_server_that_is_down_is_not_probed_before_it_said() -> None:
    def fault(request: Request) -> TransientError | None:
        left_s = 30 - anyio.current_time()
        return TransientError("overloaded", retry_after_s=30, status=503) if left_s > 0 else None

    server = TimedServer("only", 0.1, fault=fault)
    assert await Run(server, slots=8).ask(20, until_s=600) == {"answered": 20}
    assert server.n_asked(0, 0.2) <= 8 + 4  # the fifth failure tells that it is down
    assert server.n_asked(0.2, 30) == 0


@pytest.mark.parametrize("n", [1, 3, 6, 200])
@pytest.mark.parametrize(
    "error",
    [
        RateLimitError("come back later", 500),
        TransientError("come back later", retry_after_s=500, status=503),
    ],
    ids=["429", "503"],
)
async def test_a_wait_that_a_server_asks_for_ends_with_max_outage_s(
    error: ClaimscoreError, n: int
) -> None:
    """Also with so few rows that it is not taken to be down."""
    server = TimedServer("only", 0.1, fault=lambda _: error)
    with pytest.raises(OutageError, match=r"max-outage-s 3\).*come back later.*500 s"):
        await Run(server, slots=8, max_outage_s=3).ask(n, until_s=4)
    assert server.n_asked(3, 10) == 0


async def test_a_row_that_is_to_wait_longer_while_others_are_answered_is_no_outage() -> None:
    def fault(request: Request) -> TransientError | None:
        waits = question(request) == "0" and anyio.current_time() < 8
        return TransientError("later", retry_after_s=8, status=503) if waits else None

    run = Run(TimedServer("only", 0.1, fault=fault), slots=2, max_outage_s=3)
    assert await run.ask(200, until_s=600) == {"answered": 200}


async def test_a_row_that_is_always_refused_is_one_failure() -> None:
    """While others are answered, so the limit is not the reason."""

    def fault(request: Request) -> RateLimitError | None:
        return RateLimitError("slow down") if question(request) == "3" else None

    run = Run(TimedServer("only", 0.1, fault=fault), slots=2)
    assert await run.ask(40, until_s=1800) == {"answered": 39, "failed": 1}
    assert run.engine.stats.last_error == "slow down"


async def test_one_wild_figure_of_tokens_does_not_stop_all_sending() -> None:
    """2**32 - 1 for an answer of at most 256."""
    server = TimedServer("only", 0.1, tokens=lambda text: 2**32 - 1 if text == "0" else 5)
    assert await Run(server, tpm=10_000).ask(20, until_s=600) == {"answered": 20}


def closed_until(until_s: float, retry_after_s: float | None) -> TimedServer:
    def fault(request: Request) -> RateLimitError | None:
        is_closed = anyio.current_time() < until_s
        return RateLimitError("slow down", retry_after_s) if is_closed else None

    return TimedServer("only", 0.1, fault=fault)


async def test_while_nothing_passes_a_server_is_asked_ever_more_rarely() -> None:
    """The pauses double up to a minute; once it takes requests again, all are answered soon."""
    server = closed_until(300, None)
    assert await Run(server, slots=20).ask(40, until_s=3600) == {"answered": 40}
    asked = [server.n_asked(at, at + 60) for at in (60, 120, 180, 240)]
    assert 1 <= min(asked) <= max(asked) <= 20
    assert server.answered[-1] < 300 + 75


async def test_how_long_to_wait_is_heard_by_all_rows() -> None:
    """Those that were not sent wait as long as those that were refused."""
    server = closed_until(100, 100.0)
    assert await Run(server, slots=20, rpm=6000).ask(200, until_s=3600) == {"answered": 200}
    assert server.n_asked(0, 100) <= 16  # in flight by the tenth refusal, and no more
    assert server.n_asked(1, 100) == 0


@pytest.mark.parametrize("kind", ["status", "timeout"])
async def test_a_failed_request_gives_its_tokens_back_unless_they_may_be_billed(kind: str) -> None:
    asked: Counter[str] = Counter()

    def fault(request: Request) -> TransientError | None:
        asked[question(request)] += 1
        first = asked.total() == 1
        return TransientError("gone", kind) if first else None  # type: ignore[arg-type]

    server = TimedServer("only", 1, fault=fault)
    assert await Run(server, tpm=600).ask(1, until_s=600) == {"answered": 1}
    (_, _), (again_s, _) = server.asked
    assert (again_s > 50) == (kind == "timeout")
