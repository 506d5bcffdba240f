"""What the limits must reach where limits are known, in simulated runs of an engine.

All on a virtual clock: the figures are properties of the algorithm, not of the machine.
"""

from __future__ import annotations

import pytest

from tests.pipeline.llm.ratelimit.simulation import Client, SimulatedServer, World, simulate

# -- limits told by option


@pytest.mark.parametrize(
    ("rpm", "n", "depth_s", "latency_s"),
    [
        pytest.param(3000, 5000, 1, 0.05, id="3,000, a second deep"),
        pytest.param(3000, 5000, 60, 2, id="3,000, a minute deep, 2 s"),
        pytest.param(300, 900, 1, 0.05, id="300"),
        pytest.param(300, 900, 1, 2, id="300, 2 s"),
        pytest.param(60_000, 70_000, 1, 0.05, id="60,000"),
        pytest.param(10, 40, 1, 0.05, id="10"),
    ],
)
def test_a_limit_given_by_option_is_used_and_never_exceeded(
    rpm: int, n: int, depth_s: float, latency_s: float
):
    """No 429, no minute over the limit, at least 98 % of it used, from the first request on."""
    server = SimulatedServer(rpm=rpm, depth_s=depth_s, latency_s=latency_s)
    client = simulate(server, n, rpm=rpm)
    assert client.n_refused == 0
    assert client.most_in_a_minute() <= rpm
    assert client.done[-1] <= (n / (rpm / 60)) / 0.98 + 1.2 * latency_s


def test_tokens_given_by_option_are_used_and_never_exceeded():
    """Requests of 100 to 400 tokens: no minute over the limit, at least 95 % of it used."""
    server = SimulatedServer(tpm=300_000, latency_s=2)
    client = simulate(server, 2400, tpm=300_000, tokens=lambda r: r.randint(100, 400))
    assert client.n_refused == 0
    assert client.most_in_a_minute() <= 300_000
    ideal_s = sum(tokens for _, tokens in client.sent) / 5000
    assert client.done[-1] <= ideal_s / 0.95 + 2.2


def test_a_wrong_option_is_found_out():
    """6,000 a minute are given where the server takes 3,000: the rate settles at 3,000."""
    server = SimulatedServer(rpm=3000)
    client = simulate(server, rpm=6000, until=120)
    assert server.rate(20, 120) >= 0.95 * 50
    assert client.refused_share <= 0.02


# -- limits told by headers


@pytest.mark.parametrize("headers", ["at admission", "at answer"])
@pytest.mark.parametrize("latency_s", [0.05, 2])
@pytest.mark.parametrize("rpm", [None, 3000, 6000], ids=["told", "and given", "given too high"])
def test_a_full_minutes_credit_is_used_at_once(headers, latency_s: float, rpm: int | None):
    """5,000 requests at 3,000 a minute: 2,000 of them at the rate, the others before that."""
    server = SimulatedServer(rpm=3000, depth_s=60, latency_s=latency_s, headers=headers)
    client = simulate(server, 5000, rpm=rpm)
    ideal_s = max((5000 - 3000) / 50, 5000 * latency_s / 128) + latency_s
    assert client.done[-1] <= 1.03 * ideal_s
    assert client.refused_share <= 0.001


@pytest.mark.parametrize("headers", ["at admission", "at answer"])
@pytest.mark.parametrize("latency_s", [0.05, 2])
def test_a_shallow_bucket_is_not_overrun(headers, latency_s: float):
    """A bucket of one second: at least 98 % of the rate, 429s at most 0.1 %."""
    server = SimulatedServer(rpm=3000, latency_s=latency_s, headers=headers)
    client = simulate(server, 5000)
    assert 5000 / 50 / (client.done[-1] - 1.1 * latency_s) >= 0.98
    assert client.refused_share <= 0.001


@pytest.mark.parametrize("headers", ["at admission", "at answer"])
def test_long_answers_change_nothing(headers):
    """Answers take 10 to 30 s and come in any order; thousands are under way."""
    server = SimulatedServer(rpm=3000, depth_s=60, latency_s=20, jitter=0.5, headers=headers)
    client = simulate(server, 6000, rpm=3000, concurrency=4000)
    assert client.refused_share <= 0.001
    assert client.done[-1] <= 1.03 * ((6000 - 3000) / 50 + 30)


def test_an_option_lower_than_the_headers_wins():
    """And then no minute holds more, whatever credit the server shows."""
    server = SimulatedServer(rpm=3000, depth_s=60, headers="at admission")
    client = simulate(server, 2000, rpm=600, concurrency=32)
    assert client.most_in_a_minute() <= 600
    assert client.done[-1] <= 2000 / 10 / 0.98


@pytest.mark.parametrize(
    ("depth_s", "concurrency"), [(1, 128), (10, 128), (60, 512)], ids=["1 s", "10 s", "60 s"]
)
@pytest.mark.parametrize("headers", ["at admission", "at answer"])
def test_tokens_told_by_headers_are_used(headers, depth_s: float, concurrency: int):
    """1,500 requests of about 250 tokens that are estimated within 15 %, answers after 2 s."""
    server = SimulatedServer(tpm=300_000, depth_s=depth_s, latency_s=2, headers=headers)
    client = simulate(
        server,
        1500,
        concurrency=concurrency,
        tokens=lambda r: r.randint(150, 350),
        expect=lambda client, tokens: int(tokens * client.random.uniform(0.85, 1.15)),
    )
    total = sum(tokens for _, tokens in client.sent[: 1500 + client.n_refused])
    assert client.done[-1] <= max(total / 5000 - depth_s, 0) / 0.95 + 2.2


def test_estimates_that_get_better_are_used_by_those_who_wait():
    """The first expectation is four times too high, until answers tell."""
    server = SimulatedServer(tpm=300_000, latency_s=2)

    def expect(client: Client, tokens: int) -> int:
        return tokens if client.done else 4 * tokens

    client = simulate(
        server, 1500, tpm=300_000, concurrency=256, tokens=lambda _: 200, expect=expect
    )
    assert client.done[-1] <= 1500 * 200 / 5000 / 0.95 + 2.2
    assert client.n_refused == 0


def test_what_others_use_is_left_to_them():
    """Another machine takes half of the limit for a while: it shows in `remaining`."""
    server = SimulatedServer(rpm=3000, headers="at admission")

    def others(world: World, server: SimulatedServer) -> None:
        assert server.requests is not None
        server.requests.earn(world.now)
        server.requests.level -= min(server.requests.level, 2.5)
        if world.now < 60:
            world.at(world.now + 0.1, lambda: others(world, server))

    client = simulate(
        server, until=90, then=lambda w, s: w.at(20, lambda: others(w, s)), concurrency=64
    )
    assert server.rate(30, 60) == pytest.approx(25, rel=0.1)
    assert server.rate(70, 90) >= 0.95 * 50
    assert client.refused_share <= 0.001


def test_a_server_that_refuses_in_spite_of_its_headers_is_paced():
    """It shows a minute's credit and takes only a second's: after that lesson, none is lost."""
    server = SimulatedServer(rpm=3000, depth_s=60, headers="at admission", slice_s=1)
    client = simulate(server, until=60)
    assert server.rate(5, 60) >= 0.95 * 50
    assert sum(t > 5 for t in server.refused) <= 5
    assert client.limiter.state().source == "headers"
