"""Pauses, headers, options, recovery, and what people are told."""

import pytest

from claimscore.pipeline.llm.rate_limits import Permit, RateLimiter


class Script:
    """A limiter that is told how each request ended, at times of the test's choice."""

    def __init__(self, **settings: object) -> None:
        self.now = 100.0
        self.in_flight = 0
        self.limiter = RateLimiter(
            clock=lambda: self.now,
            **settings,  # type: ignore[arg-type]
        )

    def take(self, n: int = 1, tokens: tuple[int, int] = (0, 0)) -> list[Permit]:
        """So many permits, as soon as each is to be had."""
        permits = []
        while len(permits) < n:
            permit = self.limiter.try_reserve(tokens, self.in_flight)
            if permit is None:
                self.now += self.limiter.wait_s(tokens, self.in_flight)
            else:
                permits.append(permit)
                self.in_flight += 1
        return permits

    def answer(self, permits: list[Permit]) -> None:
        self.in_flight -= len(permits)
        for permit in permits:
            self.limiter.answered(permit, permit.tokens, None)

    def refuse(self, permits: list[Permit], retry_after_s: float | None = None) -> None:
        self.in_flight -= len(permits)
        for permit in permits:
            self.limiter.refused(permit, retry_after_s, None)

    @property
    def paused_s(self) -> float:
        return max(0.0, self.limiter.state().paused_until - self.now)


def test_refusals_in_a_row_pause_all_requests_until_the_latest_time_told():
    script = Script(slow_start=False)
    script.answer(script.take(20))
    permits = script.take(12)
    script.refuse(permits[:11], retry_after_s=20)
    assert script.paused_s == 20
    assert script.limiter.wait_s((0, 0), 0) == 20
    assert script.limiter.try_reserve((0, 0), 0) is None
    script.refuse(permits[11:], retry_after_s=30)
    assert script.paused_s == 30
    assert script.limiter.state().why


def test_while_nothing_passes_pauses_grow():
    script = Script(slow_start=False)
    script.refuse(script.take(10))
    pauses = [script.paused_s]
    for _ in range(9):
        script.now += script.paused_s
        script.refuse(script.take(2))
        pauses.append(round(script.paused_s, 6))
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    script.now += 60
    script.answer(script.take(20))
    assert script.paused_s == 0
    script.now += 60
    script.refuse(script.take(40))
    script.refuse(script.take(3))
    assert script.paused_s == 0.5  # it had taken requests again


@pytest.mark.parametrize("counted", [False, True])
def test_failures_give_tokens_back_unless_they_count(counted: bool):
    script = Script(tpm=6000)
    (permit,) = script.take(1, tokens=(100, 6000))
    script.limiter.failed(permit, counted=counted)
    assert script.limiter.wait_s((0, 100), 0) == pytest.approx(60 if counted else 1, rel=0.06)
