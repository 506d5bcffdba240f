"""Servers of OpenAI's protocol as PyPI has them: `pytest -m servers` (see CONTRIBUTING.md)."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from claimscore.pipeline.llm.providers.errors import read_refusal, translate_error
from tests.support.command_line import Command
from tests.support.real_servers import KEY, Exchange, RealServer, play, recorded, started

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

PROMPT = """
name = "story"
version = "v1"
user = "Write a story about this: $text"
[settings]
max_tokens = 64
max_tokens_limit = 64
[output]
story = "string"
"""


def meaning(exchange: Exchange) -> str:
    """An answer, or the error that a refusal is."""
    if exchange.status < 300:
        return "answer"
    refusal = read_refusal(exchange.status, exchange.headers, exchange.body.encode())
    return type(translate_error(refusal, base_url="https://x", model="tiny")).__name__


@pytest.mark.parametrize("name", ["llama", "litellm", "infinity"])
def test_a_server_still_answers_as_it_was_recorded(name: str, tmp_path: Path) -> None:
    with started(name, tmp_path) as server:
        found = play(server)
    assert {what: meaning(each) for what, each in found.items()} == {
        what: meaning(each) for what, each in recorded(name).items()
    }


@pytest.fixture
def llama(tmp_path: Path) -> Iterator[RealServer]:
    with started("llama", tmp_path) as server:
        yield server


def test_a_run_in_front_of_llama(
    llama: RealServer, tmp_path: Path, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong keys, a context that is too small, time limits, and a server that is killed midway."""
    (tmp_path / "story.toml").write_text(PROMPT)
    texts = [f"It rained for {n} days." for n in range(24)]
    pl.DataFrame({"text": texts}).write_csv(tmp_path / "t.csv")
    pl.DataFrame({"text": ["word " * 700]}).write_csv(tmp_path / "long.csv")
    options = ("--prompt", tmp_path / "story.toml", "--llm", "openai:tiny", "--quiet")
    where = ("--base-url", llama.base_url, "--max-concurrency", "1", "--max-outage-s", "4")

    def call(table: str, *more: str) -> tuple[object, ...]:
        return (
            "map",
            tmp_path / table,
            "--out",
            tmp_path / f"{table}.parquet",
            *options,
            *where,
            *more,
        )

    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    refused = cli(*call("t.csv"))
    assert (refused.status, "refused the key (HTTP 401)" in refused.err) == (2, True)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    long = cli(*call("long.csv"))
    assert (long.status, "tokens are too many for the model, which" in long.err) == (2, True)
    late = cli(*call("t.csv", "--timeout-s", "0.02"))
    assert (late.status, "--timeout-s may be too short" in late.err) == (75, True)

    table = tmp_path / "t.csv.parquet"
    command = [sys.executable, "-m", "claimscore", *map(str, call("t.csv"))]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    before = time.monotonic()
    while cli("status", table, "--json").json()["rows"]["done"] < 2:
        assert time.monotonic() - before < 120
        time.sleep(0.5)
    llama.kill()
    _, said = running.communicate(timeout=120)
    assert (running.returncode, "run the same command to go on" in said) == (75, True), said
    threading.Thread(target=llama.start).start()
    done = cli(*call("t.csv", "--max-outage-s", "120"))
    assert done.status in (0, 3), done
    assert pl.read_parquet(table)["text"].to_list() == texts
