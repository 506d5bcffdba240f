"""The money of members: whoever dies or comes back, no cap is passed and nothing counts twice."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.llm.account import Account, Ended, spent_so_far
from claimscore.pipeline.llm.ledger import Ledger
from claimscore.pipeline.llm.prices import PICO, Price
from claimscore.pipeline.llm.services.purse import Purse

#: A dollar a thousand tokens.
PRICE = Price(1000.0, 1000.0, 500.0, "test")
MOST = PRICE.most(100, 100)


class World:
    """A server that bills, members that send, and services that are killed and started again."""

    def __init__(self, path: Path, max_cost: float, max_requests: int | None) -> None:
        self.path = path
        self.caps = (max_cost, max_requests)
        self.billed = self.sent = 0
        self.open: dict[str, dict[int, int]] = {"a": {}, "b": {}}
        self.heard: dict[int, tuple[str, Ended]] = {}
        self.start()

    def start(self) -> None:
        self.ledger = Ledger(self.path)
        max_cost, max_requests = self.caps
        account = Account(
            price=PRICE, max_cost=max_cost, max_requests=max_requests, ledger=self.ledger
        )
        self.purse = Purse(account, priced=True, open_before=self.ledger.open)

    def reserve(self, member: str, tokens: int) -> None:
        found = self.purse.reserve(member, 100, 100, MOST)
        if isinstance(found, tuple):
            self.open[member][found[0]] = tokens
            self.billed += PRICE.cost(tokens, 0)
            self.sent += 1

    def end(self, member: str, _: int) -> None:
        """Settle the oldest; the letter may come twice."""
        if self.open[member]:
            number = next(iter(self.open[member]))
            tokens = self.open[member].pop(number)
            ended = Ended(number, 1, tokens, 0, PRICE.cost(tokens, 0))
            self.purse.end(member, ended, MOST)
            self.purse.end(member, ended, MOST)

    def silent(self, member: str, _: int) -> None:
        """It is taken to be gone, but may go on."""
        self.purse.lose(member)

    def back(self, member: str, _: int) -> None:
        self.purse.come_back(member, [(n, 100, 100, MOST) for n in self.open[member]])

    def dead(self, member: str, _: int) -> None:
        self.purse.lose(member)
        self.open[member].clear()

    def kill(self, member: str, _: int) -> None:
        """The services; what had ended is in the ledger before a member hears of it."""
        self.purse.account.flush()
        self.ledger.close()
        self.start()


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve"] * 4 + ["end"] * 3 + ["silent", "back", "dead", "kill"]),
        st.sampled_from("ab"),
        st.integers(0, 200),
    ),
    max_size=60,
)


@given(_STEPS, st.floats(0, 3), st.one_of(st.none(), st.integers(0, 20)))
def test_whatever_dies_no_cap_is_passed(
    steps: list[tuple[str, str, int]], max_cost: float, max_requests: int | None
) -> None:
    """By what the server billed; and when all have settled, the ledger is right to the token."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "ledger", max_cost, max_requests)
        lost = False
        for what, member, tokens in steps:
            lost = lost or (what == "dead" and bool(world.open[member]))
            getattr(world, what)(member, tokens)
            assert world.billed <= max_cost * PICO
            assert max_requests is None or world.sent <= max_requests
        for member in "ab":
            while world.open[member]:
                world.end(member, 0)
        assert world.purse.account.in_flight == 0
        world.kill("", 0)
        world.ledger.close()
        total = spent_so_far(world.path, PRICE)
        assert total == world.purse.account.earlier
        assert total.requests == world.sent
        known = round(((total.usd or 0.0) + total.possibly_billed_usd) * PICO)
        assert known >= world.billed - 1
        if not lost:
            assert total.possibly_billed_usd == 0.0
            assert abs(known - world.billed) <= 1


def test_without_a_ledger_numbers_are_made_up() -> None:
    """Caps hold within the one process, and a number is never 0, which means: ask again."""
    purse = Purse(Account(price=None, max_requests=2), priced=False)
    first, second = (purse.reserve("a", 1, 1, 0) for _ in range(2))
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    assert first[0] != second[0]
    assert 0 not in (first[0], second[0])
    assert purse.reserve("b", 1, 1, 0) == 0, "one may turn out not to be sent"
    purse.end("a", Ended(first[0], 0), 0)
    assert isinstance(purse.reserve("b", 1, 1, 0), tuple)
    purse.lose("a")
    purse.lose("b")
    why = purse.reserve("c", 1, 1, 0)
    assert isinstance(why, str)
    assert "--max-requests 2 is used up" in why
