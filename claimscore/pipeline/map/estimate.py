"""What a map will cost, before anything is sent."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import polars as pl

from claimscore.pipeline.blocking import run_blocking
from claimscore.pipeline.estimate import Estimate, estimate_requests
from claimscore.pipeline.llm.providers.base import Provider, load_provider
from claimscore.pipeline.map.input_table import find_source
from claimscore.pipeline.map.map_files import MapFiles
from claimscore.pipeline.map.settings import MapConfig, map_settings
from claimscore.pipeline.map.table_prompt import TablePrompt, check_builtin


def estimate_map(
    config: MapConfig, *, provider: Provider | None = None, stdin: BinaryIO | None = None
) -> Estimate:
    """Requests, tokens, dollars and hours of a map, minus the answers in the cache.

    Of a finished file only failed rows are asked again, and only with `retry_failed`. Sends
    nothing and writes nothing; wrong input is refused as `map` refuses it.
    """
    prompt, files = config.load_prompt(), MapFiles(config.out)
    files.check()
    with contextlib.ExitStack() as stack:
        if provider is None:
            provider = load_provider(config.llm)
            stack.callback(run_blocking, provider.aclose)
        check_builtin(prompt, provider)
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="claimscore-")))
        source = find_source(config.input, scratch, stdin)
        frames: Iterable[pl.DataFrame] = ()
        finished = None if files.has_parts else files.finished()
        if finished is None:
            table = source.open()
            table_prompt = TablePrompt(prompt, table.schema, table.name)
            frames = table.chunks(config.rows_of_a_chunk(table.n_rows))
        else:
            finished.refuse_others(
                map_settings(config, prompt, provider, source.digest(), finished.rows)
            )
            rows = files.rows(scratch)
            table_prompt = TablePrompt(prompt, rows.schema(finished.columns), source.name)
            if config.retry_failed:
                frames = rows.failed(finished.columns)
        return estimate_requests(
            (
                request
                for frame in frames
                for request in table_prompt.requests(frame, provider).requests
            ),
            table_prompt.parse,
            name=prompt.name,
            llm=config.llm,
            provider=provider,
            cache_dir=config.cache_dir,
            retry_failed=config.retry_failed,
            max_tokens_limit=prompt.settings.max_tokens_limit,
        )
