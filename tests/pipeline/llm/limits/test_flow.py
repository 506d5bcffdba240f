"""Pauses, recovery, what is told to people: everything that is decided, without tasks."""

from __future__ import annotations

import pytest

from claimscore.pipeline.llm.limits.flow import Flow, Permit
from claimscore.pipeline.llm.limits.pause import Pause
from claimscore.types import LimitState, RateLimits
from tests.pipeline.llm.limits.simulation import Client, SimulatedServer, World, simulate


class Script:
    """A flow that is told what becomes of each request."""

    def __init__(self, **settings: object) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self.flow = Flow(on_event=self._hear, **settings)  # type: ignore[arg-type]
        self.now = 100.0

    def _hear(self, kind: str, **fields: object) -> None:
        self.events.append((kind, fields))

    def take(self, n: int = 1, tokens: int = 0) -> list[Permit]:
        return [self.flow.take(tokens, self.now) for _ in range(n)]

    def answer(self, permits: list[Permit], limits: RateLimits | None = None) -> None:
        for permit in permits:
            self.flow.answered(permit, permit.tokens, limits, self.now)

    def refuse(self, permits: list[Permit], retry_after_s: float | None = None) -> None:
        for permit in permits:
            self.flow.refused(permit, retry_after_s, None, self.now)

    @property
    def paused_s(self) -> float:
        return max(0.0, self.flow.state().paused_until - self.now)


def test_one_refusal_stops_nobody():
    """Whatever it asks for: its own request waits."""
    script = Script()
    script.answer(script.take(20))
    script.refuse(script.take(1), retry_after_s=60)
    assert script.paused_s == 0
    assert script.flow.wait_s(0, script.now) == 0


def test_refusals_in_a_row_pause_everybody_until_the_latest_time_told():
    """One event, one reason; what was under way may make it longer."""
    script = Script()
    script.answer(script.take(20))
    permits = script.take(8)
    script.refuse(permits[:5], retry_after_s=20)
    assert script.paused_s == 20
    assert script.flow.wait_s(0, script.now) == 20
    script.refuse(permits[5:], retry_after_s=30)
    assert script.paused_s == 30
    assert [kind for kind, _ in script.events] == ["paused"]
    assert script.flow.state().why


def test_without_a_time_told_pauses_grow():
    """Half a second, one, two ...: each time the next two are refused as well."""
    script = Script()
    script.refuse(script.take(5))
    pauses = [script.paused_s]
    for _ in range(9):
        script.now += script.paused_s
        script.refuse(script.take(2))
        pauses.append(script.paused_s)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_an_answer_makes_pauses_short_again():
    """The server takes requests."""
    pause = Pause()
    for now in (0.0, 10.0, 20.0):
        pause.open(now, hint_until=0.0)
    assert pause.left_s(20.0) == 2
    pause.answered()
    pause.open(30.0, hint_until=0.0)
    assert pause.left_s(30.0) == 0.5


def test_after_a_long_pause_the_flow_resumes_with_few():
    """Two at first, though a hundred wait."""
    script = Script(rpm=60_000)
    script.answer(script.take(20))
    script.refuse(script.take(5), retry_after_s=20)
    script.now += 20.1
    n_sent = 0
    while script.flow.wait_s(0, script.now) == 0 and n_sent < 100:
        script.take()
        n_sent += 1
    assert n_sent == 2


def test_after_an_outage_the_flow_resumes_with_few():
    """The engine says when."""
    script = Script()
    script.flow.window.open()
    assert script.flow.wait_s(0, script.now) == 0
    script.flow.resume_gently()
    script.take(2)
    assert script.flow.wait_s(0, script.now) > 0


def test_a_window_of_a_minute_is_waited_for():
    """Fixed windows, `retry-after` to their end: used in full, few refusals, no herd."""

    class Fixed(SimulatedServer):
        def _retry_after(self, seconds: float) -> float | None:
            return 60 - world.now % 60

    world = World()
    server = Fixed(rpm=600, slice_s=60, depth_s=1e9)
    client = Client(world, Flow(max_concurrency=64), server, 10**9, concurrency=64)
    world.run(240)
    assert len(server.admitted) >= 0.9 * 4 * 600
    assert client.refused_share <= 0.06


