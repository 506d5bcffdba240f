"""What a map would ask for and cost, without asking."""

from __future__ import annotations

import contextlib
from typing import BinaryIO

from claimscore.pipeline.blocking import run_blocking
from claimscore.pipeline.estimate import Estimate, estimate_requests
from claimscore.pipeline.llm.providers.base import Provider, load_provider
from claimscore.pipeline.mapping.config import MapConfig
from claimscore.pipeline.mapping.job import check_builtin
from claimscore.pipeline.mapping.questions import Questions
from claimscore.pipeline.mapping.table import scratch_source


def estimate_map(
    config: MapConfig, *, provider: Provider | None = None, stdin: BinaryIO | None = None
) -> Estimate:
    """Requests, tokens, dollars and hours of a map, minus what the cache has.

    Sends nothing and writes nothing; wrong input is refused as `map` refuses it.
    """
    prompt = config.load_prompt()
    with contextlib.ExitStack() as stack:
        if provider is None:
            provider = load_provider(config.llm)
            stack.callback(run_blocking, provider.aclose)
        check_builtin(prompt, provider)
        table = stack.enter_context(scratch_source(config.input, stdin)).open()
        questions = Questions(prompt, table.schema, table.name)
        return estimate_requests(
            (
                request
                for frame in table.chunks(config.chunk_rows)
                for request in questions.ask(frame, provider).requests
            ),
            questions.parse,
            name=prompt.name,
            llm=config.llm,
            provider=provider,
            cache_dir=config.cache_dir,
            retry_failed=config.retry_failed,
        )
