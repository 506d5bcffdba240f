"""An engine from settings: cache, limits shared with other processes, budget, provider.

The one place where the parts of the engine are put together; `run`, `map` and one's own
scripts open it here.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from claimscore.cache.entry import Entry
from claimscore.cache.store import DiskCache
from claimscore.config import LLMConfig, api_key, user_cache_dir, user_state_dir
from claimscore.pipeline.llm.batch_jobs.journal import journal_folder, paid_twice_online
from claimscore.pipeline.llm.budget.cap import Budget
from claimscore.pipeline.llm.budget.ledger import Ledger
from claimscore.pipeline.llm.budget.pricing import find_prices
from claimscore.pipeline.llm.endpoints import OnEvent, ignore_event
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import (
    Collecting,
    Provider,
    base_urls,
    servers_of,
)
from claimscore.pipeline.llm.ratelimit.limiter import RateLimiter
from claimscore.pipeline.llm.ratelimit.shared import LIMITS_FILE, SharedLimits, shared_scope
from claimscore.pipeline.llm.stopping import Stop
from claimscore.types import JSON, Completion

#: A provider that answers in batches tries again itself, within its own time.
_OWN_LIMITS: Mapping[str, Any] = {"timeout_s": None, "max_attempts": 1}


@contextlib.asynccontextmanager
async def open_engine(
    llm: LLMConfig,
    provider: Provider,
    cache_dir: Path | None = None,
    *,
    models: Sequence[str] = (),
    ledger: Ledger | None = None,
    retry_failed: bool = False,
    on_event: OnEvent | None = None,
) -> AsyncIterator[Engine]:
    """An engine that may be asked, with everything it needs; closes all of it at the end.

    `models` are those that requests name besides the provider's own, so that what they cost is
    known. `ledger` keeps what was spent over all calls, so that `max_cost` and `max_requests`
    hold for them together; it is the caller's to close. `on_event` hears of rare events
    (pauses, outages, damage). Raises `ConfigError`, before anything is sent, where the settings
    cannot be kept.
    """
    tell = on_event or ignore_event
    async with contextlib.AsyncExitStack() as stack:
        folder = cache_dir or user_cache_dir()
        spending = _open_budget(llm, provider, models, ledger)
        stack.callback(spending.flush)  # what ended last counts as ended
        cache = DiskCache(folder, on_notice=lambda text: tell("cache", notice=text))
        stack.callback(cache.close)
        if isinstance(provider, Collecting):
            # What it has sent goes on when the process ends.
            own_limits = {**_OWN_LIMITS, "stop": Stop(grace_s=0.0)}
            concurrency = provider.batch_size
        else:
            own_limits = {"timeout_s": llm.timeout_s, "max_attempts": llm.max_attempts}
            concurrency = llm.max_concurrency
        limiters = [
            _limiter(llm, server, stack, tell, _naming(server, provider, tell))
            for server in servers_of(provider)
        ]
        engine = Engine(
            provider,
            cache,
            limiter=limiters,
            spending=spending,
            max_concurrency=concurrency,
            max_samples=llm.max_samples,
            max_outage_s=llm.max_outage_s,
            failure_limit=llm.failure_limit(),
            retry_failed=retry_failed,
            on_event=on_event,
            **own_limits,
        )
        try:
            if isinstance(provider, Collecting):
                await _recover(provider, cache, folder, on_event)
            else:
                _tell_of_batches(provider, folder, tell)
            async with engine:
                yield engine
        finally:
            with anyio.CancelScope(shield=True):
                await provider.aclose()


def _limiter(
    llm: LLMConfig,
    server: Provider,
    stack: contextlib.AsyncExitStack,
    tell: Callable[..., None],
    on_event: OnEvent,
) -> RateLimiter:
    """The limiter of one server: it keeps limits as given, as declared by headers, or as found."""
    shared = _shared_limits(server, tell)
    if shared is not None:
        _recall_dialect(server, shared)
    if isinstance(server, Collecting):
        return RateLimiter(slow_start=False)  # its server limits batch jobs, not requests
    limiter = RateLimiter(
        rpm=llm.rpm,
        tpm=llm.tpm,
        max_concurrency=llm.max_concurrency,
        shared=shared,
        on_event=on_event,
    )
    stack.callback(limiter.close)
    return limiter


def _open_budget(
    llm: LLMConfig,
    provider: Provider,
    models: Sequence[str],
    ledger: Ledger | None,
) -> Budget:
    """The budget with the prices of the models and the caps of the settings."""
    price, others = find_prices(llm, getattr(provider, "base_url", None), models)
    return Budget(
        price=price,
        others=others,
        max_cost=llm.max_cost,
        max_requests=llm.max_requests,
        ledger=ledger,
    )


async def _recover(provider: Any, cache: Any, folder: Path, on_event: OnEvent | None) -> None:
    """Take the answers of batches that earlier runs have sent into the cache."""

    def keep(answers: Mapping[str, Completion]) -> None:
        cache.put_many({key: Entry(completion) for key, completion in answers.items()})

    def find(keys: Sequence[str]) -> dict[str, Completion]:
        return {key: entry.completion for key, entry in cache.get_many(keys).items()}

    provider.state = journal_folder(folder, provider.namespace)
    provider.on_event = on_event
    await provider.recover(keep, find)


def _tell_of_batches(provider: Provider, folder: Path, tell: OnEvent) -> None:
    """Say so where batches under way hold requests that may now be asked, and paid, again."""
    notice = paid_twice_online(journal_folder(folder, provider.namespace), provider.model)
    if notice is not None:
        tell("batches under way", notice=notice)


def _naming(server: Provider, provider: Provider, tell: OnEvent) -> OnEvent:
    """Events of one of several servers say which it is."""
    return tell if server is provider else functools.partial(tell, server=base_urls(server)[0])


def _shared_limits(provider: Provider, tell: OnEvent) -> SharedLimits | None:
    """The limits that processes with the same key and server share; None without a server."""
    base_url = getattr(provider, "base_url", None)
    if base_url is None:
        return None
    return SharedLimits(
        user_state_dir() / LIMITS_FILE,
        shared_scope(base_url, api_key()),
        on_warning=lambda text: tell("limits", notice=text),
    )


def _recall_dialect(provider: Any, shared: SharedLimits) -> None:
    """How this server wants to be asked, as it was found out before, and what is found out now."""
    if hasattr(provider, "on_dialect"):
        name = f"dialect of {provider.model}"
        _use_dialect(provider, shared.recall_fact(name))
        provider.on_dialect = lambda dialect: shared.remember_fact(name, dialect.to_json())


def _use_dialect(provider: Any, stored: JSON | None) -> None:
    from claimscore.pipeline.llm.providers.schema import Dialect

    if stored is not None:
        provider.dialect = Dialect.from_json(stored)
