"""The breaker: what is evidence of an outage, how it probes, when patience ends."""

from __future__ import annotations

from typing import Any

import pytest

from claimscore.errors import OutageError, RateLimitError, TransientError, TransientKind
from claimscore.pipeline.llm.circuit_breaker import OPENS_AT, CircuitBreaker
from tests.support.engine_doubles import VirtualClock


def closed(clock: VirtualClock, max_outage_s: float = 3600.0) -> CircuitBreaker:
    return CircuitBreaker(max_outage_s, clock=clock, jitter=lambda: 0.5)


def fail(breaker: CircuitBreaker, key: str, kind: TransientKind = "status", **facts: bool) -> bool:
    return breaker.failed(key, TransientError("HTTP 503: down", kind), **facts)


def opened(clock: VirtualClock, max_outage_s: float = 3600.0) -> CircuitBreaker:
    breaker = closed(clock, max_outage_s)
    for number in range(int(OPENS_AT)):
        fail(breaker, f"key {number}")
    assert breaker.is_open
    return breaker


@pytest.mark.parametrize(
    ("keys", "facts", "counted", "opens"),
    [
        pytest.param("abcdefgh", {}, [1, 1, 1, 1, 0, 0, 0, 0], True, id="several in a row"),
        pytest.param("aa", {"kind": "connect"}, [0, 0], True, id="not reached"),
        pytest.param("aaaaaaaa", {}, [1] * 8, False, id="one request alone"),
        pytest.param("aaaaaaaab", {}, [1] * 8 + [0], True, id="a second one after it"),
        pytest.param("abcdefgh" * 9, {"others_answered": True}, [1] * 72, False, id="poison"),
    ],
)
def test_what_opens_it_and_what_counts_against_a_request(
    keys: str, facts: dict[str, Any], counted: list[int], opens: bool
) -> None:
    breaker = closed(VirtualClock())
    assert [fail(breaker, key, **facts) for key in keys] == counted
    assert breaker.is_open is opens


def test_patience_ends_after_max_outage_s() -> None:
    clock = VirtualClock()
    breaker = opened(clock, max_outage_s=60)
    clock.now += 59
    fail(breaker, "probe", probe=True)
    clock.now += 1
    with pytest.raises(OutageError, match=r"60 s .*max-outage-s 60.*HTTP 503"):
        fail(breaker, "probe", probe=True)


def test_a_server_that_refuses_everything_for_too_long_ends_patience_too() -> None:
    clock = VirtualClock()
    breaker = closed(clock, max_outage_s=60)
    breaker.refused(RateLimitError("HTTP 429: slow down"))
    clock.now += 30
    breaker.refused(RateLimitError("HTTP 429: slow down"))
    clock.now += 31
    with pytest.raises(OutageError, match="slow down"):
        breaker.refused(RateLimitError("HTTP 429: slow down"))
