"""A run in a store: the store says beforehand how far the run may go, in blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimscore.errors import BudgetError, StoppedEarly
from claimscore.pipeline.llm.budget.cap import Budget, Reservation
from claimscore.pipeline.llm.budget.ledger import Allowance, Ledger, parse_spent
from claimscore.types import Usage
from tests.unit.pipeline.llm.budget.test_cap import PRICE, request

pytestmark = pytest.mark.anyio


async def test_the_store_says_so_before_a_request_is_sent(tmp_path: Path) -> None:
    writes: list[bytes] = []
    allowance = Allowance(lambda: writes.append(ledger.short_form("here")), 4, 0)
    ledger = Ledger(tmp_path / "spend.jsonl", allowance)
    budget = Budget(price_of=lambda _: PRICE, max_requests=10, ledger=ledger)
    assert budget.try_reserve(request()) is None
    sent: list[Reservation] = []
    for _ in range(10):
        sent.append(await budget.reserve(request()))
        assert parse_spent(writes[-1], "the store")[0].requests >= len(sent)
        budget.settle(sent[-1], Usage(10, 5))
    assert len(writes) == 2, "one for each block of five"
    with pytest.raises(BudgetError, match="--max-requests 10 is used up"):
        await budget.reserve(request())
    budget.flush()
    ledger.close()


async def test_a_store_that_is_away_stops_the_run(tmp_path: Path) -> None:
    def away() -> None:
        raise StoppedEarly("the store was not reached")

    ledger = Ledger(tmp_path / "spend.jsonl", Allowance(away, 5, 0))
    budget = Budget(price_of=lambda _: PRICE, max_requests=100, ledger=ledger)
    for _ in range(2):
        with pytest.raises(StoppedEarly, match="the store was not reached"):
            await budget.reserve(request())
    assert budget.totals.requests == 0
    ledger.close()
