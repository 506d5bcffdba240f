"""claimscore's engine by its Python interface, with its cache and everything else on."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import AsyncIterator
from typing import Any

import anyio
import genai_prices  # noqa: F401 - imported before the clock, as the peers' clients are
import openai  # noqa: F401 - the same
from common import MODEL, Meter, messages, note, options

from claimscore.config import LLMConfig
from claimscore.errors import StoppedEarly
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm.providers.base import load_provider
from claimscore.pipeline.llm.question import Answer
from claimscore.pipeline.llm.session import open_engine
from claimscore.types import Message

PARSERS = {"text": lambda completion: completion.text, "length": lambda c: len(c.text)}

gc.set_threshold(30_000, 6, 100)  # as the command line does

asked = options()
os.environ |= {
    "OPENAI_API_KEY": "sk-benchmark",
    "CLAIMSCORE_CACHE_DIR": str(asked.work / "cache"),
    "CLAIMSCORE_STATE_DIR": str(asked.work / "state"),
}


@contextlib.asynccontextmanager
async def opened_engine() -> AsyncIterator[Engine]:
    """An engine as a user's script opens one."""
    config = LLMConfig(
        model=f"openai:{MODEL}",
        base_url=asked.base_url,
        rpm=asked.rpm,
        tpm=asked.tpm,
        max_concurrency=asked.concurrency,
    )
    async with open_engine(config, load_provider(config)) as engine:
        yield engine


async def main() -> None:
    parse: Any = PARSERS[asked.parser]
    answered, more = 0, {}
    meter = Meter()
    async with opened_engine() as engine:
        requests = [
            engine.request(
                [Message(m["role"], m["content"]) for m in messages(number, asked.system)],
                max_tokens=asked.max_tokens,
            )
            for number in range(asked.n)
        ]
        try:
            outcomes = await engine.answer_all(requests, parse)
            answered = sum(isinstance(outcome, Answer) for outcome in outcomes)
        except StoppedEarly as exc:
            note(exc)
            answered, more = engine.stats.answered, {"stopped": type(exc).__name__}
        more |= {"hits": engine.stats.hits, "retries": engine.stats.retries}
    meter.report(
        answered, asked.n, packages=("anyio", "diskcache", "httpx2", "openai", "orjson"), **more
    )


anyio.run(main, backend_options={"use_uvloop": True})
