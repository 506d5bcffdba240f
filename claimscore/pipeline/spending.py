"""What a run has spent, also where it is gone on with from another machine.

The ledger is appended to on this machine, in the run's state folder. Of a run in an object store
a copy of it is kept there, a few seconds behind: after a kill, what was spent in these seconds is
not counted by a machine that has the copy alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from claimscore.atomic import write_bytes
from claimscore.pipeline.llm.ledger_copy import LedgerCopy, ShortLedger
from claimscore.pipeline.llm.money import SPEND_FILE, SpendTotals, spent_so_far
from claimscore.rundir import RunDirectory


def keep_spending(directory: RunDirectory) -> None:
    """Make the ledger in the state folder say what was spent on whatever machine, and from now on
    keep its copy; nothing to do for a run on a disk."""
    path = directory.state / SPEND_FILE
    copy = directory.copied(SPEND_FILE)
    if copy is not None and _is_further(copy, path):
        write_bytes(path, copy)
    directory.keep_copied(SPEND_FILE, LedgerCopy(path))


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
