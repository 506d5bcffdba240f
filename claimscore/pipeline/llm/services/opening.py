"""Services from a run's settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from claimscore.cache.store import DiskCache
from claimscore.config import LLMConfig, user_cache_dir, user_state_dir
from claimscore.pipeline.llm.account import Account
from claimscore.pipeline.llm.ledger import Ledger
from claimscore.pipeline.llm.limits.shared import LIMITS_FILE, SharedBudget
from claimscore.pipeline.llm.prices import find_prices
from claimscore.pipeline.llm.services.head import SILENT_S, Services
from claimscore.pipeline.llm.services.purse import Purse

#: Who the members of a run are, beside its ledger.
MEMBERS_FILE = "members.json"


@contextlib.contextmanager
def open_services(
    llm: LLMConfig,
    base_url: str | None,
    cache_dir: Path | None = None,
    *,
    models: Sequence[str] = (),
    spend_file: Path | None = None,
    run: str = "",
    silent_s: float = SILENT_S,
    tell: Callable[..., None] | None = None,
) -> Iterator[Services]:
    """Services for engines at other places; closes its files at the end.

    `base_url` is the provider's, None for one without a server; `models` and `spend_file` as for
    `open_engine`. `run` is the same text for services that are started again within one run: the
    members that live on are then waited for, by a list beside `spend_file`. Raises `ConfigError`
    where caps cannot be kept or files cannot be used.
    """
    say = tell or (lambda kind, **fields: None)
    with contextlib.ExitStack() as stack:
        price, _ = find_prices(llm, base_url, models)
        ledger = None if spend_file is None else Ledger(spend_file)
        if ledger is not None:
            stack.callback(ledger.close)
        account = Account(
            price=price, max_cost=llm.max_cost, max_requests=llm.max_requests, ledger=ledger
        )
        purse = Purse(
            account,
            priced=price is not None,
            open_before=None if ledger is None else ledger.open,
        )
        cache = DiskCache(
            cache_dir or user_cache_dir(), on_notice=lambda text: say("cache", notice=text)
        )
        services = Services(
            cache,
            purse,
            lambda scope: SharedBudget(
                user_state_dir() / LIMITS_FILE,
                scope,
                on_warning=lambda text: say("limits", notice=text),
            ),
            failure_limit=llm.failure_limit(),
            silent_s=silent_s,
            roll=None if spend_file is None else spend_file.with_name(MEMBERS_FILE),
            run=run,
            tell=tell,
        )
        stack.callback(services.close)
        yield services
