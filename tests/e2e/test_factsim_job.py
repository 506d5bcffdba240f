"""FactSim and the metrics of embeddings from end to end: records in, scores out, resumed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import polars as pl
import pytest

from claimscore.config import EncoderConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.embedder import BatchedEmbedder
from claimscore.pipeline.run import run, score
from tests.support.tiny_models import save_tiny_encoder

N = 5


@pytest.fixture(autouse=True)
def _private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the user's cache."""
    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_encoder(tmp_path_factory.mktemp("enc") / "bert")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Several sources a record; the last summary has no facts."""
    path = tmp_path / "records.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        for i in range(N):
            facts = f"The rooms were clean. The staff was {['rude', 'nice', 'slow'][i % 3]}."
            record = {
                "id": f"r{i}",
                "sources": [f"Great pool, and {i} quiet rooms. The food is good.", facts],
                "summary": facts if i < N - 1 else "Never again!",
                "references": ["The rooms were clean.", "The staff was nice."],
            }
            stream.write(json.dumps(record) + "\n")
    return path


def run_metrics(records: Path, out: Path, encoder: Path, *metrics: str) -> None:
    """A run with the built-in rules and a tiny encoder in both roles, two records a chunk."""
    model = str(encoder)
    encoders = EncoderConfig(
        embedder=model, token_encoder=model, token_layer=2, device="cpu", offline=True
    )
    run(RunConfig(str(records), out, metrics or ("factsim",), encoders=encoders, chunk_records=2))


def scores(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "scores.parquet")


def test_a_run_gives_scores_and_the_whole_matrix(
    records: Path, tmp_path: Path, encoder: Path
) -> None:
    """Facts of all sources together; a summary without facts is null with the reason."""
    out = tmp_path / "run"
    run_metrics(records, out, encoder)
    found = scores(out)
    assert found["value"].null_count() == 1
    assert found.filter(pl.col("value").is_null())["reason"].to_list() == ["no facts in summary"]
    facts = pl.read_parquet(sorted((out / "facts").glob("*.parquet")))
    cells = pl.read_parquet(sorted((out / "similarities").glob("*.parquet")))
    for row in found.filter(pl.col("value").is_not_null()).iter_rows(named=True):
        parts = json.loads(row["components"])
        own = facts.filter(pl.col("id") == row["id"])
        assert parts["n_source"] == own.filter(side="source").height
        assert parts["consistency"] == pytest.approx(1, abs=1e-5), "the summary is a source"
        assert (
            cells.filter(pl.col("id") == row["id"]).height == parts["n_source"] * parts["n_summary"]
        )
    assert found["signature"].str.contains("embedder:").all()


def test_an_interrupted_run_ends_with_the_same_bytes(
    records: Path, tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the second chunk's embeddings, then run again."""
    embed, calls = BatchedEmbedder.embed, 0

    def stops(self: BatchedEmbedder, texts: list[str], **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return embed(self, texts, **options)  # type: ignore[arg-type]

    out, whole = tmp_path / "run", tmp_path / "whole"
    with monkeypatch.context() as patch:
        patch.setattr(BatchedEmbedder, "embed", stops)
        with pytest.raises(KeyboardInterrupt):
            run_metrics(records, out, encoder)
    assert calls == 2
    assert not (out / "scores.parquet").exists()
    run_metrics(records, out, encoder)
    run_metrics(records, whole, encoder)
    assert (out / "scores.parquet").read_bytes() == (whole / "scores.parquet").read_bytes()
    parts = [sorted((folder / "similarities").glob("*.parquet")) for folder in (out, whole)]
    assert [part.read_bytes() for part in parts[0]] == [part.read_bytes() for part in parts[1]]


def test_metrics_of_embeddings_share_a_run(records: Path, tmp_path: Path, encoder: Path) -> None:
    """Cosine, mover's similarities and MoverScore, of the references and of the sources."""
    pytest.importorskip("ot", reason="the extra movers is not installed")
    names = ["bert-cosine", "bert-cosine:against=source", "wms", "sms:words=yes", "moverscore"]
    run_metrics(records, tmp_path / "run", encoder, *names)
    found = scores(tmp_path / "run")
    assert found.height == N * len(names)
    assert found["value"].null_count() == 0
    best = found.filter((pl.col("metric") == names[1]) & (pl.col("id") != f"r{N - 1}"))
    assert best["value"].to_list() == pytest.approx([1] * (N - 1), abs=1e-5)


def test_factsim_can_be_added_to_a_run(records: Path, tmp_path: Path, encoder: Path) -> None:
    """The column `sources` serves a metric that needs `source`, later as at first."""
    out, whole = tmp_path / "run", tmp_path / "whole"
    run_metrics(records, out, encoder, "bert-cosine:against=source")
    score(out, ("factsim",))
    run_metrics(records, whole, encoder)
    found, expected = (scores(folder).filter(metric="factsim") for folder in (out, whole))
    assert found["value"].to_list() == expected["value"].to_list()


def test_a_missing_library_stops_before_anything_is_done(
    records: Path, tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optimal transport is an extra; nobody is asked for facts when it is not there."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"claimscore\[movers\]"):
        run_metrics(records, tmp_path / "run", encoder, "factsim", "wms")
    assert not (tmp_path / "run" / "facts").exists()
