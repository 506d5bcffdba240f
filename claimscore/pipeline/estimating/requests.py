"""The estimate of any requests, such as those of a map."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from claimscore.config import LLMConfig
from claimscore.pipeline.estimating.figures import Estimate
from claimscore.pipeline.estimating.questions import Tally, cache_to_look_at
from claimscore.pipeline.estimating.totals import summed
from claimscore.pipeline.llm.providers.base import Provider
from claimscore.pipeline.llm.validation import Parse
from claimscore.types import Request

#: Requests of one's own that are looked up at a time.
_BLOCK = 500


def estimate_requests(
    requests: Iterable[Request],
    parse: Parse[Any],
    *,
    name: str,
    llm: LLMConfig,
    provider: Provider,
    cache_dir: Path | None = None,
    retry_failed: bool = False,
    max_tokens_limit: int | None = None,
) -> Estimate:
    """What these requests to `provider` would cost, minus what the cache has.

    `parse` and `max_tokens_limit` are those of `Engine.answer_all`. The requests may be a
    generator: they are not kept. Nothing is sent or written; the provider is the caller's to close.
    """
    with cache_to_look_at(cache_dir) as cache:
        tally = Tally(name, cache, max_samples=llm.max_samples, retry_failed=retry_failed)
        block: list[Request] = []
        n_requests = 0
        for request in requests:
            n_requests += 1
            block.append(request)
            if len(block) == _BLOCK:
                tally.add(block, parse, max_tokens_limit=max_tokens_limit)
                block = []
        tally.add(block, parse, max_tokens_limit=max_tokens_limit)
        return summed(llm, provider, {name: tally}, n_requests, {}, set(), [])
