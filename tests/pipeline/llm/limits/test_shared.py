"""One account for several processes: never too much, never stuck, never in the way of a run."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.pipeline.llm.limits import state_file
from claimscore.pipeline.llm.limits.shared import (
    ALONE_S,
    Learnt,
    SharedBudget,
    shared_scope,
)
from claimscore.pipeline.llm.limits.state_file import FORGET_S

URL, KEY = "https://llm.example/v1", "sk-very-secret-key"
BASE = shared_scope(URL, KEY)


class Machine:
    """A machine with one state file and a clock that stands still; processes come and go."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state" / "limits.sqlite"
        self.now = 1000.0
        self.wall = 1_800_000_000.0
        self.warnings: list[str] = []
        self._budgets: list[SharedBudget] = []

    def process(self, key: str | None = KEY, boot: str = "boot") -> SharedBudget:
        """Stands in for one more process: an object with its own connection."""
        budget = SharedBudget(
            self.path,
            shared_scope(URL, key),
            clock=lambda: self.now,
            wall_clock=lambda: self.wall,
            boot=boot,
            on_warning=self.warnings.append,
        )
        self._budgets.append(budget)
        return budget

    def sql(self, *statements: str) -> list[tuple[object, ...]]:
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return [row for statement in statements for row in connection.execute(statement)]

    def close(self) -> None:
        for budget in self._budgets:
            budget.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.close()


def lease(budget: SharedBudget, units: float = 1) -> float:
    """Seconds to wait at one unit a second, nothing caught up."""
    return budget.lease("requests", units, 60, 0.0)


def names(machine: Machine) -> set[str]:
    found = {path.name for path in machine.path.parent.iterdir()}
    return {name for name in found if not name.endswith("-journal")}


# -- the account


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # which process
        st.sampled_from(["lease", "lease", "lease", "give back", "killed"]),
        st.floats(0, 5),  # seconds since the last step
        st.floats(0.01, 20),  # units
        st.sampled_from([60.0, 300.0]),  # a minute, as this process believes
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from([0.0, 0.25, 10.0]))
@settings(max_examples=60)
def test_no_window_holds_more_than_the_rate_allows(
    steps: list[tuple[int, str, float, float, float]], depth_s: float
):
    """However processes mix, wait, give back and die: the rate, the depth and one lease."""
    used: list[tuple[float, float, int]] = []  # when, units, step
    returned: list[tuple[int, float]] = []  # step, units
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        processes = [machine.process() for _ in range(3)]
        for n, (which, what, dt, units, rate) in enumerate(steps):
            machine.now += dt
            if what == "killed":
                processes[which] = machine.process()
            elif what == "lease":
                wait_s = processes[which].lease("tokens", units, rate, depth_s)
                used.append((machine.now + wait_s, units, n))
            elif used:
                units = min(units, used[-1][1])
                processes[which].give_back("tokens", units, 300.0)
                returned.append((n, units))
        machine.close()
    for begin, _, _ in used:
        for end, _, _ in used:
            inside = [(units, n) for at, units, n in used if begin <= at <= end]
            if inside:
                first, last = inside[0][1], inside[-1][1]
                again = sum(units for n, units in returned if first < n < last)
                largest = max(units for units, _ in inside)
                most = 300 * (end - begin + depth_s) / 60 + largest + again
                assert sum(units for units, _ in inside) <= most + 1e-6


def test_processes_take_turns_and_lose_nothing(machine: Machine):
    """Together they get the whole rate, one after the other."""
    processes = [machine.process() for _ in range(3)]
    assert [lease(processes[n % 3]) for n in range(9)] == list(range(9))


def test_requests_and_tokens_are_counted_apart(machine: Machine):
    """A large prompt does not use up requests."""
    budget = machine.process()
    budget.lease("tokens", 1000, 60, 0.0)
    assert lease(budget) == 0


def test_what_is_given_back_may_be_leased_by_others(machine: Machine):
    """A process that leased a second too many leaves it to the next one."""
    one, other = machine.process(), machine.process()
    lease(one, 5)
    one.give_back("requests", 2, 60)
    assert lease(other) == 3


