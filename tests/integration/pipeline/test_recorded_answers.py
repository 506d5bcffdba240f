"""What a run says of the claims of a small model: recorded answers of one, on the fake server."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from claimscore.types import Completion, Usage
from tests.fake_server import Body, FakeServer, builtin_answer
from tests.support.command_line import Command

RECORDED = json.loads(Path(__file__).with_name("recorded_answers.json").read_text("utf-8"))
EXAMPLES = Path("examples/hotels.jsonl").resolve()


def test_claims_under_wrong_numbers_are_asked_for_again(tmp_path: Path, cli: Command) -> None:
    """Only the sentences that an answer left out, or gave claims of another, are asked alone."""
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()[:3]
    (tmp_path / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    out, asked = tmp_path / "run", list[str]()

    async def answer(body: Body) -> Completion:
        asked.append(body["messages"][-1]["content"])
        if asked[-1] not in RECORDED["v2"]:
            return await builtin_answer(body)
        return Completion(RECORDED["v2"][asked[-1]], body["model"], "stop", Usage())

    with FakeServer(answer=answer) as server:
        llm = ("--llm", "openai:m", "--base-url", server.base_url, "--max-concurrency", "1")
        task = ("--metrics", "", "--tasks", "decompose", "--prompt", "decompose=v2")
        call = ("run", tmp_path / "in.jsonl", "--out", out, *llm, *task)
        said = " ".join(cli(*call, "--quiet").out.split())
        summary = cli(*call, "--json").json()
    alone = [text.removeprefix("1. ") for text in asked if "\n" not in text]
    assert sorted(alone) == [
        "Breakfast is included in the price.",
        "Breakfast is not included in the price.",
        "Guests find the rooms tidy and free of noise.",
        "The employees are kind.",
        "The hotel is close to the beach, but far away from the airport.",
        "The pool is large and heated.",
        "The rooftop bar has a great view.",
        "The rooms are clean and quiet.",
        "The rooms are not clean and not quiet.",
        "The staff is friendly.",
        "The staff is not friendly.",
        "There is no pool.",
    ]
    rows = pl.read_parquet(sorted((out / "claim_checks").glob("*.parquet")))
    wrong = rows.filter(check="wrong_number").select("id", "side", "sentence_index").rows()
    assert wrong == [
        ("hotel-paraphrase", "a", 0),
        ("hotel-negated", "a", 0),
        ("hotel-negated", "b", 0),
        ("hotel-contrast", "a", 0),
    ]
    assert summary["claim_checks"]["found"]["wrong_number"] == 4
    assert "4 of 17 sentences had claims of another sentence in an answer about several" in said
    assert len(asked) == len(set(asked)), "no answer was paid twice"
    claims = pl.read_parquet(sorted((out / "claims").glob("*.parquet")))
    assert claims.filter(id="hotel-paraphrase", side="a", sentence_index=0)["text"].to_list() == [
        "The rooms are clean.",
        "The rooms are quiet.",
    ]
