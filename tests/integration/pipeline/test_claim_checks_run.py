"""What checks of the claims found, in everything that a run writes and shows."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.pipeline import model_stage
from claimscore.types import Completion, Usage
from tests.fake_server import Body, FakeServer
from tests.support.command_line import Command
from tests.support.pass_doubles import FakeModel

TEXT = "Spain beat Italy in Rome, and the coach smiled. Great! The room was small."
CLAIMS = {
    "Spain beat Italy in Rome, and the coach smiled.": [
        "Spain beat Italy in Rome.",
        "Spain beat Italy in Rome",
        "This is a small college.",
    ],
    "Great!": [],
    "The room was small.": ["The room was small."],
}
FOUND = {
    "repeat": 1,
    "example_copy": 1,
    "little_overlap": 1,
    "not_entailed": 3,
    "dangling_pronoun": 1,
    "uncovered_words": 0,
    "no_claims": 1,
    "wrong_number": 0,
}


async def claims_of(body: Body) -> Completion:
    """Bad claims: of one text (v1), or of several that are numbered (v2)."""
    lines = body["messages"][-1]["content"].split("\n")
    if not lines[0].startswith("1. "):
        of_all = [claim for claims in CLAIMS.values() for claim in claims]
        answer: Any = {"claims": CLAIMS.get(lines[0], of_all)}
    else:
        texts = enumerate((line.partition(". ")[2] for line in lines), start=1)
        answer = {"answers": [{"text": n, "claims": CLAIMS[text]} for n, text in texts]}
    return Completion(json.dumps(answer), body["model"], "stop", Usage())


@pytest.fixture
def run_at(tmp_path: Path, cli: Command, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run of one record whose side b is side a, with a model whose entailment goes by length."""
    monkeypatch.setattr(model_stage, "load_model", lambda role, config: FakeModel())
    record = {"id": "r", "summary_a": TEXT, "summary_b": "The room was small."}
    (tmp_path / "in.jsonl").write_text(json.dumps(record))

    def call(*options: str) -> tuple[dict[str, Any], Path, str]:
        out = tmp_path / "run"
        with FakeServer(answer=claims_of) as server:
            llm = ("--llm", "openai:m", "--base-url", server.base_url, "--no-model-store")
            arguments = ("run", tmp_path / "in.jsonl", "--out", out, *llm, *options)
            said = cli(*arguments, "--quiet").out
            again = cli(*arguments, "--json").json()
        return again["claim_checks"], out, said

    return call


@pytest.mark.parametrize("prompt", ["v1", "v2"])
def test_a_bad_model_is_seen_everywhere(run_at: Any, cli: Command, prompt: str) -> None:
    counts, out, said = run_at("--metrics", "caspr", "--prompt", f"decompose={prompt}")
    assert counts["found"] == FOUND | (
        {"example_copy": 0, "wrong_number": 1} if prompt == "v2" else {}
    )
    assert (counts["claims"], counts["sentences"]) == (5, 4)
    rows = pl.read_parquet(sorted((out / "claim_checks").glob("*.parquet")))
    assert rows.height == sum(counts["found"].values())
    judged = rows.filter(check="not_entailed")
    assert judged.select("model", "revision", "dtype").unique().rows() == [FakeModel.info]
    assert judged["claim_index"].to_list() == [0, 1, 2], "of the sentence that was split"
    (warning,) = counts["warnings"]
    assert warning.startswith("3 of 5 claims are not entailed by their sentence: ")
    assert warning in " ".join(said.split())
    assert warning in " ".join(cli("status", out).out.split())
    assert cli("status", out, "--json").json()["claim_checks"] == counts
    assert warning in (out / "report.html").read_text(encoding="utf-8")


def test_whole_texts_are_checked_too(run_at: Any) -> None:
    """A claim is compared with the text that it was made of, and no NLI model is loaded for it."""
    counts, out, _ = run_at("--granularity", "summary", "--metrics", "ds", "--tasks", "decompose")
    expected = {**FOUND, "little_overlap": 0, "no_claims": 0}
    del expected["not_entailed"]
    assert counts["found"] == expected
    rows = pl.read_parquet(sorted((out / "claim_checks").glob("*.parquet")))
    assert rows["sentence_index"].null_count() == rows.height


def test_sentences_in_the_place_of_claims_are_not_checked(run_at: Any) -> None:
    counts, out, said = run_at("--units", "sentences", "--metrics", "caspr")
    assert counts is None
    assert "\nclaims " not in said
    assert not (out / "claim_checks").exists()
