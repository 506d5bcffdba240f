"""What real servers answer: recorded once, replayed by the tests.

    python -m tests.support.real_servers llama http://127.0.0.1:8080/v1 "llama.cpp b11549"

asks a server that runs, and records its answers under a name with the version that answered.
`llama` is llama.cpp with a context of 512 tokens, `litellm` LiteLLM's proxy before it with 600
requests a minute, `litellm-anthropic` the same proxy in Anthropic's protocol, `transformers` is
`transformers serve`, `infinity` and `llama-embeddings` answer with embeddings. The address is the
one that claimscore is given. Each is to take the key `sk-right` and to call its model `tiny`.
"""

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
    return {what: Exchange(*reply) for what, reply in servers[name].items()}


def ask(url: str, body: object, key: str | None = KEY) -> Exchange:
    """Send JSON with a key and read the answer, whatever its status."""
    headers = {"anthropic-version": "2026-10-21"} if url.endswith("/messages") else {}
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    reply = httpx2.post(url, json=body, headers=headers, timeout=120)
    names = ("x-ratelimit", "retry-after")
    read = {name: value for name, value in reply.headers.items() if name.startswith(names)}
    return Exchange(reply.status_code, read, reply.text)


def play(name: str, base_url: str) -> dict[str, Exchange]:
    """Ask what can be asked of any server."""
    if name in ("infinity", "llama-embeddings"):
        url, body = f"{base_url}/embeddings", {"model": "tiny", "input": ["the room"]}
        replies = {"answer": ask(url, body), "empty": ask(url, {**body, "input": []})}
        replies["too long"] = ask(url, {**body, "input": ["word " * 6000]})
    else:
        schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
        schema["additionalProperties"] = False
        body = {"model": "tiny", "messages": _question("Is it so?"), "max_tokens": 24}
        if name == "litellm-anthropic":
            url = f"{base_url}/v1/messages"
            output = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
        else:
            url, body = f"{base_url}/chat/completions", {**body, "temperature": 0}
            described = {"name": "a", "schema": schema}
            output = {"response_format": {"type": "json_schema", "json_schema": described}}
        replies = {
            "answer": ask(url, {**body, **output}),
            "cut off": ask(url, {**body, "messages": _question("Tell me a long story.")}),
            "too long": ask(url, {**body, "messages": _question("word " * 6000)}),
            "unknown parameter": ask(url, {**body, "sead": 1}),
        }
        if name != "litellm-anthropic":
            verdict = {"max_tokens": 1, "logprobs": True, "top_logprobs": 5}
            question = _question("Answer with Yes or No: is the sky blue?")
            replies["log-probabilities"] = ask(url, {**body, **verdict, "messages": question})
        replies["unknown model"] = ask(url, {**body, "model": "other"})
    replies["wrong key"] = ask(url, body, "sk-wrong")
    replies["no key"] = ask(url, body, None)
    return replies


def _question(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


if __name__ == "__main__":
    name, base_url, version = sys.argv[1:]
    content = json.loads(RECORDED.read_text("utf-8"))
    content["versions"][name] = version
    content["servers"][name] = play(name, base_url)
    RECORDED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