def test_giving_back_without_an_account_does_nothing(machine: Machine):
    """Nothing was taken, so nothing can be returned."""
    budget = machine.process()
    budget.give_back("requests", 100, 60)
    assert [lease(budget), lease(budget)] == [0, 1]


def test_a_clock_that_jumps_blocks_nobody(machine: Machine):
    """Neither far into the future nor back; what is given away ahead stays given away."""
    budget = machine.process()
    machine.now += 1e9
    lease(budget, 3)
    machine.now = 5.0
    assert [lease(budget), lease(machine.process())] == [3, 4]


def test_after_a_boot_the_account_is_new(machine: Machine):
    """The clock began anew, so numbers of the last boot, or of another machine, mean nothing."""
    machine.now = 2000.0
    lease(machine.process(boot="monday"), 100)
    machine.now = 1990.0
    assert lease(machine.process(boot="tuesday")) == 0
    assert lease(machine.process(boot="monday")) == 100


def test_by_default_the_machine_s_own_clock_and_boot_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Two budgets made alike share an account, with a boot id and, where there is none, without."""

    def missing(path: Path, encoding: str) -> str:
        raise FileNotFoundError(path)

    for folder in ("boot id", "none"):
        both = [SharedBudget(tmp_path / folder / "limits.sqlite", BASE) for _ in range(2)]
        waits = [lease(budget) for budget in both]
        for budget in both:
            budget.close()
        assert waits[0] == 0
        assert 0 < waits[1] <= 1
        monkeypatch.setattr(Path, "read_text", missing)


def test_accounts_nobody_used_for_a_week_are_dropped(machine: Machine):
    """The file does not grow with boots and keys."""
    lease(machine.process(boot="monday"))
    machine.wall += FORGET_S + 1
    lease(machine.process(boot="tuesday"))
    assert machine.sql("SELECT boot FROM paces") == [("tuesday",)]


# -- processes

CHILD = """
import os, signal, sys
from pathlib import Path
from claimscore.pipeline.llm.limits import shared, state_file

state_file.BUSY_S = 20  # a busy machine must not look like a locked file
budget = shared.SharedBudget(Path(sys.argv[1]), sys.argv[2], clock=lambda: 1000.0, boot="boot")
lease = lambda: budget.lease("requests", 1, 60, 0.0)
say = lambda *values: print(*values, flush=True)
"""


@contextlib.contextmanager
def child(machine: Machine, code: str) -> Iterator[subprocess.Popen[str]]:
    """A real process that runs `code` on the machine's file, its clock standing still too."""
    command = [sys.executable, "-c", CHILD + code, str(machine.path), BASE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_two_processes_at_once_give_nothing_away_twice(machine: Machine):
    """Each as fast as it can: every second of the account is given to exactly one of them."""
    code = (
        "lease(); budget.give_back('requests', 1, 60); say('ready'); sys.stdin.readline()\n"
        "say(*[lease() for _ in range(1000)]); say(budget.warning)\n"
    )
    with child(machine, code) as one, child(machine, code) as other:
        assert {line(one), line(other)} == {"ready"}
        for process in (one, other):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        waits = [float(word) for process in (one, other) for word in line(process).split()]
        assert {line(one), line(other)} == {"None"}
    assert sorted(waits) == list(range(2000))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("lease(); say('go')\nwhile True: lease()", id="at any moment"),
        pytest.param(
            "lease(); say('go')\nwrite = budget._write\n"
            "budget._write = lambda *a: (write(*a), os.kill(os.getpid(), signal.SIGKILL))\nlease()",
            id="before its commit",
        ),
    ],
)
def test_a_killed_process_locks_nothing(machine: Machine, code: str):
    """The other goes on at the full rate; what is lost is what the dead one had taken."""
    with child(machine, code) as victim:
        assert line(victim) == "go"
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    survivor = machine.process()
    begun = time.perf_counter()
    first = lease(survivor)
    assert [lease(survivor) for _ in range(5)] == [first + n for n in range(1, 6)]
    assert time.perf_counter() - begun < 5 * state_file.BUSY_S  # six waits would be more
    assert (first % 1, survivor.warning) == (0, None)


