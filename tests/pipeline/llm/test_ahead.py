"""Nobody reserves more than what stands elsewhere as what the run may reach."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from claimscore.errors import StoppedEarly
from claimscore.pipeline.llm.account import Account, Most
from claimscore.pipeline.llm.ahead import AHEAD_FILE, WANTED_FILE, Sums
from claimscore.pipeline.llm.ledger import Ledger
from claimscore.pipeline.llm.money import SPEND_FILE, Spending
from tests.pipeline.llm.test_money import PRICE, request


def allow(folder: Path, requests: int, pico: int = 10**30) -> None:
    content = Sums(requests, pico).to_bytes(ask_at=[requests // 2, pico // 2])
    (folder / AHEAD_FILE).write_bytes(content)


def wanted(folder: Path) -> Sums:
    return Sums.of((folder / WANTED_FILE).read_bytes())


def test_more_is_asked_for_before_it_is_needed(tmp_path: Path) -> None:
    """At half of it; and nothing is set aside beyond it, in requests or in money."""
    allow(tmp_path, 4)
    ledger = Ledger(tmp_path / SPEND_FILE)
    account = Account(price=PRICE, max_requests=100, ledger=ledger)
    assert [account.take(Most(1, 1, 5)) is not None for _ in range(2)] == [True, True]
    assert not (tmp_path / WANTED_FILE).exists()
    assert account.take(Most(1, 1, 5)) is not None
    assert wanted(tmp_path) == (3, 15)
    assert account.take(Most(1, 1, 5)) is not None
    assert account.take(Most(1, 1, 5)) is None
    assert account.is_short
    assert wanted(tmp_path) == (5, 25)
    allow(tmp_path, 40, 24)
    assert account.take(Most(1, 1, 5)) is None
    allow(tmp_path, 40, 25)
    assert account.take(Most(1, 1, 5)) is not None
    assert not account.is_short
    ledger.close()
    assert Ledger(tmp_path / SPEND_FILE).earlier.requests == 5


def test_a_ledger_alone_has_no_bound(tmp_path: Path) -> None:
    """That of a run on a disk."""
    account = Account(price=PRICE, max_requests=9, ledger=Ledger(tmp_path / SPEND_FILE))
    assert not account.is_bound
    assert sum(account.take(Most(1, 1, 5)) is not None for _ in range(12)) == 9
    assert list(tmp_path.iterdir()) == [tmp_path / SPEND_FILE]


@pytest.mark.anyio
async def test_who_is_short_waits_until_more_is_allowed(tmp_path: Path) -> None:
    """Though nothing is in flight whose end could make room; and hears where none will come."""
    allow(tmp_path, 0)
    ledger = Ledger(tmp_path / SPEND_FILE)
    spending = Spending(price=PRICE, max_requests=100, ledger=ledger)
    assert spending.try_reserve(request()) is None
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(spending.reserve, request())
            group.start_soon(spending.reserve, request())
            while not (tmp_path / WANTED_FILE).exists():
                await anyio.sleep(0)
            allow(tmp_path, 2)
        assert spending.totals.requests == 2
        (tmp_path / AHEAD_FILE).write_text(json.dumps({"error": "the store was not reached"}))
        with pytest.raises(StoppedEarly, match="the store was not reached"):
            await spending.reserve(request())
    ledger.close()
