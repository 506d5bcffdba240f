"""One bucket for several processes: never too much, never stuck, never in the way of a run."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.pipeline.llm.ratelimit import shared
from claimscore.pipeline.llm.ratelimit.bucket import BURST_S, TokenBucket
from claimscore.pipeline.llm.ratelimit.limiter import RateLimiter
from claimscore.pipeline.llm.ratelimit.shared import (
    ALONE_S,
    BUSY_S,
    FORGET_S,
    LEASE_S,
    VALID_S,
    RememberedLimits,
    SharedLimits,
    shared_scope,
)
from claimscore.types import LimitState, RateLimits
from tests.support.limiter_simulation import Client, SimulatedServer, World

URL, KEY = "https://llm.example/v1", "sk-very-secret-key"
BASE = shared_scope(URL, KEY)


class Machine:
    """A machine with one state file and a clock that stands still; processes come and go."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state" / "limits.sqlite"
        self.now = 1_800_000_000.0
        self.warnings: list[str] = []
        self._opened: list[SharedLimits] = []

    def process(self, key: str | None = KEY) -> SharedLimits:
        """Stands in for one more process: an object with its own connection."""
        limits = SharedLimits(
            self.path,
            shared_scope(URL, key),
            clock=lambda: self.now,
            on_warning=self.warnings.append,
        )
        self._opened.append(limits)
        return limits

    def sql(self, *statements: str) -> list[tuple[object, ...]]:
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return [row for statement in statements for row in connection.execute(statement)]

    def close(self) -> None:
        for limits in self._opened:
            limits.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.close()


def lease(limits: SharedLimits, units: float = 1) -> float:
    """Seconds to wait at one unit a second, nothing caught up."""
    return limits.lease("requests", units, 1, 0.0)


def names(machine: Machine) -> set[str]:
    found = {path.name for path in machine.path.parent.iterdir()}
    return {name for name in found if not name.endswith("-journal")}


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
    """However processes mix, wait, give back and die: the rate, the depth and one lease."""
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
        machine.close()
    for begin, _, _ in used:
        for end, _, _ in used:
            inside = [(units, n) for at, units, n in used if begin <= at <= end]
            if inside:
                first, last = inside[0][1], inside[-1][1]
                again = sum(units for n, units in returned if first < n < last)
                largest = max(units for units, _ in inside)
                most = rate * (end - begin + depth_s) + largest + again
                assert sum(units for units, _ in inside) <= most + 1e-6


def test_processes_take_turns_and_lose_nothing(machine: Machine):
    """Together they get the whole rate, one after the other."""
    processes = [machine.process() for _ in range(3)]
    assert [lease(processes[n % 3]) for n in range(9)] == list(range(9))


def test_requests_and_tokens_are_counted_apart(machine: Machine):
    """A large prompt does not use up requests."""
    limits = machine.process()
    limits.lease("tokens", 1000, 1, 0.0)
    assert lease(limits) == 0


def test_what_is_given_back_may_be_leased_by_others(machine: Machine):
    """A process that leased a second too many leaves it to the next one."""
    one, other = machine.process(), machine.process()
    lease(one, 5)
    one.give_back("requests", 2)
    assert lease(other) == 3


def test_giving_back_without_a_bucket_does_nothing(machine: Machine):
    """Nothing was taken, so nothing can be returned."""
    limits = machine.process()
    limits.give_back("requests", 100)
    assert [lease(limits), lease(limits)] == [0, 1]


def test_a_clock_that_jumps_blocks_nobody(machine: Machine):
    """Neither far into the future nor back; what is given away ahead stays given away."""
    limits = machine.process()
    machine.now += 1e9
    lease(limits, 3)
    machine.now = 5.0
    assert [lease(limits), lease(machine.process())] == [3, 4]


def test_a_debt_at_a_mistaken_rate_is_paid_off_at_the_right_one(machine: Machine):
    """Minutes were given away at one a second: at a hundred a second these are seconds."""
    lease(machine.process(), 500)
    assert machine.process().lease("requests", 1, 100, 0.0) == pytest.approx(5)


