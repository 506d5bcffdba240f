"""What a run says of the claims of a small model: recorded answers of one, on the fake server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.types import Completion, Usage
from tests.fake_server import Body, FakeServer, builtin_answer
from tests.support.command_line import Command

RECORDED = json.loads(Path(__file__).with_name("recorded_answers.json").read_text("utf-8"))
EXAMPLES = Path("examples/hotels.jsonl").resolve()


def run_recorded(tmp_path: Path, cli: Command, prompt: str, n_records: int) -> tuple[Any, ...]:
    """The run's summary, what it printed, its folder, and the questions, each with its answer."""
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()[:n_records]
    (tmp_path / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    asked: list[str] = []

    async def answer(body: Body) -> Completion:
        asked.append(body["messages"][-1]["content"])
        if prompt == "v2" and asked[-1] not in RECORDED["v2"]:
            return await builtin_answer(body)
        return Completion(RECORDED[prompt][asked[-1]], body["model"], "stop", Usage())

    with FakeServer(answer=answer) as server:
        llm = ("--llm", "openai:m", "--base-url", server.base_url, "--max-concurrency", "1")
        task = ("--metrics", "", "--tasks", "decompose", "--prompt", f"decompose={prompt}")
        call = ("run", tmp_path / "in.jsonl", "--out", tmp_path / "run", *llm, *task)
        said = " ".join(cli(*call, "--quiet").out.split())
        summary = cli(*call, "--json").json()
    return summary, said, tmp_path / "run", asked


def test_a_small_model_is_seen_through(tmp_path: Path, cli: Command) -> None:
    """Of 126 claims a third are repeats, 8 copies of examples, a fifth about something else."""
    summary, said, out, _ = run_recorded(tmp_path, cli, "v1", 8)
    checks = summary["claim_checks"]
    assert (checks["claims"], checks["sentences"]) == (126, 39)
    counts = {"repeat": 39, "example_copy": 8, "little_overlap": 25, "dangling_pronoun": 3}
    assert counts.items() <= checks["found"].items()
    rows = pl.read_parquet(sorted((out / "claim_checks").glob("*.parquet")))
    assert counts.items() <= dict(rows["check"].value_counts().iter_rows()).items()
    for n, name in ((39, "repeat another claim"), (8, "copy an example"), (25, "share less than")):
        assert f"warning {n} of 126 claims {name}" in said
    copied = rows.filter(check="example_copy").join(
        pl.read_parquet(sorted((out / "claims").glob("*.parquet"))),
        on=["id", "side", "sentence_index", "claim_index"],
    )
    assert "This is a small college." in copied["text"].to_list()


def test_claims_under_wrong_numbers_are_asked_for_again(tmp_path: Path, cli: Command) -> None:
    """Only the sentences that an answer left out, or gave claims of another, are asked alone."""
    summary, said, out, asked = run_recorded(tmp_path, cli, "v2", 3)
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
