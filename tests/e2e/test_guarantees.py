"""Guarantees that only a whole run can show; the tests named in guarantees.md exist."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from tests.fake_server import FakeServer, text_answer
from tests.support.command_line import claimscore

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation/guarantees.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
KEY = "sk-made-up-key-0123456789"


@cache
def _tests_of(file: Path) -> frozenset[str]:
    """`test_a` and `TestGroup::test_a` for all tests that a file defines."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + member.name)
    return frozenset(found)


@pytest.mark.parametrize(
    "named", sorted(set(re.findall(r"`(tests/[^`]+::[^`]+)`", PAGE + BENCHMARKS)))
)
def test_a_named_test_is_there(named: str) -> None:
    file, _, test = named.partition("::")
    assert (ROOT / file).exists(), f"{file} is gone: correct the page that names it"
    assert test in _tests_of(ROOT / file), f"{test} is gone: correct the page that names it"


def test_every_row_to_reach_names_its_tests() -> None:
    figures, _, tests = BENCHMARKS.partition("## Tests of the figures")
    asked = figures.split("| row | what | to reach")[1:]
    rows = {name for part in asked for name in _first_cells(part.partition("\n\n")[0])}
    assert len(rows) > 30
    assert rows - _first_cells(tests) == set()


def _first_cells(table: str) -> set[str]:
    cells = re.findall(r"^[|-] (`[^|:]+`)", table, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def _records(path: Path, *ids: str) -> Path:
    texts = {"summary_a": "The room is clean.", "summary_b": "The room is loud."}
    path.write_text("".join(json.dumps({"id": i, **texts}) + "\n" for i in ids), encoding="utf-8")
    return path


def test_a_key_is_in_no_file_and_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path / "state"))
    records, out = _records(tmp_path / "records.jsonl", "1"), tmp_path / "run"
    answer = text_answer(json.dumps({"claims": [f"The key is {KEY}."]}))
    with FakeServer(answer=answer, key=KEY) as server:
        llm = ("--llm", "openai:m", "--base-url", server.base_url)
        run = ("run", records, "--out", out, "--metrics", "", "--tasks", "decompose", *llm)
        assert claimscore(*run) == 0
        assert server.n_requests
        monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}-wrong")
        assert claimscore(*run[:3], tmp_path / "refused", *run[4:], "--cache-namespace", "n") == 2
    told = capfd.readouterr()
    assert KEY not in told.out + told.err
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
        if path.suffix == ".parquet":
            assert KEY not in json.dumps(pl.read_parquet(path).to_dicts(), default=str), path


def test_an_id_is_never_a_path(tmp_path: Path) -> None:
    """Names of files come from us alone: ids that look like paths write nothing elsewhere."""
    ids = ("../escaped", "/tmp/escaped", "a/b", "..", "nul\x01escaped")
    records, out = _records(tmp_path / "records.jsonl", *ids), tmp_path / "runs" / "run"
    arguments = ("--metrics", "ds", "--cache-dir", tmp_path / "cache", "--quiet")
    assert claimscore("run", records, "--out", out, *arguments) == 0
    assert pl.read_parquet(out / "scores.parquet")["id"].to_list() == list(ids)
    assert not [path for path in tmp_path.rglob("*") if "escaped" in path.name]
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"run"}


def test_a_named_namespace_finds_the_answers_at_another_address(tmp_path: Path) -> None:
    """Without a name another address is asked anew."""
    records = _records(tmp_path / "records.jsonl", "1")

    def requests(out: str, *options: object) -> int:
        with FakeServer() as server:
            llm = ("--llm", "openai:m", "--base-url", server.base_url, *options)
            task = ("--metrics", "", "--tasks", "decompose", "--cache-dir", tmp_path / "cache")
            assert claimscore("run", records, "--out", tmp_path / out, *task, *llm) == 0
            return server.n_requests

    assert requests("first", "--cache-namespace", "mine") == 2
    assert requests("second", "--cache-namespace", "mine") == 0
    assert requests("third") == 2
