"""Several processes, one key: they share its limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimscore.pipeline.llm.limits.flow import Flow
from claimscore.pipeline.llm.limits.leases import LEASE_S, VALID_S, Leases
from claimscore.pipeline.llm.limits.pace import Pace
from claimscore.pipeline.llm.limits.shared import Learnt, SharedBudget
from claimscore.types import LimitState, RateLimits
from tests.pipeline.llm.limits.simulation import Client, SimulatedServer, World


class Account:
    """What is asked of a shared budget."""

    def __init__(self, wait_s: float = 0.0, learnt: Learnt | None = None) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.learnt = learnt
        self._wait_s = wait_s

    def lease(self, kind: str, units: float, per_minute: float, depth_s: float) -> float:
        self.calls.append(("lease", kind, round(units, 3)))
        return self._wait_s

    def give_back(self, kind: str, units: float, per_minute: float) -> None:
        self.calls.append(("give back", kind, round(units, 3)))

    def recall(self) -> Learnt | None:
        return self.learnt

    def remember(self, learnt: Learnt) -> None:
        self.learnt = learnt


def test_leases_are_taken_a_few_at_a_time():
    """A fifth of a second of the rate, and the next when it is used up."""
    account = Account()
    leases = Leases(account, "requests")
    for _ in range(11):
        assert leases.wait_s(1, Pace(50), 0.0) == 0.0
        leases.take(1)
    assert account.calls == [("lease", "requests", 50 * LEASE_S)] * 2


def test_a_lease_is_for_one_request_at_least():
    """However slow, and however large."""
    account = Account()
    leases = Leases(account, "tokens")
    leases.wait_s(0, Pace(0.1), 0.0)
    assert account.calls == []
    leases.wait_s(500, Pace(0.1), 0.0)
    assert account.calls == [("lease", "tokens", 500)]


def test_a_lease_may_be_for_later():
    """Others are before us; asking again takes no second one."""
    account = Account(wait_s=3.0)
    leases = Leases(account, "requests")
    assert leases.wait_s(1, Pace(50), 10.0) == 3.0
    assert leases.wait_s(1, Pace(50), 12.0) == 1.0
    assert leases.wait_s(1, Pace(50), 13.0) == 0.0
    assert len(account.calls) == 1


def test_what_is_not_used_in_time_is_given_back():
    """Else it would be used on top of what others were given meanwhile."""
    account = Account()
    leases = Leases(account, "requests")
    leases.wait_s(1, Pace(50), 0.0)
    leases.take(1)
    leases.wait_s(1, Pace(50), VALID_S + 0.01)
    assert account.calls[1:] == [("give back", "requests", 9), ("lease", "requests", 10)]


def test_closing_gives_back_what_is_held():
    """Once; and nothing where nothing is."""
    account = Account()
    flow = Flow(rpm=3000, shared=account)
    assert flow.wait_s(0, 0.0) == 0.0
    flow.take(0, 0.0)
    flow.close()
    flow.close()
    assert [call[0] for call in account.calls] == ["lease", "give back"]


def test_no_lease_is_taken_where_no_limit_is_known_or_it_is_not_time():
    """A few calls a second: they take some time."""
    account = Account()
    unlimited = Flow(shared=account)
    for _ in range(4):
        assert unlimited.wait_s(0, 0.0) == 0.0
        unlimited.take(0, 0.0)
    limited = Flow(rpm=60, shared=account)
    limited.take(0, 0.0)
    assert limited.wait_s(0, 0.0) > 0
    assert account.calls == []


def test_limits_that_headers_tell_are_remembered_and_recalled():
    """The next process begins with them, smoothly: it does not know what is left."""
    account = Account()
    flow = Flow(shared=account)
    limits = RateLimits(LimitState(3000, 2999, 0.02), LimitState(90_000, 100, 59))
    flow.answered(flow.take(0, 0.0), 0, limits, 0.1)
    assert account.learnt is not None
    assert (account.learnt.rpm, account.learnt.tpm) == (3000, 90_000)
    assert account.learnt.rpm_depth_s == pytest.approx(60)
    again = Flow(shared=account)
    assert again.state().rpm == 3000
    assert not again.requests.uses_credit


def test_a_good_rate_is_remembered_and_recalled():
    """The next run provokes hardly any refusal and needs no search."""
    account = Account()
    for attempt in range(2):
        world, server = World(), SimulatedServer(rpm=3000, retry_after="none")
        flow = Flow(max_concurrency=128, shared=account)
        client = Client(world, flow, server, 10**9)
        world.run(60)
        flow.close()
        assert account.learnt is not None
        assert account.learnt.good_rps == pytest.approx(50, rel=0.1)
        if attempt:
            assert client.n_refused <= 20
            assert server.rate(0, 60) >= 0.9 * 50


def shared_budget(path: Path, world: World) -> SharedBudget:
    return SharedBudget(path / "limits.sqlite", "scope", clock=world, wall_clock=world)


@pytest.mark.parametrize("rpm", [60, 3000])
def test_two_processes_share_one_limit(tmp_path: Path, rpm: int):
    """Together they use at least 95 % and in no minute more than all of it."""
    world, server = World(), SimulatedServer(rpm=rpm, depth_s=2)
    clients = [
        Client(
            world,
            Flow(rpm=rpm, shared=shared_budget(tmp_path, world)),
            server,
            10**9,
            concurrency=64,
            seed=seed,
        )
        for seed in (1, 2)
    ]
    world.run(150)
    clients[0].sent = sorted(clients[0].sent + clients[1].sent)
    assert clients[0].most_in_a_minute() <= rpm
    assert len(server.admitted) >= 0.95 * rpm * 150 / 60 - 1
    assert not server.refused
    shares = [len(client.done) for client in clients]
    assert min(shares) >= 0.35 * sum(shares)


def test_two_processes_use_up_a_full_minutes_credit_and_share_what_flows_in(tmp_path: Path):
    """They see the server's account a round trip late: once, some in flight are too many."""
    world = World()
    server = SimulatedServer(tpm=300_000, depth_s=60, headers="at admission")
    for seed in (1, 2):
        flow = Flow(max_concurrency=64, shared=shared_budget(tmp_path, world))
        Client(
            world,
            flow,
            server,
            10**9,
            concurrency=64,
            tokens=lambda r: r.randint(150, 350),
            seed=seed,
        )
    world.run(60)
    assert len(server.admitted) * 250 >= 0.95 * 600_000
    assert len(server.refused) <= 128
    assert not [t for t in server.refused if t > 5]


def test_a_killed_process_leaves_the_limit_to_the_other(tmp_path: Path):
    """Nothing of it has to expire: half a second later the other has it all."""
    world, server = World(), SimulatedServer(rpm=3000)
    killed, other = [
        Client(
            world,
            Flow(rpm=3000, shared=shared_budget(tmp_path, world)),
            server,
            10**9,
            concurrency=64,
            seed=seed,
        )
        for seed in (1, 2)
    ]
    world.run(30)
    killed.kill()
    n_done = len(other.done)
    world.run(60)
    assert len(other.done) - n_done >= 0.95 * 50 * 30
