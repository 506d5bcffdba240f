"""The OpenAI SDK as most people use it: a semaphore, gather, its own retries."""

from __future__ import annotations

import asyncio  # noqa: TID251  # the SDK's users write it so

import openai
from common import MODEL, Meter, messages, note, options


async def main() -> None:
    asked = options()
    slots = asyncio.Semaphore(asked.concurrency)
    errors = 0
    meter = Meter()

    async def ask(client: openai.AsyncOpenAI, number: int) -> str | None:
        nonlocal errors
        question = messages(number, asked.system)
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
        return text

    async with openai.AsyncOpenAI(base_url=asked.base_url, api_key="sk-benchmark") as client:
        texts = await asyncio.gather(*(ask(client, i) for i in range(asked.n)))
    answered = sum(bool(text) for text in texts)
    meter.report(answered, asked.n, packages=("openai", "httpx2"))


asyncio.run(main())
