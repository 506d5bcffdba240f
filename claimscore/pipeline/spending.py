"""The spending of a run, also where another machine goes on with it.

The ledger is appended to on this machine, in the run's state folder. A run in an object store has
a short form of it there, a few seconds behind. With a cap that form also holds what the run may
reach before the store is asked again (`Allowance`): after a kill, a machine that has the store
alone counts that as spent, and so passes no cap. A call that ends in any other way leaves there
what was really spent.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from claimscore.atomic import write_bytes
from claimscore.config import LLMConfig
from claimscore.pipeline.llm.budget.cap import (
    SPEND_FILE,
    SpendTotals,
    spent_so_far,
    totals_of,
)
from claimscore.pipeline.llm.budget.ledger import Allowance, Ledger, parse_spent
from claimscore.pipeline.llm.budget.pricing import PICO
from claimscore.runs import RunDirectory

#: The store allows so many parts of a cap one after the other: a kill and another machine cost one
#: part at most, and a whole run waits for the store so many times.
_PARTS = 20


def take_over_spending(directory: RunDirectory) -> None:
    """Bring the ledger of a run in a store to this machine, and mirror it from now on.

    The ledger that a killed process left here is exact, so it is kept, unless another machine has
    spent since. Nothing to do for a run on a disk. Raises `ConfigError` where the short form in the
    store is damaged.
    """
    workspace, path = directory.workspace, directory.state / SPEND_FILE
    short_form = workspace.mirrored(SPEND_FILE)
    if short_form is not None and not _is_ours(directory, short_form):
        write_bytes(path, short_form)
    if workspace.machine and path.exists():
        with contextlib.closing(Ledger(path)) as ledger:
            left = ledger.short_form(workspace.machine)
        workspace.mirror(SPEND_FILE, lambda: left)


@contextlib.contextmanager
def open_ledger(directory: RunDirectory, llm: LLMConfig) -> Iterator[Ledger]:
    """The ledger of a run that is about to spend; in a store mirrored, and with a cap allowed
    step by step."""
    allowance, workspace = None, directory.workspace
    if workspace.machine and (llm.max_cost is not None or llm.max_requests is not None):
        allowance = Allowance(
            workspace.write_through,
            -(-(llm.max_requests or 0) // _PARTS),
            math.ceil((llm.max_cost or 0) * PICO / _PARTS),
        )
    ledger = Ledger(directory.state / SPEND_FILE, allowance)
    try:
        workspace.mirror(SPEND_FILE, lambda: ledger.short_form(workspace.machine))
        workspace.write_through()  # from now on this machine has the exact one
        yield ledger
    finally:
        if allowance is not None:
            allowance.reserved = None
        ledger.close()


def run_spent(directory: RunDirectory) -> SpendTotals:
    """The spending of all calls of a run, by its ledger; zeros where there is none yet."""
    short_form = directory.workspace.mirrored(SPEND_FILE)
    if short_form is None or _is_ours(directory, short_form):
        return spent_so_far(directory.state / SPEND_FILE)
    return totals_of(parse_spent(short_form, _name(directory))[0])


def _is_ours(directory: RunDirectory, short_form: bytes) -> bool:
    """Whether this machine wrote the short form last and still has the ledger."""
    _, machine = parse_spent(short_form, _name(directory))
    return (directory.state / SPEND_FILE).exists() and machine == directory.workspace.machine


def _name(directory: RunDirectory) -> str:
    return f"{directory.name}/.state/{SPEND_FILE}"