def test_failures_give_tokens_back_unless_they_count():
    """What was not sent, or not taken, costs no tokens."""
    script = Script(tpm=6000)
    (permit,) = script.take(1, tokens=1000)
    script.flow.failed(permit, False, None, script.now)
    assert script.flow.wait_s(0, script.now) == 0
    (permit,) = script.take(1, tokens=1000)
    script.flow.failed(permit, True, None, script.now)
    assert script.flow.wait_s(0, script.now) == pytest.approx(10, rel=0.06)


def test_permits_are_counted_down_however_they_end():
    """In flight are those not ended yet."""
    script = Script()
    first, second, third, _ = script.take(4)
    script.answer([first])
    script.refuse([second])
    script.flow.failed(third, True, None, script.now)
    assert script.flow.in_flight == 1


def told(rpm: float, remaining: float, reset_s: float) -> RateLimits:
    return RateLimits(requests=LimitState(rpm, remaining, reset_s))


@pytest.mark.parametrize(
    ("settings", "limits", "rpm", "source"),
    [
        pytest.param({}, None, None, "none", id="nothing"),
        pytest.param({"rpm": 600}, None, 600, "option", id="option"),
        pytest.param({"tpm": 600}, None, None, "option", id="tokens"),
        pytest.param({}, told(300, 299, 0.2), 300, "headers", id="headers"),
        pytest.param({"rpm": 600}, told(300, 299, 0.2), 300, "headers", id="lower header"),
        pytest.param({"rpm": 200}, told(300, 299, 0.2), 200, "option", id="lower option"),
    ],
)
def test_people_see_what_is_kept_and_where_it_comes_from(settings, limits, rpm, source):
    """The limit in force and its source."""
    script = Script(**settings)
    script.answer(script.take(1), limits)
    state = script.flow.state()
    assert (state.rpm, state.source) == (rpm, source)


def test_limits_are_news_once():
    """Headers come with every answer."""
    script = Script()
    for _ in range(50):
        script.answer(script.take(1), told(3000, 2999, 0.02))
        script.now += 0.1
    assert script.events == [("limits learnt", {"rpm": 3000, "tpm": None})]


def test_a_learnt_rate_is_seen_and_told_seldom():
    """3,000 a minute, found by refusals: a few events in two minutes."""
    events: list[str] = []
    server = SimulatedServer(rpm=3000, retry_after="none")
    world = World()
    flow = Flow(max_concurrency=128, on_event=lambda kind, **_: events.append(kind))
    Client(world, flow, server, 10**9)
    world.run(120)
    assert flow.state().source == "learnt"
    assert flow.state().rpm == pytest.approx(3000, rel=0.15)
    assert set(events) == {"paused", "rate lowered"}
    assert len(events) <= 8


def test_a_server_that_shows_nothing_left_is_taken_at_its_word():
    """Others use the limit as well: nothing is learnt from that, but pauses open and grow."""
    script = Script()
    script.answer(script.take(1), told(3000, 0, 60))
    pauses = []
    for n in (5, 2, 2):
        script.refuse(script.take(n))
        pauses.append(script.paused_s)
        script.now += script.paused_s
    assert pauses == [0.5, 1, 2]
    assert script.flow.state().source == "headers"


def test_known_limits_end_the_slow_start():
    """The first answer tells: what is known need not be found out."""
    script = Script(max_concurrency=1000)
    permits = script.take(8)
    assert script.flow.wait_s(0, script.now) > 0
    script.now += 0.1
    script.answer(permits[:1], told(3000, 2990, 0.2))
    for _ in range(500):
        assert script.flow.wait_s(0, script.now) == 0
        script.take()


def test_a_clock_that_jumps_makes_no_burst():
    """The machine slept for an hour: a quarter second of the rate, no more."""
    script = Script(rpm=600)
    script.answer(script.take(1))
    script.now += 3600
    n_sent = 0
    while script.flow.wait_s(0, script.now) == 0:
        script.take()
        n_sent += 1
    assert n_sent <= 3


def test_simulations_repeat_themselves():
    """Same seeds, same times: what these tests find can be looked at."""
    runs = [
        simulate(SimulatedServer(rpm=300, isolated=0.1, seed=3), 300, seed=3).sent for _ in range(2)
    ]
    assert runs[0] == runs[1]
