"""What a map would ask for and cost, without asking."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import BinaryIO

import polars as pl

from claimscore.pipeline.blocking import run_blocking
from claimscore.pipeline.estimating import Estimate, estimate_requests
from claimscore.pipeline.llm.providers.base import Provider, load_provider
from claimscore.pipeline.mapping.config import MapConfig
from claimscore.pipeline.mapping.finished import Finished
from claimscore.pipeline.mapping.job import check_builtin, map_settings
from claimscore.pipeline.mapping.parts import parts_path
from claimscore.pipeline.mapping.questions import Questions
from claimscore.pipeline.mapping.store import looked_up
from claimscore.pipeline.mapping.table import scratch_source


def estimate_map(
    config: MapConfig, *, provider: Provider | None = None, stdin: BinaryIO | None = None
) -> Estimate:
    """Requests, tokens, dollars and hours of a map, minus what the cache has.

    Of a finished file only failed rows are asked again, and only with `retry_failed`. Sends
    nothing and writes nothing; wrong input is refused as `map` refuses it.
    """
    prompt = config.load_prompt()
    with contextlib.ExitStack() as stack:
        if config.is_remote:
            config = stack.enter_context(looked_up(config))
        if provider is None:
            provider = load_provider(config.llm)
            stack.callback(run_blocking, provider.aclose)
        check_builtin(prompt, provider)
        source = stack.enter_context(scratch_source(config.input, stdin))
        frames: Iterable[pl.DataFrame]
        finished = None if parts_path(config.path).exists() else Finished.read(config.path)
        if finished is None:
            table = source.open()
            questions = Questions(prompt, table.schema, table.name)
            frames = table.chunks(config.chunk_rows)
        else:
            finished.refuse_others(
                map_settings(config, prompt, provider, source.digest(), finished.rows)
            )
            questions = Questions(prompt, finished.schema(), source.name)
            frames = finished.failed_rows() if config.retry_failed else ()
        return estimate_requests(
            (request for frame in frames for request in questions.ask(frame, provider).requests),
            questions.parse,
            name=prompt.name,
            llm=config.llm,
            provider=provider,
            cache_dir=config.cache_dir,
            retry_failed=config.retry_failed,
        )
