"""Bespoke Curator over a list of rows, with the limits that it was told of."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from common import MODEL, Meter, messages, note, options

_litellm = importlib.util.find_spec("litellm")
assert _litellm is not None
assert _litellm.origin is not None
#: It counts tokens with tiktoken, which would download its tables; litellm ships them.
_TABLES = Path(_litellm.origin).parent / "litellm_core_utils" / "tokenizers"
os.environ |= {
    "TIKTOKEN_CACHE_DIR": str(_TABLES),
    "TELEMETRY_ENABLED": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_API_KEY": "sk-benchmark",
    "HF_HUB_OFFLINE": "1",
}
asked = options()
os.environ["CURATOR_CACHE_DIR"] = str(asked.work)

from bespokelabs import curator  # noqa: E402  # it reads the environment now


class Splitter(curator.LLM):  # type: ignore[misc]  # no types
    """The question comes with the row."""

    def prompt(self, input: dict[str, Any]) -> list[dict[str, str]]:
        return list(input["messages"])

    def parse(self, input: dict[str, Any], response: str) -> dict[str, Any]:
        return {"number": input["number"], "text": response}


def main() -> None:
    meter = Meter()
    known = (10**7, 10**10) if asked.unlimited else (asked.rpm, asked.tpm)
    names = ("max_requests_per_minute", "max_tokens_per_minute")
    limits = {name: int(value) for name, value in zip(names, known, strict=True) if value}
    llm = Splitter(
        model_name=MODEL,
        backend="openai",
        generation_params={"temperature": 0.0, "max_tokens": asked.max_tokens},
        backend_params={
            "base_url": asked.base_url,
            "max_concurrent_requests": asked.concurrency,
            "require_all_responses": False,
            **limits,  # else it takes them from headers, or 200 a minute
        },
    )
    rows = [
        {"number": number, "messages": messages(number, asked.system)} for number in range(asked.n)
    ]
    answered = 0
    try:
        response = llm(rows)
        answered = len(getattr(response, "dataset", response))
    except Exception as exc:  # it raises ValueError where everything failed
        note(exc)
    meter.report(
        answered,
        asked.n,
        packages=(
            "bespokelabs-curator",
            "litellm",
        ),
    )


main()
