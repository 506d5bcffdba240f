"""One known limit: by option, by headers, by both."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.pipeline.llm.limits.budget import Budget, Told, read
from claimscore.types import LimitState
from tests.pipeline.llm.limits.simulation import SimulatedServer, simulate


@pytest.mark.parametrize(
    ("state", "told"),
    [
        pytest.param(LimitState(), None, id="nothing"),
        pytest.param(LimitState(None, 5, 1), None, id="no limit"),
        pytest.param(LimitState(0, 0, 1), None, id="a limit of nothing"),
        pytest.param(LimitState(3000), Told(3000, None, 0), id="only the limit"),
        pytest.param(LimitState(3000, 2990, 0.2), Told(3000, 2990, 3000), id="a full minute"),
        pytest.param(LimitState(3000, 49, 0.02), Told(3000, 49, 50), id="a second"),
        pytest.param(LimitState(3000, 10, 59.8), Told(3000, 10, 3000), id="nearly empty"),
        pytest.param(LimitState(3000, 100, None), Told(3000, 100, 100), id="no reset"),
        pytest.param(LimitState(3000, 5000, 1), Told(3000, 3000, 3000), id="too much left"),
        pytest.param(LimitState(200, 190, 4320), Told(10 * 60 / 4320, 190, 200), id="a day"),
    ],
)
def test_headers_are_read_as_a_bucket(state: LimitState, told: Told | None):
    """Limit, what is left, and how much there can be; resets of over a minute are a day's."""
    found = read(state)
    assert (found is None) == (told is None)
    if found is not None and told is not None:
        assert found.per_minute == pytest.approx(told.per_minute)
        assert found.remaining == told.remaining
        assert found.depth == pytest.approx(told.depth)


def heard(budget: Budget, remaining: float, *, limit: float = 3000, **more: float) -> None:
    reset_s = (limit - remaining) / (limit / 60)
    where = {"elapsed_s": 0.1, "sent_since": 0.0, "now": 1.0, **more}
    budget.heard(LimitState(limit, remaining, reset_s), **where)  # type: ignore[arg-type]


def test_what_is_left_is_used_but_for_a_margin():
    """2,000 left of a minute's 3,000: a quarter second of the rate stays there."""
    budget = Budget(None)
    heard(budget, 2000)
    assert budget.wait_s(2000 - 12.5, 1.0) == 0.0
    assert budget.wait_s(2000, 1.0) > 0.2


def test_what_was_sent_since_is_subtracted():
    """It may have arrived after the header was made, or before."""
    budget = Budget(None)
    heard(budget, 2000, sent_since=500.0)
    assert budget.wait_s(1500, 1.0) > 0
    assert budget.wait_s(1490, 1.0) == 0.0


def test_a_header_that_fits_changes_nothing():
    """Between its earliest and its latest meaning our own account holds: no drift by noise."""
    budget = Budget(None)
    heard(budget, 2000)
    assert budget.pace is not None
    budget.take(300)
    level = budget.pace.level
    heard(budget, 1900, sent_since=250.0, elapsed_s=0.0)
    assert budget.pace.level == level


def test_what_others_used_is_obeyed():
    """The server has less left than we thought."""
    budget = Budget(None)
    heard(budget, 2000)
    heard(budget, 100)
    assert budget.wait_s(100, 1.0) > 0


def test_the_lower_of_option_and_header_wins():
    """And an option that is lower is kept smoothly, whatever credit there is."""
    low = Budget(600)
    heard(low, 3000)
    assert low.per_minute == 600
    assert not low.uses_credit
    high = Budget(6000)
    heard(high, 3000)
    assert high.per_minute == 3000
    assert high.uses_credit
    assert high.from_headers


def test_a_header_that_falls_below_the_option_wins_from_then_on():
    """The server lowered its limit."""
    budget = Budget(600)
    heard(budget, 100, limit=300)
    assert budget.per_minute == 300


def test_credit_is_given_up_after_a_lesson():
    """Only where more than a second of it was in use."""
    budget = Budget(None)
    heard(budget, 2000)
    assert budget.stop_using_credit()
    assert not budget.uses_credit
    heard(budget, 2000)
    assert not budget.uses_credit
    assert not budget.stop_using_credit()


def test_what_was_learnt_another_time_is_kept_until_headers_speak():
    """Smoothly: what is left is not known."""
    budget = Budget(None)
    budget.assume(600)
    assert budget.per_minute == 600
    assert not budget.uses_credit
    heard(budget, 3000)
    assert budget.per_minute == 3000


@given(
    st.integers(20, 5000),
    st.sampled_from([0.05, 0.5, 3.0]),
    st.integers(1, 40),
    st.integers(0, 10),
)
@settings(max_examples=25, deadline=None)
def test_no_minute_exceeds_an_option(rpm: int, latency_s: float, concurrency: int, seed: int):
    """Whatever the server says, refuses, or takes its time for."""
    server = SimulatedServer(
        rpm=rpm * 2,
        latency_s=latency_s,
        headers="at admission",
        depth_s=60,
        isolated=0.1,
        seed=seed,
    )
    client = simulate(server, min(2 * rpm, 3000), rpm=rpm, concurrency=concurrency, seed=seed)
    assert client.most_in_a_minute() <= rpm
    assert len(client.done) == min(2 * rpm, 3000)


@given(st.integers(1000, 100_000), st.integers(1, 400), st.integers(0, 10))
@settings(max_examples=25, deadline=None)
def test_no_minute_exceeds_an_option_for_tokens(tpm: int, largest: int, seed: int):
    """Sizes up to a twentieth of the limit have their room; of larger ones, one may go over."""
    server = SimulatedServer(latency_s=1)
    client = simulate(
        server, 300, tpm=tpm, tokens=lambda r: r.randint(1, largest), concurrency=50, seed=seed
    )
    over = max(0.0, largest - tpm / 20)
    assert client.most_in_a_minute() <= tpm + over + 1e-6
    assert len(client.done) == 300
