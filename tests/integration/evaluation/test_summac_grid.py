"""`evaluate summac-grid`: every granularity and operator from one NLI image each."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import claimscore.pipeline.model_stage as working
from claimscore.blocks import Cut
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.summac_grid import GridConfig, summac_grid
from claimscore.metrics import summac_zs
from claimscore.stats.classification import balanced_accuracy, best_threshold, roc_auc
from tests.support.pass_doubles import FunctionClassifier
from tests.support.rated_tables import write_jsonl

BLOCKS = ("sentence", "document")


def judged(premise: str, hypothesis: str) -> list[float]:
    """Probabilities that follow from the pair alone."""
    rng = np.random.default_rng(zlib.crc32(f"{premise}|{hypothesis}".encode()))
    return [float(value) for value in rng.dirichlet([1, 1, 1]).astype(np.float32)]


@pytest.fixture(autouse=True)
def nli(monkeypatch: pytest.MonkeyPatch) -> FunctionClassifier:
    stub = FunctionClassifier(judged)
    monkeypatch.setattr(working, "load_model", lambda role, config: stub)
    return stub


def rows(n: int = 12) -> list[dict[str, Any]]:
    return [
        {
            "source": f"The room {i} is clean and quiet. The staff of floor {i} is kind.",
            "summary": f"Room {i} is clean enough. The pool {i % 3} is very warm. Nice staff here.",
            "label": i % 2 if i < 4 else int(i % 3 > 0),
            "split": "val" if i < n // 2 else "test",
        }
        for i in range(n)
    ]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "hotels.jsonl", rows())


def config(*tables: Path, out: Path, **more: Any) -> GridConfig:
    given = {"document_blocks": BLOCKS, "summary_blocks": BLOCKS, "samples": 20, **more}
    return GridConfig(tuple(map(str, tables)), out, **given)


def expected(document: str, summary: str, op1: str, op2: str) -> dict[str, float]:
    """The numbers of one setting, from the plain functions."""
    values: dict[str, list[float]] = {"val": [], "test": []}
    labels: dict[str, list[int]] = {"val": [], "test": []}
    for row in rows():
        image = [
            [judged(p, h) for h in Cut(summary, keep="code").blocks(row["summary"])]
            for p in Cut(document, keep="code").blocks(row["source"])
        ]
        value = summac_zs(image, op1=op1, op2=op2, variant="code")
        assert value is not None
        values[row["split"]].append(value)
        labels[row["split"]].append(row["label"])
    threshold = best_threshold(values["val"], labels["val"])
    return {
        "balanced_accuracy": balanced_accuracy(values["test"], labels["test"], threshold),
        "roc_auc": roc_auc(values["test"], labels["test"]),
    }


def test_every_cell_is_that_of_the_plain_functions(table: Path, tmp_path: Path) -> None:
    """36 settings, two measures each."""
    result = summac_grid(config(table, out=tmp_path / "out", variant="code"))
    assert result.rows.height == 2 * 2 * 9 * 2
    assert result.rows["dataset"].unique().to_list() == ["hotels"]
    for row in result.rows.iter_rows(named=True):
        cell = (row["document_blocks"], row["summary_blocks"], row["op1"], row["op2"])
        assert row["value"] == pytest.approx(expected(*cell)[row["measure"]]), cell


def test_nli_is_asked_once_for_each_two_granularities(
    table: Path, tmp_path: Path, nli: FunctionClassifier
) -> None:
    """2 x 3, 2 x 1, 1 x 3 and 1 pairs a record; again: none, and the same numbers."""
    grid = config(table, out=tmp_path / "out")
    first = summac_grid(grid)
    assert len(nli.asked) == 12 * (6 + 2 + 3 + 1)
    assert first.speed["documents"].to_list() == [12] * 4
    assert first.speed["documents_per_minute"].min() > 0
    second = summac_grid(grid)
    assert len(nli.asked) == 12 * (6 + 2 + 3 + 1)
    assert second.rows.equals(first.rows)
    assert second.speed["documents_per_minute"].null_count() == 4
    (section, _) = second.sections()
    assert section.title == "Balanced accuracy, %, hotels: protocol paper"
    assert section.rows[0][-1] == "-"
    assert "only where this call" in section.notes[-1]


def test_what_cannot_be_evaluated_costs_no_model(
    table: Path, tmp_path: Path, nli: FunctionClassifier
) -> None:
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="--summary-blocks: word; known: sentence"):
        config(table, out=out, summary_blocks=("word",))
    with pytest.raises(ConfigError, match="same file name"):
        config(table, Path("elsewhere/hotels.csv"), out=out)
    with pytest.raises(InputError, match="no column truth"):
        summac_grid(config(table, out=out, label="truth"))
    assert not nli.asked


def test_a_text_without_blocks_is_refused_or_left_out(table: Path, tmp_path: Path) -> None:
    short = write_jsonl(tmp_path / "short.jsonl", [*rows(), {**rows()[0], "summary": "Good."}])
    with pytest.raises(InputError, match="1 rows have no summac-zs"):
        summac_grid(config(short, out=tmp_path / "out", blocks="code"))
    result = summac_grid(config(short, out=tmp_path / "out", blocks="code", drop_missing=True))
    assert result.to_json()["left_out"] == 1
    assert "1 rows left out" in result.markdown()
    whole = summac_grid(config(table, out=tmp_path / "out"))
    assert result.rows["value"].equals(whole.rows["value"])
