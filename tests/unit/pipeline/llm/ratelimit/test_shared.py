"""One bucket for several processes: never too much, never stuck, never in the way of a run."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.file_lock import FileLock
from claimscore.pipeline.llm.ratelimit import shared
from claimscore.pipeline.llm.ratelimit.bucket import BURST_S
from claimscore.pipeline.llm.ratelimit.limiter import RateLimiter
from claimscore.pipeline.llm.ratelimit.shared import (
    ALONE_S,
    BUSY_S,
    FORGET_S,
    RememberedLimits,
    SharedLimits,
    shared_scope,
)
from tests.support.limiter_simulation import Client, SimulatedServer, World

URL, KEY = "https://llm.example/v1", "sk-very-secret-key"
BASE = shared_scope(URL, KEY)


class Machine:
    """A machine with one state file and a clock that stands still; processes come and go."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state" / "limits.json"
        self.now = 1_800_000_000.0
        self.warnings: list[str] = []

    def process(self, key: str | None = KEY) -> SharedLimits:
        """Stands in for one more process."""
        return SharedLimits(
            self.path,
            shared_scope(URL, key),
            clock=lambda: self.now,
            on_warning=self.warnings.append,
        )

    def content(self) -> dict[str, dict[str, dict[str, list[float]]]]:
        return json.loads(self.path.read_text().splitlines()[0])  # type: ignore[no-any-return]

    def replace(self, old: str, new: str) -> None:
        text = self.path.read_text()
        assert old in text
        self.path.write_text(text.replace(old, new))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def lease(limits: SharedLimits, units: float = 1) -> float:
    """Seconds to wait at one unit a second, nothing caught up."""
    return limits.lease("requests", units, 1, 0.0)


# -- the bucket


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # which process
        st.sampled_from(["lease", "lease", "lease", "give back", "killed"]),
        st.floats(0, 5),  # seconds since the last step
        st.floats(0.01, 20),  # units
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from([1.0, 5.0]), st.sampled_from([0.0, 0.25, 10.0]))
@settings(max_examples=60)
def test_no_window_holds_more_than_the_rate_allows(
    steps: list[tuple[int, str, float, float]], rate: float, depth_s: float
):
    used: list[tuple[float, float, int]] = []  # when, units, step
    returned: list[tuple[int, float]] = []  # step, units
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        processes = [machine.process() for _ in range(3)]
        for n, (which, what, dt, units) in enumerate(steps):
            machine.now += dt
            if what == "killed":
                processes[which] = machine.process()
            elif what == "lease":
                wait_s = processes[which].lease("tokens", units, rate, depth_s)
                used.append((machine.now + wait_s, units, n))
            elif used:
                units = min(units, used[-1][1])
                processes[which].give_back("tokens", units)
                returned.append((n, units))
    for begin, _, _ in used:
        for end, _, _ in used:
            inside = [(units, n) for at, units, n in used if begin <= at <= end]
            if inside:
                first, last = inside[0][1], inside[-1][1]
                again = sum(units for n, units in returned if first < n < last)
                largest = max(units for units, _ in inside)
                most = rate * (end - begin + depth_s) + largest + again
                assert sum(units for units, _ in inside) <= most + 1e-6


def test_a_clock_that_jumps_blocks_nobody(machine: Machine):
    limits = machine.process()
    machine.now += FORGET_S / 2
    lease(limits, 3)
    machine.now -= FORGET_S / 2
    assert [lease(limits), lease(machine.process())] == [3, 4]


# -- whose limits


def test_another_key_has_another_bucket(machine: Machine):
    one, other = machine.process("one"), machine.process("other")
    lease(one, 100)
    one.remember(RememberedLimits(rpm=5))
    one.remember_fact("dialect", {"json": True})
    assert lease(other) == 0
    assert (other.recall(), other.recall_fact("dialect")) == (None, None)


