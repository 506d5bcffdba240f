"""The plan before a run: who needs what, and how much each model pass has to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import claimscore.pipeline.model_stage as working
from claimscore.config import RunConfig
from claimscore.metrics import METRICS, load_metric
from claimscore.metrics.base import Metric, Requirements
from claimscore.pipeline.encoders.protocols import ModelInfo
from claimscore.pipeline.estimate import Estimate, estimate_run
from claimscore.pipeline.estimate.stage import metric_requirements
from claimscore.pipeline.run import run, score
from claimscore.runs import RunDirectory

N = 5


class CountingEmbedder:
    """Gives every text a vector of its length, and remembers what it was asked."""

    info = ModelInfo("counting", "1", "float32")

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str], *, on_batch: Any) -> np.ndarray:
        self.asked += texts
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32).reshape(-1, 2)


class CountingClassifier:
    """Says one third to everything, and remembers what it was asked."""

    info = ModelInfo("counting", "1", "float32")

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def classify(self, pairs: Sequence[tuple[str, str]], *, on_batch: Any) -> np.ndarray:
        self.asked += pairs
        return np.full((len(pairs), 3), 1 / 3, dtype=np.float32)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The models that are loaded, in every role that these tests need."""
    fakes = {"embedder": CountingEmbedder(), "nli": CountingClassifier()}
    monkeypatch.setattr(working, "load_model", lambda role, config: fakes[role])
    return fakes


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Two sources a record, the last record's second one blank."""
    path = tmp_path / "records.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        for i in range(N):
            record = {
                "id": f"r{i}",
                "sources": [
                    f"Great pool, and {i} quiet rooms. The food is good.",
                    "" if i == N - 1 else "The rooms were clean. The staff was rude.",
                ],
                "summary": f"The rooms were clean. The staff of {i} was nice.",
                "summary_a": "The rooms were clean. The pool was cold.",
                "summary_b": "The pool was warm.",
            }
            stream.write(json.dumps(record) + "\n")
    return path


def estimated(records: Path, *metrics: str, out: Path | None = None, **more: Any) -> Estimate:
    config = RunConfig(str(records), out or Path("unused"), metrics, chunk_records=2, **more)
    return estimate_run(config, out=out)


def items(found: Estimate) -> dict[str, int | None]:
    return {one.step.partition("-")[0]: one.items for one in found.passes}


def test_items_are_what_the_models_are_then_asked(
    records: Path, tmp_path: Path, models: dict[str, Any]
) -> None:
    """Texts for the embedder, pairs for the classifier; afterwards nothing is left."""
    metrics = ("bert-cosine:against=source", "summac-zs", "mnli-doc")
    found = estimated(records, *metrics)
    counts = {one.step: one.items for one in found.passes}
    run(RunConfig(str(records), tmp_path / "run", metrics, chunk_records=2))
    assert len(models["embedder"].asked) == counts["text_similarities-summary.text-source.text"]
    assert len(models["embedder"].asked) == N + 2 * N - 1
    blocks = [n for step, n in counts.items() if step.startswith("block_nli")]
    assert len(models["nli"].asked) == sum(n or 0 for n in blocks)
    assert blocks == [4 * 2 * (N - 1) + 2 * 2, 2 * (N - 1) + 1]
    after = estimated(records, *metrics, out=tmp_path / "run")
    assert [one.items for one in after.passes] == [0, 0, 0]


def test_what_tasks_make_is_known_after_them(
    records: Path, tmp_path: Path, models: dict[str, Any]
) -> None:
    """Pairs of claims are not guessed; what is done in the folder does not count."""
    out = tmp_path / "run"
    metrics = ("caspr", "mnli-doc")
    checks = {"claim_entailment": None}
    assert items(estimated(records, *metrics)) == {"nli": None, "block_nli": 9, **checks}
    run(RunConfig(str(records), out, metrics, chunk_records=2))
    with RunDirectory(out) as directory:
        directory.forget(0, "block_nli-source.document-summary.document")
    checks = {"claim_entailment": 0}
    assert items(estimated(records, *metrics, out=out)) == {"nli": 0, "block_nli": 4, **checks}


def test_a_metric_that_is_added_costs_the_difference(
    records: Path, tmp_path: Path, models: dict[str, Any]
) -> None:
    """FactSim after bert-cosine and the like: the facts are asked and embedded, nothing twice.

    Of the 3 N texts one is blank, and the second source is the same in all other records.
    """
    out, embedder = tmp_path / "run", models["embedder"]
    first = ("bert-cosine:against=source", "ds", "mnli-doc")
    run(RunConfig(str(records), out, first, chunk_records=2))
    n_pairs = len(models["nli"].asked)
    embedder.asked.clear()
    plan = estimated(records, *first, "factsim", out=out)
    assert items(plan) == {"block_nli": 0, "fact_similarities": None, "text_similarities": 0}
    result = score(out, ("factsim",))
    call = result.summary["last_call"]
    assert call["requests"] == plan.requests == 2 * N + 1
    facts = RunDirectory.reader(out).scan("facts").collect()
    assert len(embedder.asked) == facts.height > 0
    assert len(models["nli"].asked) == n_pairs
    embedder.asked.clear()
    again = score(out, ("factsim", "bert-cosine:against=source")).summary["last_call"]
    assert (again["requests"], again["nli_pairs"], embedder.asked) == (0, 0, [])
    assert estimated(records, *first, "factsim", out=out).requests == 0


def test_tasks_that_others_wait_for_are_named() -> None:
    qa = {need.task: need.sides for need in metric_requirements(load_metric("qa")).tasks}
    assert list(qa) == ["questions", "answers"]
    negated = Metric(
        "m", "v1",
        Requirements((), (load_metric("caspr").requires.tasks[0]._replace(task="negate"),)),
        lambda tables: [], (), "", (0, 1), "", "",
    )  # fmt: skip
    assert [need.task for need in metric_requirements(negated).tasks] == ["decompose", "negate"]
    for name in set(METRICS) - {"summac-conv"}:
        assert metric_requirements(load_metric(name)).metric == name
