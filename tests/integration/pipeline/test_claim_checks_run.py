"""What checks of the claims found, in everything that a run writes and shows."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.pipeline import model_stage
from claimscore.runs import RunDirectory
from claimscore.types import Completion, Usage
from tests.fake_server import Body, FakeServer
from tests.support.command_line import Command
from tests.support.pass_doubles import FakeModel
from tests.support.report_pages import Page

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
    "ambiguous": 0,
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
            said = cli(*arguments).out
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


HE = "He left early. Bo met Al, who is old."
V3 = {
    "Bo met Al, who is old.": {"claims": ["Bo met Al.", "Al is old."], "ambiguous": []},
    "He left early.": {"claims": [], "ambiguous": ["He left early.", "He left."]},
    "It rains.": {"claims": [], "ambiguous": ["It rains."]},
    "Bo left.": {"claims": ["Bo left."], "ambiguous": []},
    "Al sang.": {"claims": ["Al sang."], "ambiguous": []},
    "He left.": {"claims": ["Al left."], "ambiguous": []},
}


async def claims_of_v3(body: Body) -> Completion:
    text = body["messages"][-1]["content"].partition("<text>")[2].partition("</text>")[0]
    return Completion(json.dumps(V3[text]), body["model"], "stop", Usage())


def test_ambiguous_claims_are_shown_and_do_not_count(
    tmp_path: Path, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_stage, "load_model", lambda role, config: FakeModel())
    records, out = tmp_path / "in.jsonl", tmp_path / "run"
    texts = {"r1": (HE, "Bo left."), "r2": ("It rains.", "Bo left."), "r3": ("It rains.", "")}
    texts["r4"] = ("Al sang. He left.", "")
    rows = [{"id": i, "summary_a": a, "summary_b": b} for i, (a, b) in texts.items()]
    records.write_text("\n".join(map(json.dumps, rows)))
    with FakeServer(answer=claims_of_v3) as server:
        llm = ("--llm", "openai:m", "--base-url", server.base_url, "--prompt", "decompose=v3")
        cli("run", records, "--out", out, "--metrics", "caspr", *llm, "--no-model-store")
    run = RunDirectory.reader(out)
    claims = run.scan("claims").collect()
    assert claims.filter(id="r1", side="a").select("claim_index", "text", "left_out").rows() == [
        *((0, "He left early.", "ambiguous"), (1, "He left.", "ambiguous")),
        *((0, "Bo met Al.", None), (1, "Al is old.", None)),
    ]
    counts = cli("status", out, "--json").json()["claim_checks"]
    marked = {check: n for check, n in counts["found"].items() if n}
    assert marked == {"ambiguous": 4, "not_entailed": 3}
    assert "4 of 10 claims are ambiguous and have no part in the scores" in counts["warnings"][1]
    assert counts["sentences"] == 8, "none is without claims"
    completed = run.scan("claim_checks").filter(id="r4").select("check", "value").collect()
    length = pytest.approx(len("Al sang. He left.") / 100)
    assert completed.rows() == [("not_entailed", length)], "judged among the neighbours"
    pairs = run.scan("nli").collect()
    assert set(pairs["id"]) == {"r1"}
    assert set(zip(pairs["premise_side"], pairs["premise_index"], strict=True)) == {
        *(("a", 0), ("a", 1), ("b", 0))
    }
    reasons = dict(pl.read_parquet(out / "scores.parquet").select("id", "reason").iter_rows())
    why = "all claims of summary_a are ambiguous: 1 of 1"
    blank = "no text in summary_b"
    assert reasons == {"r1": None, "r2": why, "r3": blank, "r4": blank}
    shown = " ".join(cli("status", out, "--record", "r1").out.split())
    left_out = "claim of summary_a He left. ambiguous: left out of the scores"
    assert f"{left_out} claim of summary_a Bo met Al." in shown
    of_record = cli("status", out, "--record", "r1", "--json").json()["claims"]
    verdicts = [(row["left_out"], row["verdict"]) for row in of_record]
    assert verdicts[:2] == [("ambiguous", None)] * 2
    assert all(left_out is None and verdict for left_out, verdict in verdicts[2:])
    page = Page((out / "report.html").read_text(encoding="utf-8"))
    side = page.details()[0]["sides"][0]
    assert side["segments"] == [["He left early.", [2, 3]], ["Bo met Al, who is old.", [0, 1]]]
    few = ["not entailed by its sentence (entailment 0.22)"]
    left_out = ["ambiguous: left out of the scores"]
    assert side["marks"] == {"0": few, "1": few, "2": left_out, "3": left_out}


def test_sentences_in_the_place_of_claims_are_not_checked(run_at: Any) -> None:
    counts, out, said = run_at("--units", "sentences", "--metrics", "caspr")
    assert counts is None
    assert "\nclaims " not in said
    assert not (out / "claim_checks").exists()
