"""The spending of a run, also where another machine goes on with it.

The ledger is appended to on this machine, in the run's state folder. A run in an object store has
a short form of it there, a few seconds behind: after a kill, a machine that has the store alone may
pass a cap by what was spent in those seconds. A call that ends in any other way leaves there what
was really spent.
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
    """Bring the ledger of a run in a store to this machine, and mirror it from now on.

    The ledger that a killed process left here is exact, so it is kept, unless another machine has
    spent since. Nothing to do for a run on a disk. Raises `ConfigError` where the short form in the
    store is damaged.
    """
    workspace, path = directory.workspace, directory.state / SPEND_FILE
    elsewhere = _spent_elsewhere(directory)
    if elsewhere is not None:
        write_bytes(path, short_form(elsewhere))
    if workspace.machine and path.exists():
        left = short_form(read_ledger(path).spent, workspace.machine)
        workspace.mirror(SPEND_FILE, lambda: left)


@contextlib.contextmanager
def open_ledger(directory: RunDirectory) -> Iterator[Ledger]:
    """The ledger of a run that is about to spend, mirrored where that is in a store."""
    workspace = directory.workspace
    with contextlib.closing(Ledger(directory.state / SPEND_FILE)) as ledger:
        workspace.mirror(SPEND_FILE, lambda: ledger.short_form(workspace.machine))
        workspace.write_through()  # from now on this machine has the exact one
        yield ledger


def run_spent(directory: RunDirectory) -> Spent:
    """The spending of all calls of a run, by its ledger; zeros where there is none yet."""
    elsewhere = _spent_elsewhere(directory)
    return read_ledger(directory.state / SPEND_FILE).spent if elsewhere is None else elsewhere


def _spent_elsewhere(directory: RunDirectory) -> Spent | None:
    """The sums of the short form in the store; None where this machine has the exact ones, or the
    run is on a disk."""
    mirrored = directory.workspace.mirrored(SPEND_FILE)
    if mirrored is None:
        return None
    name = f"{directory.name}/.state/{SPEND_FILE}"
    content = parse_ledger(mirrored.splitlines(keepends=True), name)
    has_ledger = (directory.state / SPEND_FILE).exists()
    is_ours = has_ledger and content.machine == directory.workspace.machine
    return None if is_ours else content.spent
