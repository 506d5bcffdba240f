"""LS_Score in whole runs, with tiny checkpoints."""

import json
from pathlib import Path

import polars as pl
import pytest

from claimscore.config import EncoderConfig, RunConfig
from claimscore.metrics.linguistic_semantic import combined
from claimscore.pipeline.encoders.ls_model import load
from claimscore.pipeline.run import run
from tests.support.ls_models import tiny_checkpoint

RECORDS = [
    {"id": "x", "source": "The hotel was clean and quiet. The pool was warm.", "summary": "clean"},
    {"id": "y", "source": ["We had a great stay.", "the staff was rude!"], "summary": "the pool"},
    {"id": "z", "source": "Nothing was as promised.", "summary": " "},
    {"id": "w", "source": "Nothing was as promised.", "summary": "\u200b"},
]


def config(folder: Path, model: Path | None, *metrics: str) -> RunConfig:
    lines = [json.dumps(record) for record in RECORDS]
    (folder / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return RunConfig(
        input=str(folder / "in.jsonl"),
        out=folder / "run",
        metrics=metrics,
        encoders=EncoderConfig(ls_model=str(model) if model else None, device="cpu"),
        cache_dir=folder / "cache",
    )


def test_a_run_from_records_to_scores(tmp_path: Path) -> None:
    model = tiny_checkpoint(tmp_path)
    run(config(tmp_path, model, "ls-score"))
    scores = pl.read_parquet(tmp_path / "run" / "scores.parquet")
    rows = {row["id"]: row for row in scores.iter_rows(named=True)}
    loaded = load(EncoderConfig(ls_model=str(model), device="cpu"))
    ((linguistic, _, semantic, *_),) = loaded.scores([RECORDS[0]["source"]], ["clean"])
    expected = combined(linguistic, semantic).score
    assert rows["x"]["value"] == pytest.approx(expected, abs=1e-5)
    assert rows["y"]["value"] is not None
    assert rows["z"]["reason"] == "no text in summary"
    assert rows["w"]["reason"].startswith("ls failed for source: the tokenizer")
    assert f"ls_model:{model}@{loaded.info.revision}" in rows["x"]["signature"]
    assert json.loads(rows["y"]["components"])["n_sources"] == 2
