"""What real servers of OpenAI's protocol answer: recorded once, replayed by the tests.

    python -m tests.support.real_servers llama http://127.0.0.1:8080/v1

asks a server that runs, and records its answers under a name. `llama` is llama.cpp with a context
of 512 tokens, `litellm` LiteLLM's proxy before it with 600 requests a minute, `transformers` is
`transformers serve` (all with /v1 in the address), `infinity` infinity's embeddings (without). Each
is to take the key `sk-right` and to call its model `tiny`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import httpx2

RECORDED = Path(__file__).with_name("recorded_servers.json")
KEY = "sk-right"


class Exchange(NamedTuple):
    """What a server answered: its status, the headers that we read, its body."""

    status: int
    headers: Mapping[str, str]
    body: str


def recorded(name: str) -> dict[str, Exchange]:
    """What a server answered when it was recorded, by what it was asked."""
    servers = json.loads(RECORDED.read_text(encoding="utf-8"))["servers"]
    return {what: Exchange(*found) for what, found in servers[name].items()}


def ask(url: str, body: object, key: str | None = KEY) -> Exchange:
    """Send JSON with a key and read the answer, whatever its status."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    reply = httpx2.post(url, json=body, headers=headers, timeout=60)
    names = ("x-ratelimit", "retry-after")
    read = {name: value for name, value in reply.headers.items() if name.startswith(names)}
    return Exchange(reply.status_code, read, reply.text)


def play(name: str, base_url: str) -> dict[str, Exchange]:
    """Ask what can be asked of any server."""
    if name == "infinity":
        url, body = f"{base_url}/embeddings", {"model": "tiny", "input": ["the room"]}
        found = {"answer": ask(url, body), "empty": ask(url, {**body, "input": []})}
    else:
        url = f"{base_url}/chat/completions"
        schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
        output = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        body = {"model": "tiny", "messages": _said("Is it so?"), "max_tokens": 24, "temperature": 0}
        found = {
            "answer": ask(url, {**body, "response_format": output}),
            "too long": ask(url, {**body, "messages": _said("word " * 6000)}),
            "unknown parameter": ask(url, {**body, "sead": 1}),
        }
    found["unknown model"] = ask(url, {**body, "model": "other"})
    found["wrong key"] = ask(url, body, "sk-wrong")
    found["no key"] = ask(url, body, None)
    return found


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


if __name__ == "__main__":
    name, base_url = sys.argv[1:]
    content = json.loads(RECORDED.read_text("utf-8"))
    content["servers"][name] = play(name, base_url)
    RECORDED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
