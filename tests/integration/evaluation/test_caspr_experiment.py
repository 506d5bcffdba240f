"""`claimscore evaluate caspr` from end to end, on made-up records and a random NLI model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore.cli import main
from claimscore.evaluation.caspr_experiment import COMPARISONS
from claimscore.metrics.ds import distinctiveness
from claimscore.types import Completion
from tests.fake_server import Body, FakeServer, builtin_answer
from tests.support.rated_tables import write_jsonl
from tests.support.tiny_models import save_tiny_nli

RECORDS: list[dict[str, Any]] = [
    {
        "id": "x",
        "entity_a_summary": ["The hotel is clean. The staff was good.", "A clean hotel."],
        "entity_b_summary": ["The pool was warm and the food was good.", "Warm pool."],
    },
    {
        "id": "y",
        "entity_a_summary": ["The room was quiet. It is near the beach.", "Quiet rooms."],
        "entity_b_summary": ["The staff was rude. The bed was hard."],
        "syn_high_contrast": "The room was loud. It is far from the beach.",
    },
    {
        "id": "z",
        "entity_a_summary": ["The bar is big. The city is near.", "A big bar near the city."],
        "entity_b_summary": ["Breakfast was cold and expensive."],
        "syn_low_contrast": "The bar is large. The city is close.",
        "syn_high_contrast": "The bar is small. The city is far away.",
        "paraphrase_a": "There is a large bar. The city is close.",
        "paraphrase_b": "The breakfast was costly and not warm.",
    },
]
DS_ONLY = ("--metrics", "ds", "--samples", "50", "--quiet")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "records.jsonl", RECORDS)


def evaluate(*arguments: object) -> int:
    return main(["evaluate", "caspr", *map(str, arguments)])


def pairs(out: Path) -> pl.DataFrame:
    return pl.read_ndjson(out / "comparisons.jsonl")


def scores(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "pairs.parquet")


def test_from_records_to_tables(records: Path, tmp_path: Path, capsys: Any):
    out = tmp_path / "out"
    nli = save_tiny_nli(tmp_path / "nli")
    options = ("--metrics", "caspr,ds", "--units", "sentences", "--nli", nli, "--samples", "50")
    assert evaluate(records, "--out", out, *options, "--quiet") == 0
    text = capsys.readouterr().out
    found = scores(out)
    assert found["comparison"].to_list() == [name for name in COMPARISONS for _ in range(6)]
    assert found["value"].null_count() == 0
    means = pl.read_parquet(out / "means.parquet")
    assert means.height == 10
    row = means.row(
        by_predicate=pl.col("metric").eq("ds") & pl.col("comparison").eq("syn_high"), named=True
    )
    of_comparison = found.filter(metric="ds", comparison="syn_high")["value"]
    assert row["mean"] == pytest.approx(of_comparison.mean())
    assert (row["n"], row["published_mean"], row["published_half_width"]) == (3, 44.5, 1.6)
    for row in pairs(out).iter_rows(named=True):
        expected = distinctiveness([row["summary_a"], row["summary_b"]])
        name, pair = row["id"].split("/")
        assert found.filter(metric="ds", comparison=name, pair=pair)["value"].item() == expected
    for words in ("44.5 ± 1.6", "published ρ", "7 texts made by builtin"):
        assert words in text
    html = (out / "caspr.html").read_text(encoding="utf-8")
    assert 'href="run/report.html"' in html
    assert "claimscore evaluate caspr" in html
    page = (out / "caspr.md").read_text(encoding="utf-8")
    assert "| reference contrastive |" in page
    assert "- ds: `ds|v1|" in page
    assert "y" in (out / "run" / "report.html").read_text(encoding="utf-8")


def test_what_is_made(records: Path, tmp_path: Path):
    out = tmp_path / "out"
    assert evaluate(records, "--out", out, *DS_ONLY) == 0
    asked = [pl.read_ndjson(out / f"{name}.jsonl")["id"] for name in ("paraphrases", "negations")]
    assert [ids.to_list() for ids in asked] == [["x/a", "x/b", "y/a", "y/b"], ["x/a"]]
    text = dict(pairs(out).select("id", "summary_b").iter_rows())
    assert text["syn_high/x"] == "The hotel is dirty. The staff was bad."
    assert text["syn_high/y"] == RECORDS[1]["syn_high_contrast"]
    assert text["syn_contrast/z"] == RECORDS[2]["paraphrase_b"]
    rows = pl.read_parquet(sorted((out / "paraphrases" / "paraphrases").glob("*.parquet")))
    sentences = rows.filter(id="x/a").sort("sentence_index")["text"].to_list()
    assert len(sentences) == 2
    assert text["syn_low/x"] == " ".join(sentences) != RECORDS[0]["entity_a_summary"][0]


def test_stopped_and_resumed(records: Path, tmp_path: Path, capsys: Any):
    with FakeServer() as server:
        llm = ("--llm", "openai:m", "--base-url", server.base_url, "--max-concurrency", "1")
        first, second = tmp_path / "first", tmp_path / "second"
        n_paraphrases = 7
        limit = ("--max-requests", str(n_paraphrases + 1))
        assert evaluate(records, "--out", first, *DS_ONLY, *llm, *limit) == 75
        assert "--max-requests 1 is used up" in capsys.readouterr().err
        assert server.n_requests == n_paraphrases + 1
        assert not (first / "run").exists()
        assert evaluate(records, "--out", first, *DS_ONLY, *llm) == 0
        assert max(server.contents.values()) == 1
        asked = server.n_requests
        assert evaluate(records, "--out", first, *DS_ONLY, *llm) == 0
        assert server.n_requests == asked
    assert evaluate(records, "--out", second, *DS_ONLY) == 0
    assert scores(first).equals(scores(second))


def test_a_text_that_cannot_be_made(records: Path, tmp_path: Path, capsys: Any):
    rubbish = {"on": True}

    async def answer(body: Body) -> Completion:
        if rubbish["on"] and "rude" in body["messages"][-1]["content"]:
            return Completion(text="no", model="m")
        return await builtin_answer(body)

    out = tmp_path / "out"
    with FakeServer(answer=answer) as server:
        llm = ("--llm", "openai:m", "--base-url", server.base_url)
        assert evaluate(records, "--out", out, *DS_ONLY, *llm) == 75
        error = capsys.readouterr().err
        assert "1 pairs lack a text, e.g. record 'y': paraphrase_b could not be made" in error
        assert "--drop-missing" in error
        other = tmp_path / "other"
        assert evaluate(records, "--out", other, *DS_ONLY, *llm, "--drop-missing") == 3
        text = capsys.readouterr().out
        assert "1 pairs left out" in text
        assert "syn_contrast/y" not in pairs(other)["id"]
        assert pl.read_parquet(other / "rho.parquet")["n"].to_list() == [2]
        rubbish["on"] = False
        assert evaluate(records, "--out", out, *DS_ONLY, *llm, "--retry-failed") == 0
    assert pairs(out).height == 15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--metrics", ""), "name --metrics"),
        (("--samples", "1"), "--samples must be at least 2"),
        (("--metrics", "ds,summac-zs"), "summac-zs needs the column source"),
    ],
)
def test_wrong_settings(
    records: Path, tmp_path: Path, arguments: tuple[str, ...], message: str, capsys: Any
):
    assert evaluate(records, "--out", tmp_path / "out", *arguments, "--quiet") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
