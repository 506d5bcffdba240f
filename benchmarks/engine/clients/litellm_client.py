"""litellm.acompletion with a semaphore and gather, its own retries."""

from __future__ import annotations

import asyncio  # noqa: TID251  # litellm is written for it
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it is downloaded on import

import litellm
from common import MODEL, Meter, messages, note, options

litellm.telemetry = False
litellm.suppress_debug_info = True


async def main() -> None:
    asked = options()
    slots = asyncio.Semaphore(asked.concurrency)
    errors = 0
    meter = Meter()

    async def ask(number: int) -> str | None:
        nonlocal errors
        async with slots:
            try:
                answer = await litellm.acompletion(
                    model=f"openai/{MODEL}",
                    messages=messages(number, asked.system),
                    api_base=asked.base_url,
                    api_key="sk-benchmark",
                    temperature=0.0,
                    max_tokens=asked.max_tokens,
                )
                return str(answer.choices[0].message.content)
            except Exception as exc:  # litellm has no base class for all of its errors
                errors += 1
                if errors == 1:
                    note(exc)
                return None

    texts = await asyncio.gather(*(ask(number) for number in range(asked.n)))
    meter.report(
        sum(bool(text) for text in texts),
        asked.n,
        packages=(
            "litellm",
            "openai",
        ),
    )


asyncio.run(main())