def test_buckets_that_were_not_used_for_a_week_are_dropped(machine: Machine):
    """The file does not grow with servers and keys."""
    lease(machine.process("one"))
    machine.now += FORGET_S + 1
    lease(machine.process("other"))
    assert machine.sql("SELECT COUNT(*) FROM buckets") == [(1,)]


# -- processes


# -- whose limits


@pytest.mark.parametrize(
    ("scope", "same"),
    [
        pytest.param(shared_scope(URL + "/", KEY), True, id="a slash at the end"),
        pytest.param(shared_scope(URL, KEY + "2"), False, id="another key"),
        pytest.param(shared_scope(URL, None), False, id="no key"),
        pytest.param(shared_scope("https://other.example/v1", KEY), False, id="another server"),
        pytest.param(shared_scope(URL + KEY[0], KEY[1:]), False, id="the same when put together"),
    ],
)
def test_server_and_key_together_are_the_scope(scope: str, same: bool):
    """Two keys have two limits, and so have two servers."""
    assert (scope == BASE) is same


def test_another_key_has_another_bucket(machine: Machine):
    """What one key has used up is no concern of the other, nor what was learnt with it."""
    one, other = machine.process("one"), machine.process("other")
    lease(one, 100)
    one.remember(RememberedLimits(rpm=5))
    one.remember_fact("dialect", {"json": True})
    assert lease(other) == 0
    assert (other.recall(), other.recall_fact("dialect")) == (None, None)


def test_the_key_is_in_no_file(machine: Machine):
    """Neither itself nor its plain hash, which a table of common keys would give away."""
    lease(machine.process())
    written = b"".join(path.read_bytes() for path in machine.path.parent.iterdir())
    for text in (KEY, BASE, URL, bytes.fromhex(BASE).decode("latin-1")):
        assert text.encode("latin-1") not in written


def test_every_file_has_its_own_salt(tmp_path: Path):
    """The same key is called differently in each, and the same again when it is reopened."""
    called = []
    for folder in ("a", "b", "b"):
        machine = Machine(tmp_path / folder)
        lease(machine.process())
        called += machine.sql("SELECT scope FROM buckets")
        machine.close()
    assert called[0] != called[1] == called[2]


def test_the_file_is_the_user_s_alone(machine: Machine):
    """Folders made for it, the file and its journal, whatever the umask says."""
    old = os.umask(0)
    try:
        lease(machine.process())
    finally:
        os.umask(old)
    assert machine.path.parent.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in machine.path.parent.iterdir()} == {0o600}


def test_a_file_open_to_others_is_closed_to_them(machine: Machine):
    """One that was copied back from somewhere may have lost its mode."""
    lease(machine.process())
    machine.path.chmod(0o644)
    lease(machine.process())
    assert machine.path.stat().st_mode & 0o777 == 0o600


# -- what is learnt


def test_what_one_process_learns_the_others_know(machine: Machine):
    """Each limit as last told; what one does not know it leaves alone."""
    one, other = machine.process(), machine.process()
    assert other.recall() is None
    one.remember(RememberedLimits(rpm=500, tpm=1e5, found_rps=8))
    other.remember(RememberedLimits(rpm=600))
    assert one.recall() == RememberedLimits(600, 1e5, 8)


def test_facts_about_a_server_are_kept(machine: Machine):
    """Whatever JSON a part wants to find again; a later one takes the place of an earlier."""
    one, other = machine.process(), machine.process()
    one.remember_fact("dialect", {"schema": False})
    one.remember_fact("dialect", {"schema": True, "text": "Größe"})
    assert other.recall_fact("dialect") == {"schema": True, "text": "Größe"}
    assert other.recall_fact("other") is None


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
    """Accounts and servers change; what was true once is found out again."""
    limits = machine.process()
    limits.remember(RememberedLimits(rpm=500))
    limits.remember_fact("dialect", {})
    machine.now += age_s
    assert (limits.recall(), limits.recall_fact("dialect")) == (
        (RememberedLimits(rpm=500), {}) if known else (None, None)
    )