def test_a_fork_gets_a_connection_of_its_own(machine: Machine):
    """SQLite forbids using one across a fork; parent and child share the account all the same."""
    code = (
        "lease(); mine = budget._file._book.connection\n"
        "if os.fork() == 0:\n"
        "    say(lease(), budget._file._book.connection is not mine, budget.warning); os._exit(0)\n"
        "os.wait(); say(lease(), budget._file._book.connection is mine)\n"
    )
    with child(machine, code) as process:
        assert [line(process), line(process)] == ["1.0 True None", "2.0 True"]


# -- whose account


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


def test_another_key_has_another_account(machine: Machine):
    """What one key has used up is no concern of the other, nor what was learnt with it."""
    one, other = machine.process("one"), machine.process("other")
    lease(one, 100)
    one.remember(Learnt(rpm=5))
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
        called += machine.sql("SELECT scope FROM paces")
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
    one.remember(Learnt(rpm=500, tpm=1e5, rpm_depth_s=1, tpm_depth_s=60, good_rps=8))
    other.remember(Learnt(rpm=600))
    assert one.recall() == Learnt(600, 1e5, 1, 60, 8)


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
    budget = machine.process()
    budget.remember(Learnt(rpm=500))
    budget.remember_fact("dialect", {})
    machine.wall += age_s
    assert (budget.recall(), budget.recall_fact("dialect")) == (
        (Learnt(rpm=500), {}) if known else (None, None)
    )


@pytest.mark.parametrize("value", ["'x'", "'{'", "'-1'", "'Infinity'", "'true'", "NULL", "x'00'"])
def test_a_limit_that_makes_no_sense_is_not_known(machine: Machine, value: str):
    """A file that was edited by hand does not break a run."""
    budget = machine.process()
    budget.remember(Learnt(rpm=500))
    budget.remember_fact("dialect", {})
    machine.sql(f"UPDATE facts SET value = {value}")
    assert (budget.recall(), budget.recall_fact("dialect")) == (None, None)


@pytest.mark.parametrize("value", ["'x'", "NULL", "9e999"])
def test_an_account_that_makes_no_sense_is_begun_anew(machine: Machine, value: str):
    """Not even infinity keeps a new process from starting."""
    lease(machine.process(), 100)
    machine.sql(f"UPDATE paces SET free_at = {value}")
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
    machine.sql("DROP TABLE paces")


def other_version(machine: Machine) -> None:
    machine.sql("PRAGMA user_version = 7")


BROKEN = [
    pytest.param(garbage, "damaged-1", id="garbage"),
    pytest.param(torn, "damaged-1", id="torn"),
    pytest.param(turned, "damaged-1", id="zeros"),
    pytest.param(no_table, "damaged-1", id="no table"),
    pytest.param(other_version, "version-7-1", id="other version"),
]


@pytest.mark.parametrize(("break_it", "suffix"), BROKEN)
def test_a_broken_file_is_set_aside(
    machine: Machine, break_it: Callable[[Machine], None], suffix: str
):
    """A new one is begun in its place and shared; one warning names both."""
    lease(machine.process())
    machine.close()
    break_it(machine)
    one, other = machine.process(), machine.process()
    assert [lease(one), lease(other), lease(one)] == [0, 1, 2]
    assert names(machine) == {"limits.sqlite", f"limits.sqlite.{suffix}"}
    assert one.warning is not None
    assert f"limits.sqlite.{suffix}, and a new one was begun" in one.warning
    assert other.warning is None


@pytest.mark.parametrize("break_it", [garbage, torn, no_table, Path.unlink])
def test_a_file_that_breaks_while_in_use_is_replaced_by_one(
    machine: Machine, break_it: Callable[..., None]
):
    """All who had it open meet again in the new one, and the account goes on from there."""
    one, other = machine.process(), machine.process()
    assert [lease(one), lease(other)] == [0, 1]
    break_it(machine.path if break_it is Path.unlink else machine)
    assert [lease(other), lease(one), lease(other)] == [2, 3, 4]
    assert len(names(machine)) == (1 if break_it is Path.unlink else 2)


def test_a_journal_goes_along_with_its_file(machine: Machine):
    """One that is in use would be rolled back into the new file and break that too."""
    lease(machine.process())
    machine.close()
    garbage(machine)
    machine.path.with_name("limits.sqlite-journal").write_bytes(b"\0of the old file")
    lease(machine.process())
    moved = machine.path.with_name("limits.sqlite.damaged-1-journal")
    assert moved.read_bytes() == b"\0of the old file"


