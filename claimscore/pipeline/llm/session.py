"""An engine from settings: cache, limits, budget, provider.

The one place where the parts of the engine are put together; `run`, `map` and one's own
scripts open it here.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from claimscore.cache.store import DiskCache, NewRow
from claimscore.config import LLMConfig, user_cache_dir
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.batch_jobs.journal import JobJournal, journal_folder
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.pipeline.llm.budget.ledger import Ledger
from claimscore.pipeline.llm.budget.pricing import Prices
from claimscore.pipeline.llm.endpoints import OnEvent, ignore_event
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import Collecting, Provider, servers_of

#: Providers by the task that they are asked for; "" is for requests of no task.
Providers = Mapping[str, Provider]


def find_prices(llm: LLMConfig, providers: Providers) -> Prices:
    """The prices of all that is asked; `ConfigError` where one is not known and dollars are
    capped."""
    prices = Prices(*((llm.of(task), provider) for task, provider in providers.items()))
    if llm.max_cost is not None:
        prices.require()
    return prices


def why_not_asked(llm: LLMConfig, providers: Providers) -> ConfigError | None:
    """Why one of the providers can be asked nothing with these settings: no key, or a cap and no
    price."""
    try:
        for server in itertools.chain.from_iterable(map(servers_of, providers.values())):
            if (check_key := getattr(server, "check_key", None)) is not None:
                check_key()
        find_prices(llm, providers)
    except ConfigError as exc:
        return exc
    return None


class Copy(Protocol):
    """A copy of a run elsewhere, for another machine to go on with (`claimscore.runs.remote`)."""

    def import_into(self, cache: DiskCache) -> None:
        """Take the answers that other machines bought."""

    def jobs(self, server: str) -> Sequence[Path]:
        """The records of batch jobs that other machines made, of a journal's folder."""

    def add_answers(self, rows: Sequence[NewRow]) -> None:
        """Copy these answers soon."""

    def send_job(self, path: Path) -> None:
        """Copy the record of a batch job now, or forget one that is gone."""


@contextlib.asynccontextmanager
async def open_engine(
    llm: LLMConfig,
    asked: Provider | Providers,
    cache_dir: Path | None = None,
    *,
    ledger: Ledger | None = None,
    copy: Copy | None = None,
    retry_failed: bool = False,
    on_event: OnEvent = ignore_event,
) -> AsyncIterator[Engine]:
    """An engine that may be asked, with everything it needs; closes all of it at the end.

    `asked` is a provider, or the providers of tasks. `ledger` keeps what was spent over all calls,
    so that `max_cost` and `max_requests` hold for them together; it is the caller's to close.
    `copy` gets new answers and batch jobs. `on_event` hears of rare events (outages,
    damage). Raises `ConfigError`, before anything is sent, where the settings cannot be kept.
    """
    providers = asked if isinstance(asked, Mapping) else {"": asked}
    async with contextlib.AsyncExitStack() as stack:
        folder = cache_dir or user_cache_dir()
        spending = Budget(
            price_of=find_prices(llm, providers),
            max_cost=llm.max_cost,
            max_requests=llm.max_requests,
            ledger=ledger,
        )
        stack.callback(spending.ledger.flush)  # what ended last counts as ended
        cache = DiskCache(
            folder,
            on_notice=lambda text: on_event("cache", notice=text),
            on_kept=copy.add_answers if copy else lambda _: None,
        )
        stack.callback(cache.close)
        if copy is not None:
            await anyio.to_thread.run_sync(copy.import_into, cache)
        engine = Engine(
            next(iter(providers.values())),
            cache,
            llm=llm,
            tasks=providers,
            spending=spending,
            retry_failed=retry_failed,
            on_event=on_event,
        )
        try:
            for provider in engine.providers:
                if isinstance(provider, Collecting):
                    journal = journal_folder(folder, provider)
                    if copy is not None:
                        JobJournal(journal).take(copy.jobs(journal.name))
                    on_write = copy.send_job if copy else lambda _: None
                    provider.open(journal, cache, on_write)
            async with engine:
                yield engine
        finally:
            with anyio.CancelScope(shield=True):
                for provider in engine.providers:
                    await provider.aclose()
