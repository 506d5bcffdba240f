"""A limit declared by an option, by headers, or by both: as it is read, kept and used up."""

import pytest

from tests.support.limited_server import LimitedServer, ask


@pytest.mark.parametrize(
    ("rpm", "n", "depth_s", "latency_s"),
    [
        pytest.param(3000, 5000, 1, 0.05, id="3,000, a second deep"),
        pytest.param(3000, 5000, 60, 2, id="3,000, a minute deep, 2 s"),
        pytest.param(300, 900, 1, 0.05, id="300"),
        pytest.param(300, 900, 1, 2, id="300, 2 s"),
        pytest.param(10, 40, 1, 0.05, id="10"),
    ],
)
def test_a_limit_given_by_option_is_used_and_never_exceeded(
    rpm: int, n: int, depth_s: float, latency_s: float
):
    server = LimitedServer(rpm=rpm, depth_s=depth_s, latency_s=latency_s)
    ask(server, n, rpm=rpm)
    assert not server.refused
    assert server.most_in_a_minute() <= rpm
    assert server.done_s <= (n / (rpm / 60)) / 0.98 + 1.2 * latency_s


def test_tokens_given_by_option_are_used_and_never_exceeded():
    server = LimitedServer(tpm=300_000, latency_s=2)
    ask(server, 2400, tpm=300_000, tokens=lambda draw: draw.randint(100, 400))
    assert not server.refused
    assert server.most_in_a_minute() <= 300_000
    ideal_s = sum(tokens for _, tokens in server.sent) / 5000
    assert server.done_s <= ideal_s / 0.95 + 2.2


@pytest.mark.parametrize("latency_s", [0.05, 2])
@pytest.mark.parametrize("rpm", [None, 3000, 6000], ids=["told", "and given", "given too high"])
def test_a_full_minutes_credit_is_used_at_once(latency_s: float, rpm: int | None):
    server = LimitedServer(rpm=3000, depth_s=60, latency_s=latency_s, has_headers=True)
    ask(server, 5000, rpm=rpm)
    ideal_s = max((5000 - 3000) / 50, 5000 * latency_s / 128) + latency_s
    assert server.done_s <= 1.03 * ideal_s
    assert server.refused_share <= 0.001


def test_an_option_lower_than_the_headers_wins():
    server = LimitedServer(rpm=3000, depth_s=60, has_headers=True)
    ask(server, 2000, rpm=600, concurrency=32)
    assert server.most_in_a_minute() <= 600
    assert server.done_s <= 2000 / 10 / 0.98


@pytest.mark.parametrize(
    ("depth_s", "concurrency"), [(1, 128), (10, 128), (60, 512)], ids=["1 s", "10 s", "60 s"]
)
def test_tokens_told_by_headers_are_used(depth_s: float, concurrency: int):
    server = LimitedServer(tpm=300_000, depth_s=depth_s, latency_s=2, has_headers=True)
    ask(server, 1500, concurrency=concurrency, tokens=lambda draw: draw.randint(150, 350))
    total = sum(tokens for _, tokens in server.sent[: 1500 + len(server.refused)])
    two_round_trips_s = 2 * 2.1  # the first is for eight requests, whose headers tell the limit
    assert server.done_s <= max(total / 5000 - depth_s, 0) / 0.95 + two_round_trips_s
