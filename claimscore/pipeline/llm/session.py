"""An engine from settings: cache, limits, budget, provider.

The one place where the parts of the engine are put together; `run`, `map` and one's own
scripts open it here.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio

from claimscore.cache.entry import Entry
from claimscore.cache.store import DiskCache
from claimscore.config import LLMConfig, user_cache_dir
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.batch_jobs.journal import journal_folder, paid_twice_online
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.pipeline.llm.budget.ledger import Ledger
from claimscore.pipeline.llm.budget.pricing import Prices
from claimscore.pipeline.llm.endpoints import OnEvent, ignore_event
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import Collecting, Provider, servers_of
from claimscore.types import Completion


def why_not_asked(
    llm: LLMConfig, provider: Provider, models: Sequence[str] = ()
) -> ConfigError | None:
    """Why the provider can be asked nothing with these settings: no key, or a cap and no price."""
    try:
        for server in servers_of(provider):
            if (check_key := getattr(server, "check_key", None)) is not None:
                check_key()
        if llm.max_cost is not None:
            Prices((llm, provider)).require(models)
    except ConfigError as exc:
        return exc
    return None


@contextlib.asynccontextmanager
async def open_engine(
    llm: LLMConfig,
    provider: Provider,
    cache_dir: Path | None = None,
    *,
    tasks: Mapping[str, Provider] = MappingProxyType({}),
    models: Sequence[str] = (),
    ledger: Ledger | None = None,
    retry_failed: bool = False,
    on_event: OnEvent | None = None,
) -> AsyncIterator[Engine]:
    """An engine that may be asked, with everything it needs; closes all of it at the end.

    `tasks` has the providers of tasks that do not ask `provider`. `models` are those that requests
    name besides the provider's own, so that what they cost is known. `ledger` keeps what was spent
    over all calls, so that `max_cost` and `max_requests` hold for them together; it is the
    caller's to close. `on_event` hears of rare events (pauses, outages, damage). Raises
    `ConfigError`, before anything is sent, where the settings cannot be kept.
    """
    tell = on_event or ignore_event
    async with contextlib.AsyncExitStack() as stack:
        folder = cache_dir or user_cache_dir()
        prices = Prices(*((llm, asked) for asked in (provider, *tasks.values())))
        if llm.max_cost is not None:
            prices.require(models)
        spending = Budget(
            price_of=prices,
            max_cost=llm.max_cost,
            max_requests=llm.max_requests,
            ledger=ledger,
        )
        stack.callback(spending.ledger.flush)  # what ended last counts as ended
        cache = DiskCache(folder, on_notice=lambda text: tell("cache", notice=text))
        stack.callback(cache.close)
        engine = Engine(
            provider,
            cache,
            tasks=tasks,
            rpm=llm.rpm,
            tpm=llm.tpm,
            max_concurrency=llm.max_concurrency,
            timeout_s=llm.timeout_s,
            max_attempts=llm.max_attempts,
            spending=spending,
            max_samples=llm.max_samples,
            max_outage_s=llm.max_outage_s,
            failure_limit=llm.failure_limit(),
            retry_failed=retry_failed,
            on_event=on_event,
        )
        try:
            for asked in engine.providers:
                if isinstance(asked, Collecting):
                    await _recover(asked, cache, folder, tell)
                else:
                    # Batches under way may hold requests that are now asked, and paid, again.
                    if (notice := paid_twice_online(folder, asked)) is not None:
                        tell("batches under way", notice=notice)
            async with engine:
                yield engine
        finally:
            with anyio.CancelScope(shield=True):
                for asked in engine.providers:
                    await asked.aclose()


async def _recover(provider: Any, cache: DiskCache, folder: Path, tell: OnEvent) -> None:
    """Take the answers of batches that earlier runs have sent into the cache."""

    def keep(answers: Mapping[str, Completion]) -> None:
        cache.put_many({key: Entry(completion) for key, completion in answers.items()})

    def find(keys: Sequence[str]) -> dict[str, Completion]:
        return {key: entry.completion for key, entry in cache.get_many(keys).items()}

    await provider.recover(journal_folder(folder, provider), keep, find, tell)
