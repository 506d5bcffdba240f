"""`papers.claims`: prompts of a model beside each other, in one command."""

import json
from pathlib import Path

import polars as pl
import pytest

from claimscore.types import Completion, Usage
from papers import claims
from tests.fake_server import Body, FakeServer
from tests.support.rated_tables import write_jsonl


async def claims_of(body: Body) -> Completion:
    """Whole texts for v1; for v3 their parts, and one that is ambiguous."""
    text = body["messages"][-1]["content"]
    answer: dict[str, list[str]] = {"claims": [text]}
    if "<text>" in text:
        text = text.partition("<text>")[2].partition(".</text>")[0]
        answer = {"claims": text.split(" and "), "ambiguous": ["He was there."]}
    return Completion(json.dumps(answer), body["model"], "stop", Usage())


def test_prompts_stand_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": "1", "summary": "Bo sat and Al ran.", "claims": ["Bo sat.", "Al ran."]}]
    records = write_jsonl(tmp_path / "rose.jsonl", rows)
    prompts = ("--prompt", "v1", "--prompt", "v3")
    with FakeServer(answer=claims_of) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        models = ("--llm", "builtin", "--llm", "openai:m.1")
        claims.main([str(records), "--out", str(tmp_path / "out"), *models, *prompts])
    systems = pl.read_parquet(tmp_path / "out" / "rose" / "systems.parquet")
    assert systems.select("system", "n_claims", "f1").rows()[:3] == [
        ("builtin", 2, 1.0),
        ("openai-m-1-v1", 1, pytest.approx(2 / 3)),
        ("openai-m-1-v3", 2, 1.0),
    ]
    assert "openai-m-1-v3" in capsys.readouterr().out