def test_a_disk_that_breaks_every_file_is_given_up(machine: Machine):
    """Three files are set aside by a process, not one at every lease."""
    budget = machine.process()
    for n in range(6):
        lease(budget)
        if machine.path.exists():
            garbage(machine)
        machine.now += ALONE_S * (n >= 3)
    assert names(machine) == {"limits.sqlite", *(f"limits.sqlite.damaged-{n}" for n in (1, 2, 3))}
    assert budget.warning is not None
    assert "not shared" in budget.warning


def test_a_file_that_another_process_has_replaced_stays(machine: Machine):
    """Both find the damage; the one that comes second takes the new file, not a third."""
    one, other = machine.process(), machine.process()
    assert [lease(one), lease(other)] == [0, 1]
    garbage(machine)
    lease(one)
    assert other._file.set_aside("damaged") is None
    assert lease(other) == 2
    assert names(machine) == {"limits.sqlite", "limits.sqlite.damaged-1"}


def test_a_file_that_cannot_be_set_aside_is_left(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    """A damaged file in a folder that may not be written to: alone, and said so."""

    def refuse(path: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    lease(machine.process())
    machine.close()
    garbage(machine)
    monkeypatch.setattr(Path, "rename", refuse)
    budget = machine.process()
    assert [lease(budget), lease(budget)] == [0, 1]
    assert budget.warning is not None
    assert "permission denied" in budget.warning


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
    monkeypatch.setattr(state_file, "_SCHEMA", ("PRAGMA max_page_count = 2", *state_file._SCHEMA))


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
    one.give_back("requests", 1, 60)
    assert [lease(one), lease(one), lease(other)] == [0, 1, 0]
    one.give_back("requests", 1, 60)
    one.remember(Learnt(rpm=5))
    one.remember_fact("dialect", {})
    assert (lease(one), one.recall(), one.recall_fact("dialect")) == (1, None, None)
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
    assert 2 * state_file.BUSY_S < 0.5  # for the first statement of a transaction and for its last
    lease(machine.process())
    with locked(machine):
        budget = machine.process()
        begun = time.perf_counter()
        lease(budget)
        assert time.perf_counter() - begun >= state_file.BUSY_S
        begun = time.perf_counter()
        for _ in range(100):
            lease(budget)
        assert time.perf_counter() - begun < 10 * state_file.BUSY_S  # a wait each would be 20 s
    assert budget.warning is not None
    assert "another process holds it locked" in budget.warning


def test_a_folder_in_the_file_s_place_keeps_its_mode(machine: Machine):
    """It is somebody's, and nobody could enter it without the right to."""
    machine.path.mkdir(parents=True)
    machine.path.chmod(0o755)
    lease(machine.process())
    assert machine.path.stat().st_mode & 0o777 == 0o755


def test_a_warning_is_told_once(machine: Machine):
    """Not again at each try, as long as it is the same."""
    machine.path.parent.touch()
    budget = machine.process()
    for _ in range(3):
        lease(budget)
        machine.now += ALONE_S
    assert machine.warnings == [budget.warning]


def test_what_is_taken_alone_counts_when_the_file_is_free_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    """The account goes on from where the process last saw it, and later for everybody."""
    monkeypatch.setattr(state_file, "BUSY_S", 0.01)
    one, other = machine.process(), machine.process()
    assert [lease(one), lease(other), lease(one)] == [0, 1, 2]
    with locked(machine):
        assert [lease(one, 20), lease(one)] == [3, 23]
    assert [lease(one), lease(other)] == [24, 3]
    machine.now += ALONE_S
    assert [lease(one), lease(other)] == [25 - ALONE_S, 26 - ALONE_S]
    other.give_back("requests", 10, 60)
    assert lease(one) == 17 - ALONE_S


def test_close_may_be_called_at_any_time(machine: Machine):
    """Before the first call, twice, and between calls."""
    budget = machine.process()
    budget.close()
    assert lease(budget) == 0
    budget.close()
    budget.close()
    assert lease(budget) == 1
