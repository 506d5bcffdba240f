"""Budget: what is counted, and that no cap is ever passed."""

import dataclasses
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import BudgetError, ConfigError
from claimscore.pipeline.llm.budget.cap import Budget, Reservation
from claimscore.pipeline.llm.budget.ledger import PICO, Ledger, Spent, read_ledger
from claimscore.pipeline.llm.budget.pricing import Price, Rates
from claimscore.pipeline.llm.tokens import most_tokens
from claimscore.types import Message, OutputSchema, Request, Usage

pytestmark = pytest.mark.anyio

#: A dollar a thousand tokens of either kind: sums that can be checked by eye.
TOKEN = PICO // 1000
RATES = Rates(TOKEN, TOKEN, TOKEN // 2)
PRICE = Price("test", (RATES,))


def request(prompt: str = "", max_tokens: int = 100, output: OutputSchema | None = None) -> Request:
    return Request("p", "n", "m", (Message("user", prompt),), max_tokens=max_tokens, output=output)


def most(asked: Request) -> int:
    """The tokens that a request may have: what is set aside for it."""
    spending = Budget(lambda _: PRICE, max_cost=1e9)
    reservation = spending.try_reserve(asked)
    assert reservation is not None
    return reservation.pico_usd // TOKEN


def taken(reservation: Reservation | None) -> Reservation:
    assert reservation is not None, "there is room"
    return reservation


#: What one `request()` may cost at most, in tokens and in dollars.
MOST = most(request())
MOST_USD = MOST / 1000


class TestCounting:
    """Totals of this invocation and of earlier ones."""

    def test_an_unknown_price_is_not_zero(self) -> None:
        spending = Budget()
        spending.settle(taken(spending.try_reserve(request())), Usage(100, 20))
        assert spending.ledger.now == Spent(1, 100, 20, unpriced=1)
        assert spending.ledger.now.usd is None

    @pytest.mark.parametrize(
        ("usage", "billed"),
        [
            pytest.param(Usage(), MOST, id="nothing reported"),
            pytest.param(Usage(None, 20), MOST, id="no prompt tokens"),
            pytest.param(Usage(7, None), MOST, id="no completion tokens"),
        ],
    )
    def test_missing_usage_costs_the_most_it_can(self, usage: Usage, billed: int) -> None:
        spending = Budget(lambda _: PRICE)
        spending.settle(taken(spending.try_reserve(request())), usage)
        assert spending.ledger.now.usd == billed / 1000
        assert spending.ledger.now.prompt_tokens == (usage.prompt_tokens or 0)
        assert spending.ledger.now.answers_at_most == 1


class TestWorstCase:
    """What is set aside is never less than what can be billed."""

    @pytest.mark.parametrize(
        "text",
        ["plain words", "čeština", "文字", "\U0001f469\u200d\U0001f469", "\udcff", "a" * 10_000],
        ids=["ascii", "two bytes", "three bytes", "four bytes", "half a surrogate", "long"],
    )
    def test_a_text_counts_as_its_bytes(self, text: str) -> None:
        n_bytes = len(text.encode("utf-8", "surrogatepass"))
        assert most(request(text)) - MOST == n_bytes

    def test_every_message_and_the_schema_count(self) -> None:
        schema = OutputSchema("name", {"type": "object", "properties": {"ü": {}}})
        with_schema = most(request(output=schema))
        assert with_schema - MOST >= len('name{"type": "object", "properties": {"ü": {}}}'.encode())
        turns = Request("p", "n", "m", (Message("user", ""),) * 3, max_tokens=100)
        assert most(turns) > MOST


class TestCaps:
    """What stops a run, and what it says."""

    def test_a_cost_cap_needs_a_price(self) -> None:
        with pytest.raises(ConfigError, match=r"--input-price.*--max-requests"):
            Budget(max_cost=1.0).try_reserve(request())

    def test_parameters_of_ones_own_are_set_aside_too(self) -> None:
        tools = [{"type": "function", "function": {"name": "f", "description": "x" * 5_000}}]
        asked = dataclasses.replace(request(), extra={"tools": tools})
        assert most(asked) >= MOST + 5_000

    def test_a_tier_of_unknown_price_is_refused_under_a_cap_in_dollars(self) -> None:
        asked = dataclasses.replace(request(), extra={"service_tier": "scale"})
        with pytest.raises(
            ConfigError, match=r'm at service_tier "scale" .*--input-price.*--max-r'
        ):
            Budget(lambda _: PRICE, max_cost=1.0).try_reserve(asked)
        taken(Budget(lambda _: Price.given(1, 1), max_cost=1.0).try_reserve(asked))
        taken(Budget(lambda _: PRICE, max_requests=1).try_reserve(asked))

    @pytest.mark.parametrize(("served", "at_most"), [("default", 0), ("flex", 1)])
    def test_a_cheaper_tier_counts_as_the_standard_one(self, served: str, at_most: int) -> None:
        spending = Budget(lambda _: PRICE, max_cost=9.0)
        one = dataclasses.replace(request(), extra={"service_tier": "flex"})
        reservation = taken(spending.try_reserve(one))
        assert reservation.pico_usd == sum(most_tokens(one)) * TOKEN
        spending.settle(reservation, Usage(100, 20, service_tier=served))
        now = spending.ledger.now
        assert (now.pico_usd, now.answers_at_most) == (120 * TOKEN, at_most)

    def test_nothing_is_sent_under_a_cap_once_a_cost_is_unknown(self, tmp_path: Path) -> None:
        """Served at a tier that nobody asked for and no table prices, or by an earlier call."""
        ledger = Ledger(tmp_path / "ledger")
        spending = Budget(lambda _: PRICE, max_cost=9.0, ledger=ledger)
        spending.settle(taken(spending.try_reserve(request())), Usage(9, 9, service_tier="scale"))
        spending.ledger.flush()
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"whose cost is not known: 1; nothing"):
                spending.try_reserve(request())
            ledger.close()
            ledger = Ledger(tmp_path / "ledger")
            spending = Budget(lambda _: PRICE, max_cost=9.0, ledger=ledger)
        ledger.close()

    async def test_the_cap_is_said_with_what_is_spent_and_needed(self) -> None:
        spending = Budget(lambda _: PRICE, max_cost=1.0)
        spending.settle(taken(spending.try_reserve(request())), Usage(272, 99))
        spending.keep(taken(spending.try_reserve(request())))
        with pytest.raises(BudgetError) as caught:
            await spending.reserve(request())
        said = str(caught.value)
        assert "$0.371 of --max-cost $1.00 is spent, possibly $0.372 for requests without" in said
        assert "may cost up to $0.372; the same command with a higher --max-cost" in said

    async def test_what_costs_nothing_fits_into_no_budget(self) -> None:
        nothing = Price.given(0, 0)
        free = Budget(lambda _: nothing, max_cost=0.0)
        free.settle(await free.reserve(request()), Usage())
        free.keep(await free.reserve(request()))
        assert free.ledger.now.usd == 0.0

    async def test_caps_hold_over_invocations(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger"
        ledger = Ledger(path)
        spending = Budget(
            price_of=lambda _: PRICE, max_cost=2.5 * MOST_USD, max_requests=9, ledger=ledger
        )
        spending.settle(taken(spending.try_reserve(request())), Usage(1, 1))
        spending.ledger.flush()
        taken(spending.try_reserve(request()))
        ledger.close()  # killed
        ledger = Ledger(path)
        spending = Budget(
            price_of=lambda _: PRICE, max_cost=2.5 * MOST_USD, max_requests=9, ledger=ledger
        )
        assert ledger.earlier == Spent(2, 1, 1, 2 * TOKEN, MOST * TOKEN)
        spending.settle(taken(spending.try_reserve(request())), Usage(100, MOST - 100))
        with pytest.raises(BudgetError):
            await spending.reserve(request())
        spending = Budget(
            price_of=lambda _: PRICE, max_cost=9 * MOST_USD, max_requests=4, ledger=ledger
        )
        spending.release(taken(spending.try_reserve(request())))
        with pytest.raises(BudgetError, match=r"--max-requests 4 is used up \(sent: 4\)"):
            await spending.reserve(request())
        ledger.close()

    async def test_an_overrun_counts(self) -> None:
        spending = Budget(lambda _: PRICE, max_cost=4.5 * MOST_USD)
        spending.settle(taken(spending.try_reserve(request())), Usage(MOST * 3, MOST))
        assert spending.ledger.now.usd == pytest.approx(4 * MOST_USD)
        with pytest.raises(BudgetError):
            await spending.reserve(request())


class TestWaiting:
    """Near the cap, requests wait for what those in flight leave over."""

    @pytest.mark.parametrize(
        ("caps", "used", "is_sent"),
        [
            pytest.param({"max_cost": 1.5 * MOST_USD}, Usage(1, 1), True, id="room is left over"),
            pytest.param({"max_cost": 1.5 * MOST_USD}, Usage(), False, id="no room will ever be"),
            pytest.param({"max_requests": 1}, Usage(1, 1), False, id="used up"),
        ],
    )
    async def test_those_who_wait_hear_when_what_is_in_flight_has_ended(
        self, caps: dict[str, Any], used: Usage, is_sent: bool
    ) -> None:
        spending = Budget(lambda _: PRICE, **caps)
        first = await spending.reserve(request())
        ends: list[Reservation | BudgetError] = []

        async def ask() -> None:
            try:
                ends.append(await spending.reserve(request()))
            except BudgetError as exc:
                ends.append(exc)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert not ends
            spending.settle(first, used)
        (end,) = ends
        assert isinstance(end, Reservation) is is_sent


# -- properties

_OPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["reserve"] * 4
            + ["settle"] * 3
            + ["release", "unsent", "keep"]
            + ["flush", "kill", "tear"]
        ),
        st.integers(0, 2**20),
    ),
    max_size=80,
)


