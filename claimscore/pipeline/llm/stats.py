"""The numbers of an engine, for people and scripts, and the limit of failed rows."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from claimscore.config import FailureLimit
from claimscore.errors import TooManyFailures
from claimscore.pipeline.llm.budget.ledger import Spent
from claimscore.types import JSON, Failure

#: Rows that must have an outcome before a share of failures says anything.
_ROWS_FOR_A_SHARE = 50


@dataclasses.dataclass(frozen=True, slots=True)
class ServerStats:
    """A server: its address, requests sent to it, answers of it, and the limits that are kept.

    `down_s` are the seconds for which it has been down, 0.0 where it is up. Nothing will be sent
    to it for `waiting_s` seconds, or nothing has been answered for so long; `why` says the reason.
    """

    address: str
    sent: int
    answered: int
    in_flight: int
    down_s: float
    waiting_s: float
    why: str
    rpm: float | None
    tpm: float | None
    limits_from: str


@dataclasses.dataclass(slots=True)
class EngineStats:
    """Counts since the engine was made.

    `sent` counts requests to the provider, attempts included; `answered` those that brought
    an answer; `hits` answers used that took no request: stored ones, and those to equal requests;
    `rejected` new answers that failed their check; `failed` rows given a `Failure`, `failures` the
    same by kind, `failed_of` by step of a chain; `done_of` rows that have an outcome, by step;
    `retries` failed attempts that may be repeated, by kind of error. Of the prompt tokens servers
    had `cached_prompt_tokens` in a cache of their own. `usd` is None where the price is unknown; it
    has the most that `answers_at_most` can have cost. `last_error` is the last error that may pass.

    The servers of one provider stand in for each other: `waiting_s` and `why` are those of the one
    that waits least, and of several providers those of the one that waits most. `is_down` says
    that all servers of one are down. `rpm` and `tpm` are the sums of the limits of all that are
    up. `servers` has them where there are several addresses.
    """

    sent: int = 0
    answered: int = 0
    hits: int = 0
    rejected: int = 0
    failed: int = 0
    in_flight: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0
    usd: float | None = 0.0
    possibly_billed_usd: float = 0.0
    answers_at_most: int = 0
    retries: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: Counter[str] = dataclasses.field(default_factory=Counter)
    waiting_s: float = 0.0
    why: str = ""
    is_down: bool = False
    rpm: float | None = None
    tpm: float | None = None
    limits_from: str = "none"
    last_error: str = ""
    servers: list[ServerStats] = dataclasses.field(default_factory=list)
    done_of: Counter[str] = dataclasses.field(default_factory=Counter)
    failed_of: Counter[str] = dataclasses.field(default_factory=Counter)

    def see(self, providers: Sequence[Sequence[ServerStats]], spent: Spent) -> None:
        """Take over the numbers of the servers of every provider, and what was spent."""
        for name, value in spent.to_json().items():
            if name != "requests":  # sent, also those in flight, are counted by the servers
                setattr(self, name, value)
        servers = [server for servers in providers for server in servers]
        with_address = [server for server in servers if server.address]
        has_several = len({server.address for server in with_address}) > 1
        self.servers = with_address if has_several else []
        self.sent = sum(server.sent for server in servers)
        self.answered = sum(server.answered for server in servers)
        self.in_flight = sum(server.in_flight for server in servers)
        least = [min(group, key=lambda one: (one.down_s, one.waiting_s)) for group in providers]
        self.is_down = any(server.down_s for server in least)
        most = max(least, key=lambda server: (server.waiting_s, len(server.why)))
        self.waiting_s, self.why = most.waiting_s, most.why
        up = [server for server in servers if not server.down_s] or servers
        self.rpm, self.tpm = _sum([one.rpm for one in up]), _sum([one.tpm for one in up])
        are_limited = self.rpm is not None or self.tpm is not None
        sources = (server.limits_from for server in up if server.limits_from != "none")
        self.limits_from = next(sources, "none") if are_limited else "none"

    def as_json(self) -> JSON:
        """All of it as plain values; `servers` only where there are several."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values |= {"retries": dict(self.retries), "failures": dict(self.failures)}
        for name in ("servers", "done_of", "failed_of"):
            del values[name]
        return {**values, **self.servers_json()}

    def servers_json(self) -> JSON:
        """Several servers as plain values, by the name `servers`; nothing of an only one."""
        servers = [dataclasses.asdict(server) for server in self.servers]
        return {"servers": servers} if servers else {}

    def least_s(self, n_rows: int) -> float | None:
        """Seconds that so many rows take at least, by a pause, the known limit and the share of
        rows that had to be asked; None where the servers are down, for an unknown time."""
        if self.is_down:
            return None
        share = min(1.0, self.sent / self.rows_done) if self.rows_done else 1.0
        return self.waiting_s + (60 * share * n_rows / self.rpm if self.rpm else 0.0)

    @property
    def rows_done(self) -> int:
        """Rows that have an outcome."""
        return self.done_of.total()

    def count_failure(self, failure: Failure, limit: FailureLimit, step: str) -> None:
        """Count a failed row. Raises `TooManyFailures` where `limit` allows no more of a step."""
        self.failed += 1
        self.failures[failure.kind] += 1
        self.failed_of[step] += 1
        n_failed, n_done = self.failed_of[step], self.done_of[step]
        share = n_failed / n_done
        if limit.rows is not None and n_failed > limit.rows:
            allowed = f"{limit.rows:,}"
        elif limit.share is not None and n_done >= _ROWS_FOR_A_SHARE and share > limit.share:
            allowed = f"{limit.share:.4g} of the rows"
        else:
            return
        kind, count = self.failures.most_common(1)[0]
        raise TooManyFailures(
            f"{step and f'{step}: '}{n_failed:,} of {n_done:,} rows failed, and --max-failures "
            f"allows {allowed}; most often ({count:,}): {kind}; the last one: {failure.message}"
        )


def _sum(figures: Sequence[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None
