"""What becomes of the answers of real servers, as `support/real_servers.py` recorded them."""

from __future__ import annotations

import contextlib
import http.server
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
    ("server", "what", "key", "status", "said"),
    [
        ("llama", "answer", "", 0, "12 answered, 0 failed"),
        ("llama", "too long", "", 2, TOO_LONG),
        ("llama", "wrong key", "sk-wrong", 2, "refused the key (HTTP 401); check OPENAI_API_KEY"),
        ("litellm", "answer", "", 0, "12 answered, 0 failed"),
        ("litellm", "too long", "", 2, TOO_LONG),
        ("litellm", "unknown model", "", 2, "has no model 'tiny'"),
        ("litellm", "wrong key", "sk-wrong", 2, "No connected db.; check the key, --llm,"),
        ("litellm", "no key", "", 2, "; check the key, --llm, --base-url"),
        ("transformers", "unknown model", "", 2, "has no model 'tiny'"),
        ("transformers", "unknown parameter", "", 2, "--llm-param and the prompt's [settings]"),
    ],
)
def test_what_a_map_says(
    server: str,
    what: str,
    key: str,
    status: int,
    said: str,
    cli: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "so.toml").write_text(PROMPT + OUTPUT)
    pl.DataFrame({"text": [f"It rained {n} times." for n in range(12)]}).write_csv(
        tmp_path / "t.csv"
    )
    if key:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    call = ("map", tmp_path / "t.csv", "--prompt", tmp_path / "so.toml", "--llm", "openai:tiny")
    with replaying(recorded(server)[what]) as address:
        where = ("--base-url", f"{address}/v1", "--max-outage-s", "5", "--rpm", "6000")
        found = cli(*call, "--out", tmp_path / "out.parquet", *where, "--quiet")
    assert (found.status, said in " ".join((found.out + found.err).split())) == (status, True), (
        found
    )


@pytest.mark.parametrize(
    ("what", "status", "said"),
    [("answer", 0, "32 numbers"), ("wrong key", 2, "401"), ("empty", 2, "422")],
)
def test_what_is_said_of_a_server_of_embeddings(
    what: str, status: int, said: str, cli: Command
) -> None:
    with replaying(recorded("infinity")[what]) as address:
        found = cli("models", "check", f"openai:tiny@{address}", "--role", "embedder")
    assert (found.status, said in found.out + found.err) == (status, True), found
