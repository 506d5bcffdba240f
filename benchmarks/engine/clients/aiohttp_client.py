"""The bare client that others are compared with: aiohttp, a fixed set of workers, no retries.

With `--rpm` it sends evenly, never faster.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  # aiohttp is written for it
import json

import aiohttp
from common import MODEL, Meter, messages, note, options


async def main() -> None:
    asked = options()
    url = f"{asked.base_url}/chat/completions"
    numbers = iter(range(asked.n))
    loop = asyncio.get_running_loop()
    gap_s = 60 / asked.rpm if asked.rpm else 0.0
    answered, free_at, errors = 0, loop.time(), 0
    meter = Meter()

    async def worker(session: aiohttp.ClientSession) -> None:
        nonlocal answered, free_at, errors
        for number in numbers:
            if gap_s:
                sleep_s = free_at - loop.time()
                free_at = max(free_at, loop.time()) + gap_s
                if sleep_s > 0:
                    await asyncio.sleep(sleep_s)
            body = {
                "model": MODEL,
                "temperature": 0.0,
                "max_tokens": asked.max_tokens,
                "messages": messages(number, asked.system),
            }
            try:
                async with session.post(url, json=body) as response:
                    answer = json.loads(await response.read())
                    answered += bool(answer["choices"][0]["message"]["content"])
            except (aiohttp.ClientError, KeyError, ValueError) as exc:
                errors += 1
                if errors == 1:
                    note(exc)

    headers = {"authorization": "Bearer sk-benchmark"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), headers=headers
    ) as session:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(asked.concurrency):
                tasks.create_task(worker(session))
        meter.report(answered, asked.n, packages=("aiohttp",))


asyncio.run(main())
