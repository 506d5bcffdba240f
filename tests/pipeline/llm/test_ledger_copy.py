"""The copy of a ledger says the same in few lines, and a ledger can go on from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.errors import ConfigError
from claimscore.pipeline.llm.ledger import Ledger, Spent, read_spent
from claimscore.pipeline.llm.ledger_copy import LedgerCopy, ShortLedger

COSTS = st.one_of(st.none(), st.integers(0, 10**9))


@settings(max_examples=25)
@given(
    reserved=st.lists(COSTS, max_size=12),
    settled=st.sets(st.integers(1, 12)),
    looks=st.sets(st.integers(0, 12)),
)
def test_a_copy_says_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    reserved: list[int | None],
    settled: set[int],
    looks: set[int],
) -> None:
    """Whenever it was looked at before; and what was open can still be settled there."""
    folder = tmp_path_factory.mktemp("ledger")
    path, copied = folder / "spend.jsonl", folder / "copied.jsonl"
    copy, ledger = LedgerCopy(path), Ledger(path)
    content = b""
    open_ones = []
    for pico in reserved:
        number = ledger.reserve(100, 10, pico)
        if number in settled:
            ledger.settle([number], Spent(1, 90, number, pico or 0))
        else:
            open_ones.append(number)
        if number in looks:
            content = copy() or content
    ledger.close()
    content = copy() or content
    assert copy() is None
    copied.write_bytes(content)
    assert read_spent(copied) == read_spent(path)
    assert content.count(b"\n") == (len(open_ones) + 1 if reserved else 0)
    again = Ledger(copied)
    more = again.reserve(5, 5, 7)
    assert more not in open_ones
    again.settle([*open_ones, more], Spent(requests=len(open_ones) + 1))
    again.close()
    assert read_spent(copied).requests == len(reserved) + 1


def test_half_a_line_is_not_copied(tmp_path: Path) -> None:
    """It is read once it is whole."""
    path = tmp_path / "spend.jsonl"
    copy = LedgerCopy(path)
    assert copy() is None
    path.write_text('{"settle":[],"requests":2}\n{"settle":[],"requ')
    assert ShortLedger.of(copy() or b"", "x").content().startswith(b'{"settle":[],"requests":2')
    with path.open("a") as stream:
        stream.write('ests":3}\n')
    assert b'"requests":5' in (copy() or b"")


def test_which_is_further() -> None:
    """More requests, or as many of which more are settled."""
    states = [
        b"",
        b'{"reserve":1,"prompt_tokens":9,"completion_tokens":9,"pico_usd":5}\n',
        b'{"settle":[],"requests":1,"pico_usd":3}\n',
        b'{"settle":[],"requests":1,"pico_usd":4}\n',
        b'{"settle":[],"requests":2}\n',
    ]
    ledgers = [ShortLedger.of(state, "x") for state in states]
    for first, one in enumerate(ledgers):
        for second, other in enumerate(ledgers):
            assert one.is_further_than(other) == (first > second)


def test_damage_is_named() -> None:
    """What was spent must not be guessed."""
    with pytest.raises(ConfigError, match="the copy: damaged; what the run has spent cannot"):
        ShortLedger.of(b"{}\n", "the copy")
