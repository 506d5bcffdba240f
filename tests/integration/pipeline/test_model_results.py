"""Runs share what models said: nothing twice, the same bytes, counted, and off when asked."""

import json
from pathlib import Path

import numpy as np
import pytest

import claimscore.pipeline.model_stage as working
from claimscore.config import RunConfig, user_cache_dir
from claimscore.pipeline.run import run
from claimscore.types import JSON
from tests.support.command_line import Command
from tests.support.pass_doubles import FunctionClassifier


@pytest.fixture
def classifier(monkeypatch: pytest.MonkeyPatch) -> FunctionClassifier:
    """Probabilities by chance, never the same twice."""
    rng = np.random.default_rng(5)
    fake = FunctionClassifier(lambda *_: rng.dirichlet(np.ones(3)))
    monkeypatch.setattr(working, "load_model", lambda role, config: fake)
    return fake


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "records.jsonl"
    other = "The room was dirty. Breakfast was good."
    for n in range(4):
        one = f"The room was clean. Staff were kind on day {n}."
        with path.open("a") as file:
            file.write(json.dumps({"id": str(n), "summary_a": one, "summary_b": other}) + "\n")
    return path


def scored(records: Path, out: Path, *metrics: str, store: bool = True) -> JSON:
    return run(RunConfig(str(records), out, metrics, model_store=store)).summary["last_call"]


def nli_table(out: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(out.rglob("nli/*.parquet")))


def test_a_second_run_of_another_metric_computes_nothing(
    records: Path, tmp_path: Path, classifier: FunctionClassifier
) -> None:
    first = scored(records, tmp_path / "one", "caspr")
    n_pairs = len(set(classifier.asked))
    assert n_pairs == len(classifier.asked) > 0
    assert first["model_items"] == {"computed": n_pairs, "stored": 0}
    second = scored(records, tmp_path / "two", "ds", "caspr")
    assert len(classifier.asked) == n_pairs
    assert second["model_items"] == {"computed": 0, "stored": n_pairs}
    assert second["nli_pairs"] == first["nli_pairs"]
    assert nli_table(tmp_path / "one") == nli_table(tmp_path / "two") != b""
    third = scored(records, tmp_path / "three", "caspr", store=False)
    assert len(classifier.asked) > n_pairs
    assert third["model_items"] == {"computed": None, "stored": None}


def test_cache_commands_know_it(
    records: Path, classifier: FunctionClassifier, cli: Command
) -> None:
    scored(records, records.parent / "one", "caspr")
    results = cli("cache", "stats", "--json").json()["model_results"]
    assert results["rows"] == len(classifier.asked)
    assert results["bytes"] == user_cache_dir().joinpath("models.db").stat().st_size
