"""What an engine reaches where no limit is declared, or there is none."""

import anyio
import pytest

from tests.support.limited_server import LimitedServer, ask


@pytest.mark.parametrize(
    ("rpm", "depth_s", "latency_s", "concurrency", "seconds"),
    [
        pytest.param(3000, 1, 0.05, 64, 72, id="3,000, 1 s: the benchmark's row"),
        pytest.param(3000, 60, 0.05, 128, 130, id="3,000, 60 s"),
        pytest.param(3000, 1, 2, 128, 120, id="3,000, 1 s, slow"),
        pytest.param(3000, 60, 2, 256, 180, id="3,000, 60 s, slow"),
        pytest.param(300, 1, 0.05, 64, 900, id="300, 1 s"),
        pytest.param(300, 60, 0.05, 64, 1800, id="300, 60 s"),
        pytest.param(300, 1, 2, 64, 900, id="300, 1 s, slow"),
    ],
)
def test_a_limit_is_found(
    rpm: int, depth_s: float, latency_s: float, concurrency: int, seconds: float
):
    server = LimitedServer(rpm=rpm, depth_s=depth_s, latency_s=latency_s, has_retry_after=False)
    ask(server, round(rpm * (seconds / 60 + 2)), until=seconds, concurrency=concurrency)
    assert server.rate(50, 60) >= 0.9 * rpm / 60
    assert server.rate(60, seconds) >= 0.9 * rpm / 60
    assert server.refused_share <= 0.02


@pytest.mark.parametrize("latency_s", [0.05, 2])
def test_a_limit_of_tokens_is_found(latency_s: float):
    server = LimitedServer(tpm=300_000, latency_s=latency_s)
    ask(server, 9000, until=300, tokens=lambda draw: draw.randint(100, 400))
    assert server.rate(60, 300) >= 0.9 * 20
    assert server.refused_share <= 0.02


@pytest.mark.parametrize(
    ("rpm", "factor", "latency_s", "settles_s", "refused_share"),
    [
        pytest.param(3000, 0.5, 0.05, 40, 0.02, id="3,000, halved"),
        pytest.param(300, 0.5, 0.05, 100, 0.05, id="300, halved"),
        pytest.param(300, 2, 2, 100, 0.05, id="300, doubled, slow"),
    ],
)
def test_a_limit_that_changes_is_found_again(
    rpm: int, factor: float, latency_s: float, settles_s: float, refused_share: float
):
    server = LimitedServer(rpm=rpm, latency_s=latency_s)

    async def change() -> None:
        await anyio.sleep(120)
        assert server.requests is not None
        server.requests.per_minute = rpm * factor

    end_s = 240 + settles_s
    ask(server, 10 * rpm, until=end_s, concurrency=256, meanwhile=change)
    assert server.rate(120 + settles_s, end_s) >= 0.9 * rpm * factor / 60
    n_sent = sum(t > 120 for t, _ in server.sent)
    assert sum(t > 120 for t in server.refused) <= refused_share * n_sent


@pytest.mark.parametrize(
    ("share", "retry_after_s", "concurrency", "times"),
    [
        pytest.param(0.05, None, 32, 1.15, id="few"),
        pytest.param(0.05, 1.0, 64, 1.15, id="few, with a wait"),
        pytest.param(0.1, None, 64, 2, id="a tenth"),
    ],
)
def test_refusals_at_any_rate_hardly_slow_a_run(
    share: float, retry_after_s: float | None, concurrency: int, times: float
):
    """Slowing down does not help there."""

    def wall_s(isolated: float) -> float:
        server = LimitedServer(
            latency_s=0.3, isolated=isolated, isolated_retry_after_s=retry_after_s
        )
        return ask(server, 100 * concurrency, concurrency=concurrency).done_s

    assert wall_s(share) <= times * wall_s(0.0)
