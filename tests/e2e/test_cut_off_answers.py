"""A run and a map over a server that cuts answers off: more tokens, the same rows, one bill."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from claimscore.cache.store import DiskCache
from claimscore.config import user_cache_dir
from tests.fake_server import FakeServer
from tests.support.command_line import claimscore, table
from tests.support.prompt_files import prompt_file
from tests.support.rated_tables import write_jsonl

LINES = [
    {"id": f"r{i}", "summary": f"Room {i} is clean and quiet. Floor {i} is loud."} for i in (1, 2)
]


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "records.jsonl"
    return write_jsonl(path, LINES)


def beds(tmp_path: Path, n: int) -> Path:
    """Records of one sentence each."""
    path = tmp_path / f"{n}.jsonl"
    lines = ({"id": f"x{i}", "summary": f"Bed {i} is hard."} for i in range(n))
    return write_jsonl(path, lines)


def prompt(tmp_path: Path, settings: str) -> Path:
    """Our `decompose` with settings of its own."""
    path = tmp_path / "prompts" / "decompose" / "v7.toml"
    return prompt_file(path, "decompose=v1", f"[settings]\n{settings}\n")


def decompose(server: FakeServer, records: Path, out: Path, file: Path, *more: object) -> int:
    options = ("--metrics", "", "--tasks", "decompose", "--prompt", f"decompose={file}")
    call = ("run", records, "--out", out, *options, "--llm", "openai:m")
    return claimscore(*call, "--base-url", server.base_url, *more)


def asked(server: FakeServer) -> Counter[int]:
    return Counter(body["max_tokens"] for body in server.bodies)


def test_a_run_asks_again_with_more_tokens(records: Path, tmp_path: Path, capsys: Any) -> None:
    """Rows have the key of the answer that was used; another run on the cache sends nothing, and
    an estimate counts with as many tries a question."""
    file = prompt(tmp_path, "max_tokens = 16")
    with FakeServer(completion_tokens=40) as server:
        assert decompose(server, records, tmp_path / "one", file) == 0
        assert asked(server) == {16: 4, 32: 4, 64: 4}
        assert decompose(server, records, tmp_path / "two", file) == 0
        assert server.n_requests == 12
        assert decompose(server, beds(tmp_path, 30), tmp_path / "three", file) == 0
        call = ("estimate", beds(tmp_path, 45), "--metrics", "", "--tasks", "decompose")
        options = ("--prompt", f"decompose={file}", "--llm", "openai:m")
        capsys.readouterr()
        assert claimscore(*call, *options, "--base-url", server.base_url) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "decompose 45 30 45 " in said  # questions, answered, requests: three each
    assert "3.00 tries a question as so far" in said
    claims = table(tmp_path / "one", "claims")
    assert claims.equals(table(tmp_path / "two", "claims"))
    cache = DiskCache(user_cache_dir())
    stored = cache.get_many(claims["request_key"].to_list())
    cache.close()
    assert set(stored) == set(claims["request_key"])
    assert {entry.completion.finish_reason for entry in stored.values()} == {"stop"}