@pytest.mark.parametrize("value", ["'x'", "'{'", "'-1'", "'Infinity'", "'true'", "NULL", "x'00'"])
def test_a_limit_that_makes_no_sense_is_not_known(machine: Machine, value: str):
    """A file that was edited by hand does not break a run."""
    limits = machine.process()
    limits.remember(RememberedLimits(rpm=500))
    limits.remember_fact("dialect", {})
    machine.sql(f"UPDATE facts SET value = {value}")
    assert (limits.recall(), limits.recall_fact("dialect")) == (None, None)


@pytest.mark.parametrize("value", ["'x'", "NULL", "9e999"])
def test_a_bucket_that_makes_no_sense_is_begun_anew(machine: Machine, value: str):
    """Not even infinity keeps a new process from starting."""
    lease(machine.process(), 100)
    machine.sql(f"UPDATE buckets SET level = {value}")
    assert lease(machine.process()) == 0


# -- a file that cannot be used


def garbage(machine: Machine) -> None:
    machine.path.write_bytes(b"this was a disk block of something else" * 300)


def torn(machine: Machine) -> None:
    with machine.path.open("r+b") as file:
        file.truncate(5000)


def turned(machine: Machine) -> None:
    """The pages after the first are zeros."""
    with machine.path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(4096)
        file.write(bytes(size - 4096))


def no_table(machine: Machine) -> None:
    machine.sql("DROP TABLE buckets")


def other_version(machine: Machine) -> None:
    machine.sql("PRAGMA user_version = 7")


BROKEN = [
    pytest.param(garbage, id="garbage"),
    pytest.param(torn, id="torn"),
    pytest.param(turned, id="zeros"),
    pytest.param(no_table, id="no table"),
    pytest.param(other_version, id="other version"),
]


@pytest.mark.parametrize("break_it", BROKEN)
def test_a_broken_file_is_set_aside(machine: Machine, break_it: Callable[[Machine], None]):
    """A new one is begun in its place and shared; one warning names both."""
    lease(machine.process())
    machine.close()
    break_it(machine)
    one, other = machine.process(), machine.process()
    lease(one)  # finds it, and is not shared
    assert [lease(one), lease(other), lease(one)] == [0, 1, 2]
    assert names(machine) == {"limits.sqlite", "limits.sqlite.unusable"}
    assert one.warning is not None
    assert "limits.sqlite.unusable, and a new one is begun" in one.warning
    assert other.warning is None


@pytest.mark.parametrize("break_it", [garbage, torn, no_table, Path.unlink])
def test_a_file_that_breaks_while_in_use_is_replaced_by_one(
    machine: Machine, break_it: Callable[..., None]
):
    """All processes that had it open meet again in the new one."""
    one, other = machine.process(), machine.process()
    assert [lease(one), lease(other)] == [0, 1]
    break_it(machine.path if break_it is Path.unlink else machine)
    for process in (one, other, one, other):
        lease(process)
    first = lease(other)
    assert [lease(one), lease(other)] == [first + 1, first + 2]
    assert len(names(machine)) == (1 if break_it is Path.unlink else 2)


def test_a_journal_goes_along_with_its_file(machine: Machine):
    """One that is in use would be rolled back into the new file and break that too."""
    lease(machine.process())
    machine.close()
    garbage(machine)
    machine.path.with_name("limits.sqlite-journal").write_bytes(b"\0of the old file")
    lease(machine.process())
    moved = machine.path.with_name("limits.sqlite.unusable-journal")
    assert moved.read_bytes() == b"\0of the old file"


