"""What a run has spent, also where it is gone on with from another machine.

The ledger is appended to on this machine, in the run's state folder. Of a run in an object store
a copy of it is kept there, a few seconds behind. With a cap, it also stands there beforehand what
the run may reach (`ahead`): after a kill, a machine that has the copy alone counts that as spent,
and so passes no cap. A call that ends in any other way leaves there what was really spent.
"""

from __future__ import annotations

import contextlib
import json
import math
import operator
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from claimscore.atomic import write_bytes
from claimscore.config import LLMConfig
from claimscore.errors import ClaimscoreError, ConfigError
from claimscore.pipeline.llm.ahead import AHEAD_FILE, WANTED_FILE, Sums, replace
from claimscore.pipeline.llm.ledger import Ledger, Spent
from claimscore.pipeline.llm.ledger_copy import LedgerCopy, ShortLedger
from claimscore.pipeline.llm.money import SPEND_FILE, SpendTotals, spent_so_far
from claimscore.pipeline.llm.prices import PICO
from claimscore.rundir import RunDirectory

#: What may be reached is raised by so much of the cap: a kill and another machine cost that much
#: of it at most, and a run asks the store some twice as many times.
_SHARE = 20

#: What is allowed of that which has no cap.
_NO_CAP = 10**30

_LOOK_S = 0.1


def keep_spending(directory: RunDirectory) -> None:
    """Make the ledger in the state folder say what was spent on whatever machine, and from now on
    keep its copy; nothing to do for a run on a disk."""
    path = directory.state / SPEND_FILE
    copy = directory.copied(SPEND_FILE)
    is_ours = path.exists()
    if copy is not None and _is_further(copy, path):
        write_bytes(path, copy)
        is_ours = False
    _count_ahead(directory, path, is_ours)
    directory.keep_copied(SPEND_FILE, LedgerCopy(path))


def _count_ahead(directory: RunDirectory, path: Path, is_ours: bool) -> None:
    """Count what was allowed beyond the ledger as spent, unless the ledger is that of the machine
    for which it was allowed."""
    content = directory.copied(AHEAD_FILE)
    if content is None:
        return
    known = LedgerCopy(path).read_on().sums()
    try:
        allowed, machine = Sums.of(content), json.loads(content)["machine"]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{directory.name}/.state/{AHEAD_FILE}: damaged; what the run has spent cannot be "
            "told. Remove it to count what the ledger says alone"
        ) from None
    more = Spent(
        requests=max(0, allowed.requests - known.requests),
        possibly_pico_usd=max(0, allowed.pico_usd - known.pico_usd),
    )
    if more != Spent() and not (is_ours and machine == directory.machine):
        ledger = Ledger(path)
        ledger.settle([], more)
        ledger.close()
        known = allowed.at_least(known)
    directory.put_ahead(AHEAD_FILE, known.to_bytes(machine=directory.machine))


@contextlib.contextmanager
def allowed_ahead(directory: RunDirectory, llm: LLMConfig) -> Iterator[None]:
    """While the block spends, keep in the store what the run may reach; for a run on a disk, or
    without a cap, nothing."""
    if not directory.machine:
        yield
        return
    path = directory.state / SPEND_FILE
    for name in (AHEAD_FILE, WANTED_FILE):
        path.with_name(name).unlink(missing_ok=True)  # of a call that was killed
    if llm.max_cost is None and llm.max_requests is None:
        yield
        return
    step = Sums(
        -(-(llm.max_requests or 0) // _SHARE), math.ceil((llm.max_cost or 0) * PICO / _SHARE)
    )
    raising = _Raising(directory, path, step)
    raising.start()
    try:
        yield
    finally:
        raising.stop()


class _Raising:
    """A thread that allows what is wanted, and a step more; a step of 0 has no cap."""

    def __init__(self, directory: RunDirectory, path: Path, step: Sums) -> None:
        self._directory = directory
        self._path = path
        self._step = step
        self._ask_at = Sums(0, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="spending ahead", daemon=True)

    def start(self) -> None:
        """Allow the first step; raises what the store does."""
        self._allow(LedgerCopy(self._path).read_on().sums())
        self._directory.keep_copied(AHEAD_FILE, self._at_the_end)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _at_the_end(self) -> bytes | None:
        """What was really spent, for the last copy of all, which comes after the ledger's."""
        if not self._ended.is_set():
            return None
        return self._content(LedgerCopy(self._path).read_on().sums())

    def _content(self, sums: Sums) -> bytes:
        return sums.to_bytes(machine=self._directory.machine)

    def _allow(self, wanted: Sums) -> None:
        allowed = Sums(*map(operator.add, wanted, self._step))
        self._directory.put_ahead(AHEAD_FILE, self._content(allowed))
        bound, self._ask_at = self._raised(wanted, 1), self._raised(wanted, 2)
        replace(self._path.with_name(AHEAD_FILE), bound.to_bytes(ask_at=list(self._ask_at)))

    def _raised(self, wanted: Sums, part: int) -> Sums:
        """Raised by a part of the step."""
        pairs = zip(wanted, self._step, strict=True)
        return Sums(*(value + step // part if step else _NO_CAP for value, step in pairs))

    def _keep(self) -> None:
        allowed = self._path.with_name(AHEAD_FILE)
        while not self._ended.wait(_LOOK_S):
            try:
                wanted = Sums.of(self._path.with_name(WANTED_FILE).read_bytes())
                if not wanted.within(self._ask_at):
                    self._allow(wanted)
            except FileNotFoundError:
                continue
            except ClaimscoreError as exc:  # for who asks: the run stops
                with contextlib.suppress(ClaimscoreError):
                    replace(allowed, json.dumps({"error": str(exc)}).encode())
                return


def run_spent(directory: RunDirectory) -> SpendTotals:
    """What all calls of a run have spent, by its ledger; zeros where there is none yet."""
    path = directory.state / SPEND_FILE
    copy = directory.copied(SPEND_FILE)
    if copy is None or not _is_further(copy, path):
        return spent_so_far(path)
    with tempfile.TemporaryDirectory(prefix="claimscore-") as scratch:
        copied = Path(scratch) / SPEND_FILE
        copied.write_bytes(copy)
        return spent_so_far(copied)


def _is_further(copy: bytes, path: Path) -> bool:
    """Whether the copy has more than the ledger here."""
    return ShortLedger.of(copy, f"the copy of {SPEND_FILE}").is_further_than(
        LedgerCopy(path).read_on()
    )