def test_the_key_is_in_no_file(tmp_path: Path):
    called = []
    for folder in ("a", "b", "b"):
        machine = Machine(tmp_path / folder)
        lease(machine.process())
        assert not any(text in machine.path.read_text() for text in (KEY, BASE, URL))
        called += machine.content()["servers"]
    assert called[0] != called[1] == called[2]


def test_the_file_is_the_user_s_alone(machine: Machine):
    old = os.umask(0)
    try:
        lease(machine.process())
    finally:
        os.umask(old)
    assert machine.path.parent.stat().st_mode & 0o777 == 0o700
    assert machine.path.stat().st_mode & 0o777 == 0o600


# -- what is learnt


def test_what_one_process_learns_the_others_know(machine: Machine):
    one, other = machine.process(), machine.process()
    assert (other.recall(), other.recall_fact("dialect")) == (None, None)
    one.remember(RememberedLimits(rpm=500, tpm=1e5, found_rps=8))
    other.remember(RememberedLimits(rpm=600))
    one.remember_fact("dialect", {"schema": False})
    one.remember_fact("dialect", {"schema": True, "text": "Größe"})
    assert one.recall() == RememberedLimits(600, 1e5, 8)
    assert other.recall_fact("dialect") == {"schema": True, "text": "Größe"}


@pytest.mark.parametrize(
    ("age_s", "known"),
    [
        pytest.param(FORGET_S - 1, True, id="a week"),
        pytest.param(FORGET_S + 1, False, id="more than a week"),
        pytest.param(-3600, True, id="the wall clock was set back"),
        pytest.param(-FORGET_S - 1, False, id="remembered in the far future"),
    ],
)
def test_after_a_week_it_is_forgotten(machine: Machine, age_s: float, known: bool):
    limits = machine.process()
    limits.remember(RememberedLimits(rpm=500))
    limits.remember_fact("dialect", {})
    machine.now += age_s
    assert (limits.recall(), limits.recall_fact("dialect")) == (
        (RememberedLimits(rpm=500), {}) if known else (None, None)
    )


# -- a file that cannot be used


@pytest.mark.parametrize("value", ['"x"', "-1", "Infinity", "NaN", "true", "null", "[]"])
def test_a_value_that_makes_no_sense_is_not_known(machine: Machine, value: str):
    limits = machine.process()
    lease(limits, 7)
    limits.remember(RememberedLimits(rpm=500))
    machine.replace("500", value)
    machine.replace("-7", value)
    assert (limits.recall(), lease(limits)) == (None, 1 if value == "-1" else 0)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"a disk block of something else" * 300, id="garbage"),
        pytest.param(b'{"salt": "00", "servers": {"a": {"requests": [-5', id="torn"),
        pytest.param(bytes(500), id="zeros"),
        pytest.param(b'{"salt": "00", "servers": {"a": {"requests": ["x", "y"]}}}\n', id="no time"),
        pytest.param(b'{"salt": 7}\n', id="other fields"),
    ],
)
def test_a_broken_file_is_begun_anew_and_shared(machine: Machine, content: bytes):
    lease(machine.process(), 100)
    machine.path.write_bytes(content)
    one, other = machine.process(), machine.process()
    assert [lease(one), lease(other), lease(one)] == [0, 1, 2]
    assert machine.warnings == [f"{machine.path}: it was damaged, and is begun anew"]


def test_a_file_that_is_deleted_while_in_use_is_made_again(machine: Machine):
    one, other = machine.process(), machine.process()
    lease(one, 100)
    machine.path.unlink()
    assert [lease(one), lease(other)] == [0, 1]


