"""The spending of a run, also where another machine goes on with it.

The ledger is on this machine, in the run's state folder. A run in an object store has a short form
of it there, a few seconds behind: after a kill, a machine that has the store alone may pass a cap
by what was spent in those seconds. A call that ends in any other way leaves there what was spent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from claimscore.atomic import write_bytes
from claimscore.pipeline.llm.budget.ledger import (
    SPEND_FILE,
    Ledger,
    Spent,
    parse_ledger,
    read_ledger,
    short_form,
)
from claimscore.runs import RunDirectory


def take_over_spending(directory: RunDirectory) -> None:
    """Bring the spending of a run in a store to this machine, and mirror it from now on.

    Nothing to do for a run on a disk. Raises `ConfigError` where the short form is damaged.
    """
    if directory.workspace.machine and (spent := run_spent(directory)).requests:
        write_bytes(directory.state / SPEND_FILE, short_form(spent))
        directory.workspace.mirror(SPEND_FILE, lambda: short_form(spent))


@contextlib.contextmanager
def open_ledger(directory: RunDirectory) -> Iterator[Ledger]:
    """The ledger of a run that is about to spend, mirrored where that is in a store."""
    with contextlib.closing(Ledger(directory.state / SPEND_FILE)) as ledger:
        directory.workspace.mirror(SPEND_FILE, lambda: short_form(ledger.spent()))
        yield ledger


def run_spent(directory: RunDirectory) -> Spent:
    """The spending of all calls of a run; zeros where there is none yet.

    Of a run in a store, the ledger of this machine or the short form there, whichever knows of more
    requests: a killed call leaves the ledger ahead, another machine the short form.
    """
    spent = read_ledger(directory.state / SPEND_FILE)[0]
    mirrored = directory.workspace.mirrored(SPEND_FILE)
    if mirrored is None:
        return spent
    name = f"{directory.name}/.state/{SPEND_FILE}"
    elsewhere = parse_ledger(mirrored.splitlines(keepends=True), name)[0]
    return max(spent, elsewhere, key=lambda one: one.requests)
