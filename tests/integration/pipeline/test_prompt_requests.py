"""Metrics that ask with prompts of their own, on the fake server."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.cli import main
from claimscore.types import Completion
from tests.fake_server import Body, FakeServer, plain_answer
from tests.support.prompt_files import prompt_file
from tests.unit.pipeline.test_llm_stage import SENTENCES, samples_prompt


def test_an_estimate_says_what_will_be_sent(tmp_path: Path, capsys: Any) -> None:
    records = tmp_path / "in.jsonl"
    records.write_text(json.dumps({"summary_a": " ".join(SENTENCES), "summary_b": "It is."}))
    settings = "[settings]\nsamples = 2\ntexts_per_request = 4\n"
    path = prompt_file(tmp_path / "mine.toml", "paraphrase=v2", settings)

    async def forgetful(body: Body) -> Completion:
        said = await plain_answer(body)
        answers = json.loads(said.text)["answers"]
        kept = answers[1:] if len(answers) == 4 else answers
        return Completion(json.dumps({"answers": kept}), "m", usage=said.usage)

    with FakeServer(answer=forgetful) as server:
        call = (str(records), "--metrics", "", "--tasks", "paraphrase", "--llm", "openai:m")
        more = ("--base-url", server.base_url, "--prompt", f"paraphrase={path}")

        def estimated() -> tuple[int, int]:
            assert main(["estimate", *call, *more, "--json"]) == 0
            total = json.loads(capsys.readouterr().out.splitlines()[-1])["total"]
            return total["requests"], total["answered"]

        assert estimated() == (8, 0)  # 4 + 4 + 2 sentences and one, two samples each
        stop = ("--max-requests", "8")
        code = main(["run", *call, *more, "--out", str(tmp_path / "a"), *stop, "--quiet"])
        assert (code, server.n_requests) == (75, 8)
        assert estimated() == (4, 8)  # of each list of four one is left
        assert main(["run", *call, *more, "--out", str(tmp_path / "b"), "--quiet"]) == 0
        assert server.n_requests == 12
        assert estimated() == (0, 12)
        rows = pl.read_parquet(tmp_path / "b" / "paraphrases" / "*.parquet")
        assert rows.select("side", "sentence_index", "sample").rows() == [
            *(("a", n, sample) for n in range(10) for sample in range(2)),
            *(("b", 0, sample) for sample in range(2)),
        ]


def test_a_judge_of_several_samples_is_their_mean(tmp_path: Path) -> None:
    records = tmp_path / "in.jsonl"
    records.write_text(json.dumps({"summary": "A kettle.", "source": "It boils."}))
    path = samples_prompt(tmp_path, "judge", 4)
    grades = iter([5, 1, 2, 2, 4, 4, 4, 4, 1, 1, 1, 1, 3, 3, 3, 9, 9, 9])

    async def answer(body: Body) -> Completion:
        return Completion(json.dumps({"score": next(grades)}), "m")

    with FakeServer(answer=answer) as server:
        options = ("--llm", "openai:m", "--base-url", server.base_url, "--max-concurrency", "1")
        call = ("run", str(records), "--out", str(tmp_path / "a"), "--metrics", "llm-judge,")
        names = ",".join(f"llm-judge:dimension={d}" for d in ("coherence", "relevance"))
        call = (*call[:-1], names, "--prompt", f"judge={path}", "--quiet")
        assert main([*call, *options]) == 3
    scores = pl.read_parquet(tmp_path / "a" / "scores.parquet")
    coherence, relevance = scores.to_dicts()
    assert coherence["value"] == 2.5
    parts = json.loads(coherence["components"])["coherence"]
    assert [sample["score"] for sample in parts["samples"]] == [5, 1, 2, 2]
    assert relevance["value"] is None
    assert "sample 3: the score must be from 1 to 5" in relevance["reason"]
    rows = pl.read_parquet(tmp_path / "a" / "llm_answers" / "*.parquet")
    assert rows.select("question", "sample").rows()[:5] == [
        *(("coherence", n) for n in range(4)),
        ("consistency", 0),
    ]