def below_a_file(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path.parent.touch()


def a_folder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path.mkdir(parents=True)


def full_disk(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)


@pytest.mark.parametrize(
    ("make_it", "why"),
    [
        pytest.param(below_a_file, "a part of the path is a file", id="below a file"),
        pytest.param(a_folder, "it is a folder", id="a folder"),
        pytest.param(full_disk, "full", id="full disk"),
    ],
)
def test_without_a_file_each_process_keeps_the_limits_by_itself(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, make_it, why: str
):
    make_it(machine, monkeypatch)
    one, other = machine.process(), machine.process()
    assert [lease(one), lease(one), lease(other)] == [0, 0, 0]
    one.give_back("requests", 1)
    one.remember(RememberedLimits(rpm=5))
    assert (one.recall(), one.recall_fact("dialect")) == (None, None)
    for _ in range(3):
        machine.now += ALONE_S
        lease(one)
    warning, of_other = machine.warnings
    assert warning == of_other
    assert warning.startswith(f"{machine.path}: ")
    assert why in warning
    assert "CLAIMSCORE_STATE_DIR" in warning
    assert "\n" not in warning


@contextlib.contextmanager
def locked(machine: Machine) -> Iterator[None]:
    """A process that was suspended while it held the lock."""
    lock = FileLock.take(machine.path)
    assert lock is not None
    with lock:
        yield


def test_a_locked_file_holds_nobody_up_for_long(machine: Machine):
    limits = machine.process()
    lease(limits)
    with locked(machine):
        begun = time.perf_counter()
        lease(limits)
        assert time.perf_counter() - begun >= BUSY_S
        begun = time.perf_counter()
        for _ in range(100):
            lease(limits)
        assert time.perf_counter() - begun < 75 * BUSY_S  # a wait each would be 20 s
    assert "another process holds it locked" in machine.warnings[0]


def test_after_a_while_alone_the_limits_are_shared_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shared, "BUSY_S", 0.01)
    one, other = machine.process(), machine.process()
    assert [lease(one, 20), lease(other)] == [0, 20]
    with locked(machine):
        assert lease(one) == 0
    assert lease(one) == 0
    machine.now += ALONE_S
    assert [lease(one), lease(other)] == [21 - ALONE_S, 22 - ALONE_S]


# -- limiters that share


def share(folder: Path, world: World, **limits: float) -> RateLimiter:
    shared_limits = SharedLimits(folder / "limits.json", "scope", clock=world)
    return RateLimiter(max_concurrency=64, clock=world, shared=shared_limits, **limits)


def test_a_limit_that_was_found_is_remembered(tmp_path: Path):
    for attempt in range(2):
        world, server = World(), SimulatedServer(rpm=3000, retry_after="none")
        world.now = 100.0 * attempt
        limiter = share(tmp_path, world)
        client = Client(world, limiter, server, 10**9, concurrency=64)
        world.run(world.now + 60)
        limiter.close()
        assert server.rate(world.now - 60, world.now) >= 0.9 * 50
    assert client.n_refused <= 0.01 * len(client.sent)
    assert limiter.state().rpm == pytest.approx(3000, rel=0.1)


@pytest.mark.parametrize("rpm", [60, 3000])
def test_two_processes_share_one_limit(tmp_path: Path, rpm: int):
    world, server = World(), SimulatedServer(rpm=rpm, depth_s=2)
    clients = [
        Client(world, share(tmp_path, world, rpm=rpm), server, 10**9, concurrency=64, seed=seed)
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
    world = World()
    server = SimulatedServer(tpm=300_000, depth_s=60, headers="at admission")
    for seed in (1, 2):
        Client(
            world,
            share(tmp_path, world),
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
    world, server = World(), SimulatedServer(rpm=3000)
    killed, other = [
        Client(world, share(tmp_path, world, rpm=3000), server, 10**9, concurrency=64, seed=seed)
        for seed in (1, 2)
    ]
    world.run(30)
    killed.kill()
    n_done = len(other.done)
    world.run(60)
    assert len(other.done) - n_done >= 0.95 * 50 * 30


def test_closing_gives_back_what_is_held(tmp_path: Path):
    world = World()
    first = share(tmp_path, world, rpm=3000)
    assert first.try_reserve(0) is not None
    first.close()
    first.close()
    held = SharedLimits(tmp_path / "limits.json", "scope", clock=world)
    assert held.lease("requests", 11, 50, BURST_S) == 0.0
    assert held.lease("requests", 1, 50, BURST_S) == 0.0
    assert held.lease("requests", 1, 50, BURST_S) > 0.0
