"""What the limiter must reach where no limit is declared, or there is none, in simulated runs.

All on a virtual clock: the figures are properties of the algorithm, not of the machine.
"""

from __future__ import annotations

import pytest

from tests.support.limiter_simulation import SimulatedServer, World, simulate

# -- limits that nothing declares


@pytest.mark.parametrize(
    ("rpm", "depth_s", "latency_s", "concurrency", "seconds"),
    [
        pytest.param(3000, 1, 0.05, 64, 72, id="3,000, 1 s: the benchmark's row"),
        pytest.param(3000, 1, 0.05, 128, 120, id="3,000, 1 s"),
        pytest.param(3000, 60, 0.05, 128, 180, id="3,000, 60 s"),
        pytest.param(3000, 1, 2, 128, 120, id="3,000, 1 s, slow"),
        pytest.param(3000, 60, 2, 256, 180, id="3,000, 60 s, slow"),
        pytest.param(300, 1, 0.05, 64, 900, id="300, 1 s"),
        pytest.param(300, 60, 0.05, 64, 1800, id="300, 60 s"),
        pytest.param(300, 1, 2, 64, 900, id="300, 1 s, slow"),
        pytest.param(300, 60, 2, 64, 900, id="300, 60 s, slow"),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_limit_is_found(
    rpm: int, depth_s: float, latency_s: float, concurrency: int, seconds: float, seed: int
):
    server = SimulatedServer(
        rpm=rpm, depth_s=depth_s, latency_s=latency_s, has_retry_after=False, seed=seed
    )
    client = simulate(server, until=seconds, concurrency=concurrency, seed=seed)
    assert server.rate(50, 60) >= 0.9 * rpm / 60
    assert server.rate(60, seconds) >= 0.9 * rpm / 60
    assert client.refused_share <= 0.02


@pytest.mark.parametrize("latency_s", [0.05, 2])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_limit_of_tokens_is_found(latency_s: float, seed: int):
    server = SimulatedServer(tpm=300_000, latency_s=latency_s, seed=seed)
    client = simulate(server, until=300, tokens=lambda r: r.randint(100, 400), seed=seed)
    assert server.rate(60, 300) >= 0.9 * 20
    assert client.refused_share <= 0.02


@pytest.mark.parametrize("factor", [0.5, 2], ids=["halved", "doubled"])
@pytest.mark.parametrize(
    ("rpm", "settles_s", "refused_share"), [(3000, 40, 0.02), (300, 100, 0.05)]
)
@pytest.mark.parametrize("latency_s", [0.05, 2])
def test_a_limit_that_changes_is_found_again(
    rpm: int, settles_s: float, refused_share: float, factor: float, latency_s: float
):
    server = SimulatedServer(rpm=rpm, latency_s=latency_s)

    def change(world: World, server: SimulatedServer) -> None:
        assert server.requests is not None
        server.requests.change(rpm * factor, world.now)

    client = simulate(
        server,
        until=240 + settles_s,
        concurrency=256,
        then=lambda w, s: w.at(120, lambda: change(w, s)),
    )
    assert server.rate(120 + settles_s, 240 + settles_s) >= 0.9 * rpm * factor / 60
    n_sent = sum(t > 120 for t, _ in client.sent)
    assert sum(t > 120 for t in server.refused) <= refused_share * n_sent


@pytest.mark.parametrize("concurrency", [32, 128])
@pytest.mark.parametrize("retry_after_s", [None, 0.02, 1.0])
def test_isolated_refusals_hardly_slow_a_run(concurrency: int, retry_after_s: float | None):
    n = 100 * concurrency

    def wall_s(isolated: float, seed: int) -> float:
        server = SimulatedServer(
            latency_s=0.3, isolated=isolated, isolated_retry_after_s=retry_after_s, seed=seed
        )
        return simulate(server, n, concurrency=concurrency, n_workers=4 * concurrency).done[-1]

    assert wall_s(0.05, 1) <= 1.15 * wall_s(0.0, 1)


def test_more_isolated_refusals_do_not_stop_a_run():
    """Of a tenth at any rate: slowing down does not help."""

    def wall_s(isolated: float) -> float:
        server = SimulatedServer(latency_s=0.3, isolated=isolated, seed=2)
        return simulate(server, 6400, concurrency=64, n_workers=256).done[-1]

    assert wall_s(0.1) <= 2 * wall_s(0.0)