def test_a_file_that_cannot_be_set_aside_is_left(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    """A damaged file in a folder that may not be written to: alone, and said so."""

    def refuse(path: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    lease(machine.process())
    machine.close()
    garbage(machine)
    monkeypatch.setattr(Path, "replace", refuse)
    limits = machine.process()
    assert [lease(limits), lease(limits)] == [0, 0]
    assert limits.warning is not None
    assert "permission denied" in limits.warning


def below_a_file(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path.parent.touch()


def a_folder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path.mkdir(parents=True)


def read_only(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own rights do not bind root, so the connection is opened for reading."""
    connect = sqlite3.connect

    def reading(name: str, **options: object) -> sqlite3.Connection:
        return connect(name.replace("mode=rw", "mode=ro"), **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(sqlite3, "connect", reading)


def full_disk(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two pages, one is taken by the first table."""
    monkeypatch.setattr(shared, "_SCHEMA", ("PRAGMA max_page_count = 2", *shared._SCHEMA))


@pytest.mark.parametrize(
    ("make_it", "why"),
    [
        pytest.param(below_a_file, "a part of the path is a file", id="below a file"),
        pytest.param(a_folder, "unable to open database file", id="a folder"),
        pytest.param(read_only, "readonly database", id="read-only"),
        pytest.param(full_disk, "full", id="full disk"),
    ],
)
def test_without_a_file_each_process_keeps_the_limits_by_itself(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    make_it: Callable[[Machine, pytest.MonkeyPatch], None],
    why: str,
):
    """The run goes on, says why it is alone, and knows nothing of others."""
    make_it(machine, monkeypatch)
    one, other = machine.process(), machine.process()
    assert [lease(one), lease(one), lease(other)] == [0, 0, 0]
    one.give_back("requests", 1)
    one.remember(RememberedLimits(rpm=5))
    one.remember_fact("dialect", {})
    assert (one.recall(), one.recall_fact("dialect")) == (None, None)
    assert one.warning is not None
    assert str(machine.path) in one.warning
    assert why in one.warning
    assert "CLAIMSCORE_STATE_DIR" in one.warning
    assert "\n" not in one.warning


@contextlib.contextmanager
def locked(machine: Machine) -> Iterator[None]:
    """A process that was suspended in the middle of a transaction."""
    with contextlib.closing(sqlite3.connect(machine.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield


def test_a_locked_file_holds_nobody_up_for_long(machine: Machine):
    """Half a second at most, and then not again at each lease."""
    assert 2 * BUSY_S < 0.5  # for the first statement of a transaction and for its last
    lease(machine.process())
    with locked(machine):
        limits = machine.process()
        begun = time.perf_counter()
        lease(limits)
        assert time.perf_counter() - begun >= BUSY_S
        begun = time.perf_counter()
        for _ in range(100):
            lease(limits)
        assert time.perf_counter() - begun < 10 * BUSY_S  # a wait each would be 20 s
    assert limits.warning is not None
    assert "another process holds it locked" in limits.warning


def test_a_folder_in_the_file_s_place_keeps_its_mode(machine: Machine):
    """It is somebody's, and nobody could enter it without the right to."""
    machine.path.mkdir(parents=True)
    machine.path.chmod(0o755)
    lease(machine.process())
    assert machine.path.stat().st_mode & 0o777 == 0o755


def test_a_warning_is_told_once(machine: Machine):
    """Not again at each try, as long as it is the same."""
    machine.path.parent.touch()
    limits = machine.process()
    for _ in range(3):
        lease(limits)
        machine.now += ALONE_S
    assert machine.warnings == [limits.warning]


def test_after_a_while_alone_the_limits_are_shared_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    """The bucket has filled meanwhile: nothing that a process took alone is in it."""
    monkeypatch.setattr(shared, "BUSY_S", 0.01)
    one, other = machine.process(), machine.process()
    assert [lease(one, 20), lease(other)] == [0, 20]
    with locked(machine):
        assert lease(one) == 0
    assert lease(one) == 0
    machine.now += ALONE_S
    assert [lease(one), lease(other)] == [21 - ALONE_S, 22 - ALONE_S]


def test_close_may_be_called_at_any_time(machine: Machine):
    """Before the first call, twice, and between calls."""
    limits = machine.process()
    limits.close()
    assert lease(limits) == 0
    limits.close()
    limits.close()
    assert lease(limits) == 1


# -- leases


class Calls:
    """A `SharedLimits` that writes down what is asked of it."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self.calls: list[tuple[str, float]] = []
        self._wait_s = wait_s

    def lease(self, kind: str, units: float, rate: float, depth_s: float) -> float:
        self.calls.append(("lease", round(units, 3)))
        return self._wait_s

    def give_back(self, kind: str, units: float) -> None:
        self.calls.append(("give back", round(units, 3)))


def make_leases(calls: Calls) -> shared.Leases:
    return shared.Leases(calls, "tokens")  # type: ignore[arg-type]


def test_leases_are_taken_a_few_at_a_time():
    """A fifth of a second of the rate, and the next when it is used up."""
    calls = Calls()
    leases = make_leases(calls)
    for _ in range(11):
        assert leases.wait_s(1, TokenBucket(50, 12), 0.0) == 0.0
        leases.take(1)
    assert calls.calls == [("lease", 50 * LEASE_S)] * 2


def test_a_lease_is_for_one_request_at_least():
    """However slow, and however large."""
    calls = Calls()
    leases = make_leases(calls)
    leases.wait_s(0, TokenBucket(0.1, 1), 0.0)
    assert calls.calls == []
    leases.wait_s(500, TokenBucket(0.1, 1), 0.0)
    assert calls.calls == [("lease", 500)]


def test_a_lease_may_be_for_later():
    """Others are before us; asking again takes no second one."""
    calls = Calls(wait_s=3.0)
    leases = make_leases(calls)
    waits = [leases.wait_s(1, TokenBucket(50, 12), now) for now in (10.0, 12.0, 13.0)]
    assert waits == [3.0, 1.0, 0.0]
    assert len(calls.calls) == 1


def test_units_that_are_not_used_in_time_are_given_back():
    """Else they would be used on top of what others were given meanwhile."""
    calls = Calls()
    leases = make_leases(calls)
    leases.wait_s(1, TokenBucket(50, 12), 0.0)
    leases.take(1)
    leases.wait_s(1, TokenBucket(50, 12), VALID_S + 0.01)
    assert calls.calls[1:] == [("give back", 9), ("lease", 10)]


# -- limiters that share


def share(folder: Path, world: World, **limits: float) -> RateLimiter:
    shared_limits = SharedLimits(folder / "limits.sqlite", "scope", clock=world)
    return RateLimiter(max_concurrency=64, clock=world, shared=shared_limits, **limits)


def test_limits_that_headers_declare_are_remembered(tmp_path: Path):
    """The next process begins with them, evenly: it does not know what is left."""
    world = World()
    limiter = share(tmp_path, world)
    permit = limiter.try_reserve(0)
    assert permit is not None
    limits = RateLimits(LimitState(3000, 2999, 0.02), LimitState(90_000, 100, 59))
    limiter.answered(permit, 0, limits)
    again = share(tmp_path, world)
    assert (again.state().rpm, again.state().tpm) == (3000, 90_000)
    assert again.try_reserve(0) is not None
    assert again.wait_s(0) == pytest.approx(0.02, rel=0.02)


def test_a_limit_that_was_found_is_remembered(tmp_path: Path):
    """The next run provokes few refusals and needs no search."""
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
    """Together they use at least 95 % and in no minute more than all of it."""
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
    """They see the server's bucket a round trip late: once, some in flight are too many."""
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
    """Nothing of it has to expire: half a second later the other has it all."""
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
    """The next process need not wait for it."""
    world = World()
    first = share(tmp_path, world, rpm=3000)
    assert first.try_reserve(0) is not None
    first.close()
    first.close()
    held = SharedLimits(tmp_path / "limits.sqlite", "scope", clock=world)
    assert held.lease("requests", 11, 50, BURST_S) == 0.0
    assert held.lease("requests", 1, 50, BURST_S) == 0.0
    assert held.lease("requests", 1, 50, BURST_S) > 0.0
    held.close()
