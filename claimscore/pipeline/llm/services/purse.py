"""The money of all members: who was granted what, and what it came to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from claimscore.pipeline.llm.account import Account, Ended, Most
from claimscore.pipeline.llm.ledger import Spent, reserved

#: A grant as its member remembers it: number, tokens of prompt and completion, picodollars.
Grant: TypeAlias = tuple[int, int, int, int]


class _Granted(NamedTuple):
    member: str
    pico_usd: int
    spent: Spent  # what it counts for should nobody ever hear of it


class Purse:
    """Reservations of members, by number.

    Those of a lost member stay in the ledger as they are, and so count as possibly billed; if
    it comes back they are its own again. `open_before` are those that the ledger had open.
    """

    def __init__(
        self, account: Account, *, priced: bool, open_before: Mapping[int, Spent] | None = None
    ) -> None:
        self.account = account
        self._priced = priced
        self._granted: dict[int, _Granted] = {}
        self._lost: dict[int, Spent] = dict(open_before or {})
        self._n_unwritten = 0

    def reserve(
        self, member: str, prompt_tokens: int, completion_tokens: int, pico_usd: int
    ) -> tuple[int, int] | int | str:
        """A number and what is set aside; 0 while there may be room later, else why not."""
        most = Most(prompt_tokens, completion_tokens, pico_usd)
        hold = self.account.take(most)
        if hold is None:
            if self.account.in_flight or self.account.is_short:
                return 0
            return self.account.why_not(self.account.stretched(most)) or "the budget is used up"
        number = hold.number or self._unwritten()
        known = hold.pico_usd if self._priced else None
        spent = reserved(prompt_tokens, completion_tokens, known)
        self._granted[number] = _Granted(member, hold.pico_usd, spent)
        return number, hold.pico_usd

    def end(self, member: str, ended: Ended, most_pico: int) -> None:
        """What became of a request. A second time, or for a number that is nobody's: nothing."""
        if not self.account.capped:
            self.account.totals.requests += 1
            self.account.count(ended)
            return
        self._find(member, ended.number)
        granted = self._granted.pop(ended.number, None)
        if granted is None:
            return
        self.account.count(ended)
        self.account.free(granted.pico_usd, ended, Most(0, 0, most_pico))

    def come_back(self, member: str, grants: Iterable[Grant]) -> None:
        """A member says what it was granted, by these services or before they were restarted."""
        for number, *_ in grants:
            self._find(member, number)

    def lose(self, member: str) -> None:
        """What it had open may be billed, and nobody will hear of it."""
        for number in [n for n, granted in self._granted.items() if granted.member == member]:
            granted = self._granted.pop(number)
            self._lost[number] = granted.spent
            self.account.lose(granted.pico_usd, granted.spent)

    def _find(self, member: str, number: int) -> None:
        spent = self._lost.pop(number, None)
        if spent is not None:
            self._granted[number] = _Granted(member, spent.possibly_pico_usd, spent)
            self.account.find(spent.possibly_pico_usd, spent)

    def _unwritten(self) -> int:
        """A number where no ledger gives one."""
        self._n_unwritten -= 1
        return self._n_unwritten
