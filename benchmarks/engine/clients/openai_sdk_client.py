"""The OpenAI SDK as most people use it: a semaphore, gather, its own retries.

With `--diskcache` answers are kept by a hash of the question, as one writes it oneself.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  # the SDK's users write it so
import contextlib
import hashlib
import json
import sys

import diskcache
import openai
from common import MODEL, Meter, messages, note, options

KEEP = "--diskcache" in sys.argv
if KEEP:
    sys.argv.remove("--diskcache")


async def main() -> None:
    asked = options()
    slots = asyncio.Semaphore(asked.concurrency)
    errors = 0
    meter = Meter()

    async def ask(
        client: openai.AsyncOpenAI, cache: diskcache.Cache | None, number: int
    ) -> str | None:
        nonlocal errors
        question = messages(number, asked.system)
        key = ""
        if cache is not None:
            key = hashlib.sha256(json.dumps([MODEL, question]).encode()).hexdigest()
            found = cache.get(key)
            if found is not None:
                return str(found)
        async with slots:
            try:
                answer = await client.chat.completions.create(
                    model=MODEL,
                    messages=question,  # type: ignore[arg-type]  # plain dicts
                    temperature=0.0,
                    max_tokens=asked.max_tokens,
                )
                text = answer.choices[0].message.content
            except (openai.OpenAIError, ValueError) as exc:
                errors += 1
                if errors == 1:
                    note(exc)
                return None
        if cache is not None:
            cache.set(key, text)
        return text

    with contextlib.ExitStack() as stack:
        cache = stack.enter_context(diskcache.Cache(str(asked.work / "cache"))) if KEEP else None
        async with openai.AsyncOpenAI(base_url=asked.base_url, api_key="sk-benchmark") as client:
            texts = await asyncio.gather(*(ask(client, cache, i) for i in range(asked.n)))
    answered = sum(bool(text) for text in texts)
    meter.report(
        answered,
        asked.n,
        packages=(
            "openai",
            "httpx2",
            "diskcache",
        ),
    )


asyncio.run(main())
