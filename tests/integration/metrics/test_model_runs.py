"""Runs whose metrics ask a tiny model, from records to scores."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.metrics import bertscore
from claimscore.metrics.rouge import by_rouge_score
from claimscore.pipeline.encoders.language_models import load_seq2seq
from claimscore.pipeline.run import run
from claimscore.pipeline.run import score as add_metrics
from tests.support.tiny_models import (
    TEXTS,
    save_tiny_causal,
    save_tiny_encoder,
    save_tiny_seq2seq,
)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    torch.set_num_threads(1)
    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / "cache"))

    def make(metrics: tuple[str, ...], records: list[dict[str, Any]], **encoders: Any) -> RunConfig:
        source = tmp_path / "records.jsonl"
        source.write_text("".join(json.dumps(record) + "\n" for record in records))
        found = EncoderConfig(offline=True, device="cpu", **encoders)
        return RunConfig(input=str(source), out=tmp_path / "run", metrics=metrics, encoders=found)

    return make


def scores_of(config: RunConfig) -> dict[tuple[str, str], tuple[float | None, str | None]]:
    scores = pl.read_parquet(Path(config.out) / "scores.parquet")
    rows = scores.select("id", "metric", "value", "reason").iter_rows()
    return {(record, metric): (value, reason) for record, metric, value, reason in rows}


def test_perplexity(config: Any, tmp_path: Path) -> None:
    texts = [TEXTS[0], "a", "", TEXTS[1], TEXTS[0]]
    records = [{"id": str(i), "summary": text} for i, text in enumerate(texts)]
    without = config(("perplexity",), records)
    with pytest.raises(ConfigError, match="--causal-lm"):
        run(without)
    folder = str(save_tiny_causal(tmp_path / "gpt2"))
    encoders = dataclasses.replace(without.encoders, causal_lm=folder)
    summary = run(dataclasses.replace(without, encoders=encoders)).summary["metrics"]["perplexity"]
    assert (summary["n"], summary["null"]) == (3, 2)
    assert set(summary["reasons"]) == {
        "no text in summary",
        "the summary is one token, with none before it",
    }
    assert f"causal_lm:{folder}@" in summary["signature"]


def test_bart_score_in_all_directions(config: Any, tmp_path: Path) -> None:
    record = {"id": "x", "summary": TEXTS[0], "sources": [TEXTS[1], TEXTS[2]]}
    made = config(
        ("bart-score", "bart-score:direction=f"),
        [record | {"references": [TEXTS[3]]}],
        seq2seq_lm=str(save_tiny_seq2seq(tmp_path / "bart")),
    )
    run(made)
    found = scores_of(made)
    model = load_seq2seq(made.encoders)
    pairs = [(TEXTS[1], TEXTS[0]), (TEXTS[2], TEXTS[0]), (TEXTS[3], TEXTS[0]), (TEXTS[0], TEXTS[3])]
    means = [total / tokens for total, tokens in model.log_likelihoods(*zip(*pairs, strict=True))]
    assert found["x", "bart-score"][0] == pytest.approx((means[0] + means[1]) / 2, abs=1e-5)
    both = found["x", "bart-score:direction=f"][0]
    assert both == pytest.approx((means[2] + means[3]) / 2, abs=1e-5)


def test_rouge_and_bertscore_of_records_with_references(config: Any, tmp_path: Path) -> None:
    """No LLM is asked; adding a measure later asks no model again."""
    tiny = str(save_tiny_encoder(tmp_path / "bert"))
    records = [
        {"id": "1", "summary": "the hotel was clean", "references": ["clean hotel", "the pool"]},
        {"id": "2", "summary": "breakfast was good", "references": ["breakfast was good"]},
        {"id": "3", "summary": "the rooms", "references": []},
    ]
    made = config(("rouge-1", "bertscore"), records, token_encoder=tiny, token_layer=2)
    call = run(made).summary["last_call"]
    assert (call["requests"], call["nli_pairs"]) == (0, 3)
    found = scores_of(made)
    texts = [("the hotel was clean", "clean hotel"), ("the hotel was clean", "the pool")]
    expected = bertscore(*zip(*texts, strict=True), model=tiny, layer=2).f1.max()
    assert found["1", "bertscore"][0] == pytest.approx(expected, abs=1e-6)
    assert found["1", "rouge-1"][0] == max(by_rouge_score("rouge-1", *pair).f1 for pair in texts)
    assert found["2", "bertscore"][0] == pytest.approx(1, abs=1e-6)
    assert found["3", "rouge-1"] == found["3", "bertscore"] == (None, "no text in references")
    later = add_metrics(made.out, ("bertscore:measure=recall", "rouge-l:measure=recall"))
    assert later.summary["last_call"]["nli_pairs"] == 0
    assert later.summary["metrics"]["bertscore:measure=recall"]["n"] == 2
