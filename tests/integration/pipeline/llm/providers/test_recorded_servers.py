"""What becomes of the answers of real servers, as `support/real_servers.py` recorded them."""

import contextlib
import http.server
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.support.command_line import Command
from tests.support.real_servers import Exchange, recorded

PROMPT = 'name = "so"\nversion = "v1"\nuser = "Is it so? $text"\n[settings]\nmax_tokens = 24\n'
OUTPUT = '[output]\nyes = "boolean"\n'
TOO_LONG = "request (6031 tokens) exceeds the available context size (512 tokens)"


@contextlib.contextmanager
def replaying(exchange: Exchange) -> Iterator[str]:
    """The address of a server that answers everything so."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = exchange.body.encode()
            self.send_response(exchange.status)
            for name, value in {**exchange.headers, "content-length": len(body)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("server", "what", "key", "status", "words"),
    [
        ("llama", "answer", "", 0, "12 answered, 0 failed"),
        ("llama", "cut off", "", 3, "12 failed"),
        ("llama", "too long", "", 2, TOO_LONG),
        ("llama", "wrong key", "sk-wrong", 2, "refused the key (HTTP 401); check OPENAI_API_KEY"),
        ("litellm", "answer", "", 0, "12 answered, 0 failed"),
        ("litellm", "too long", "", 2, TOO_LONG),
        ("litellm", "unknown model", "", 2, "has no model 'tiny'"),
        ("litellm", "wrong key", "sk-wrong", 2, "refused the key (HTTP 400); check OPENAI_API_KEY"),
        ("litellm", "no key", "", 2, "; check the key, --llm, --base-url"),
        ("litellm-anthropic", "answer", "", 3, "12 failed"),  # it leaves the schema out
        ("litellm-anthropic", "too long", "", 2, TOO_LONG),
        ("litellm-anthropic", "unknown model", "", 2, "has no model 'tiny'"),
        ("litellm-anthropic", "wrong key", "sk-wrong", 2, "(HTTP 400); check ANTHROPIC_API_KEY"),
        ("litellm-anthropic", "no key", "", 2, "; check the key, --llm, --base-url"),
        ("transformers", "unknown model", "", 2, "has no model 'tiny'"),
        ("transformers", "unknown parameter", "", 2, "--llm-param and the prompt's [settings]"),
    ],
)
def test_what_a_map_says(
    server: str,
    what: str,
    key: str,
    status: int,
    words: str,
    cli: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "so.toml").write_text(PROMPT + OUTPUT)
    pl.DataFrame({"text": [f"It rained {n} times." for n in range(12)]}).write_csv(
        tmp_path / "t.csv"
    )
    family = "anthropic" if server == "litellm-anthropic" else "openai"
    if key:
        monkeypatch.setenv(f"{family.upper()}_API_KEY", key)
    call = ("map", tmp_path / "t.csv", "--prompt", tmp_path / "so.toml", "--llm", f"{family}:tiny")
    with replaying(recorded(server)[what]) as address:
        where = ("--base-url", f"{address}/v1", "--max-outage-s", "5", "--rpm", "6000")
        reply = cli(*call, "--out", tmp_path / "out.parquet", *where, "--quiet")
    assert (reply.status, words in " ".join((reply.out + reply.err).split())) == (status, True), (
        reply
    )


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("llama", ""),
        ("litellm", ""),
        ("transformers", "the server gave no log-probabilities of the answer"),
    ],
)
def test_a_verdict_of_one_word(server: str, words: str, cli: Command, tmp_path: Path) -> None:
    """Its probability is that of Yes, whatever the case of its letters."""
    exchange = recorded(server)["log-probabilities"]
    (tmp_path / "in.jsonl").write_text('{"id": "a", "source": "It is.", "summary": "It is so."}\n')
    call = ("run", tmp_path / "in.jsonl", "--out", tmp_path / "run", "--metrics", "faithfulness")
    call = (*call, "--units", "sentences", "--verifier", "llm", "--prompt", "verify=minicheck")
    with replaying(exchange) as address:
        cli(*call, "--llm", "builtin", "--llm", f"verify=openai:tiny@{address}/v1", "--quiet")
    if words:
        rows = pl.read_parquet(tmp_path / "run" / "failures")
        assert words in rows["message"].item()
        return
    rows = pl.read_parquet(tmp_path / "run" / "support")
    (place,) = json.loads(exchange.body)["choices"][0]["logprobs"]["content"]
    chances = [
        math.exp(other["logprob"])
        for other in place["top_logprobs"]
        if other["token"].lower() == "yes"
    ]
    assert (rows["verdict"].item(), len(chances)) == ("unmentioned", 2)
    assert rows["probability"].item() == pytest.approx(sum(chances))


@pytest.mark.parametrize(
    ("server", "what", "status", "words"),
    [
        ("infinity", "answer", 0, "32\n"),
        ("infinity", "wrong key", 2, "401"),
        ("infinity", "empty", 2, "422"),
        ("llama-embeddings", "answer", 0, "576\n"),
        ("llama-embeddings", "wrong key", 2, "401"),
        ("llama-embeddings", "too long", 2, "is too large to process"),
    ],
)
def test_what_is_said_of_a_server_of_embeddings(
    server: str, what: str, status: int, words: str, cli: Command
) -> None:
    with replaying(recorded(server)[what]) as address:
        reply = cli("models", "check", f"openai:tiny@{address}", "--role", "embedder")
    assert (reply.status, words in reply.out + reply.err) == (status, True), reply
    assert "tried 3 times" not in reply.err