class _World:
    """A server that bills, invocations of a run that come and go, and one ledger."""

    def __init__(self, path: Path, price: Price | None = PRICE, **caps: Any) -> None:
        self.path = path
        self.billed = 0
        self.sent = 0
        self.flying: deque[tuple[Reservation, Usage, int]] = deque()
        self._price, self._caps = price, caps
        self._open()

    def _open(self) -> None:
        self.ledger = Ledger(self.path)
        self.spending = Budget(lambda _: self._price, ledger=self.ledger, **self._caps)

    def do(self, name: str, number: int) -> None:
        if name == "reserve":
            self._send(number)
        elif name in ("flush", "kill", "tear"):
            self._invocation(name)
        elif self.flying:
            self.flying.rotate(number % 7)
            self._end(name, *self.flying.popleft())

    def _send(self, number: int) -> None:
        """The server bills at once, whether or not anybody hears of it."""
        asked = request("x" * (number % 300), max_tokens=1 + number % 50)
        tier = ("", "flex")[number % 3 == 1]
        asked = dataclasses.replace(asked, extra={"service_tier": tier} if tier else {})
        reservation = self.spending.try_reserve(asked)
        if reservation is None:
            return
        completion = number % (asked.max_tokens + 1)
        prompt = number % (len(asked.messages[0].content) + 200)
        served = tier if number % 2 else "default"
        usage = Usage(prompt, completion, prompt // 2, service_tier=served)
        cost = prompt // 2 * TOKEN // 2 + (prompt - prompt // 2 + completion) * TOKEN
        self.billed += cost
        self.sent += 1
        self.flying.append((reservation, usage, cost))

    def _end(self, name: str, reservation: Reservation, usage: Usage, cost: int) -> None:
        if name == "settle":
            self.spending.settle(reservation, usage)
        elif name == "keep":
            self.spending.keep(reservation)
        else:  # refused, or never sent: not billed after all
            self.billed -= cost
            self.sent -= name == "unsent"
            self.spending.release(reservation, sent=name == "release")

    def _invocation(self, name: str) -> None:
        if name == "flush":
            self.spending.ledger.flush()
            return
        self.ledger.close()
        if name == "tear":
            with self.path.open("ab") as stream:
                stream.write(b'{"reserve":99,"pro')
        self.flying.clear()
        self._open()


@given(_OPS, st.floats(0, 8), st.integers(0, 30), st.booleans())
def test_no_interleaving_passes_a_cap(
    ops: list[tuple[str, int]], cap: float, max_requests: int, priced: bool
) -> None:
    """Whatever is answered, refused, lost or killed in between, and at whatever tier it is served:
    what the server bills and how often it was asked stay within the caps."""
    with tempfile.TemporaryDirectory() as folder:
        price, caps = (PRICE, {"max_cost": cap}) if priced else (None, {})
        world = _World(Path(folder) / "ledger", price, max_requests=max_requests, **caps)
        for name, number in ops:
            world.do(name, number)
            assert world.billed <= cap * PICO or not priced
            assert world.sent <= max_requests
        held = sum(reservation.pico_usd for reservation, _, _ in world.flying)
        assert world.ledger.held_pico == held
        world.ledger.close()


@given(_OPS)
def test_after_a_kill_the_ledger_says_no_less_than_was_billed(ops: list[tuple[str, int]]) -> None:
    """Without a cap too."""
    with tempfile.TemporaryDirectory() as folder:
        world = _World(Path(folder) / "ledger")
        for name, number in (*ops, ("kill", 0)):
            world.do(name, number)
        world.ledger.close()
        assert world.ledger.earlier.worst_pico_usd >= world.billed
        assert world.ledger.earlier.requests >= world.sent


@given(_OPS.map(lambda ops: [op for op in ops if op[0] not in ("kill", "tear", "keep")]))
def test_totals_add_up(ops: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = _World(Path(folder) / "ledger")
        for name, number in ops:
            world.do(name, number)
        while world.flying:
            world.do("settle", 0)
        world.spending.ledger.flush()
        world.ledger.close()
        stored = read_ledger(world.path)[0]
        assert stored == world.spending.ledger.now
        assert stored.requests == world.sent
        assert stored.pico_usd == world.billed
