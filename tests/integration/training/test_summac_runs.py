"""Training of SummaC-Conv from the NLI of finished runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from claimscore.errors import ConfigError, InputError
from claimscore.pipeline.encoders.protocols import ModelInfo
from claimscore.pipeline.passes import PassInput
from claimscore.pipeline.passes.pair_nli import BLOCK_NLI_PASS
from claimscore.records.columns import in_first_half
from claimscore.runs import RunDirectory
from claimscore.tables import TABLES
from claimscore.training.recipes import SummaCTrainingConfig
from claimscore.training.summac_conv import cut_pass, train_summac_conv


class Classifier:
    """Entailment is the share of the hypothesis's words that the premise has."""

    def __init__(self, model: str = "words") -> None:
        self.info = ModelInfo(model, "r1", "float32")

    def classify(self, pairs: Sequence[tuple[str, str]], *, on_batch: Any = None) -> np.ndarray:
        shares = [len(set(p.split()) & set(h.split())) / len(set(h.split())) for p, h in pairs]
        return np.array([[s, (1 - s) / 2, (1 - s) / 2] for s in shares], dtype=np.float32)


def rows(n: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "id": f"r{i}",
            "source": f"Room {i // 2} is clean and quiet.\nStaff of floor {i // 2} is kind.",
            "summary": [f"Room {i // 2} is clean and quiet.", "Nobody liked the cold pool."][i % 2],
            "label": 1 - i % 2,
        }
        for i in range(n)
    ]


def write_run(
    path: Path, table: list[dict[str, Any]], model: str = "words", *, finished: bool = True
) -> str:
    """A run of two chunks with the NLI of sentences; `finished` False: of the first chunk only."""
    need = cut_pass(SummaCTrainingConfig(("t",), Path("o")).settings())
    half = len(table) // 2
    with RunDirectory(path) as run:
        run.check_settings({"records": {"count": len(table)}, "chunk_records": half})
        for chunk in (0, 1):
            records = pl.DataFrame(table[chunk * half : (chunk + 1) * half])
            run.write_parts(chunk, "records", {"records": records})
            if chunk and not finished:
                continue
            given = PassInput(
                model=Classifier(model),
                need=need,
                records=records,
                read=lambda name: TABLES[name].empty(),
                broken=frozenset(),
                listen=lambda pairs: lambda done: None,
            )
            run.write_parts(chunk, need.step, BLOCK_NLI_PASS.compute(given).rows)
    return str(path)


@pytest.fixture
def config(tmp_path: Path) -> SummaCTrainingConfig:
    run = write_run(tmp_path / "run", rows())
    return SummaCTrainingConfig((run,), tmp_path / "out", epochs=3)


def test_a_run_gives_the_weights_of_its_records(
    config: SummaCTrainingConfig, tmp_path: Path
) -> None:
    """The same bytes as a training that asks the model, of which a run needs none."""
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    asked = replace(config, tables=(str(file),), out=tmp_path / "asked")
    expected = train_summac_conv(asked, classifier=Classifier())
    found = train_summac_conv(config)
    assert found.weights.read_bytes() == expected.weights.read_bytes()
    assert replace(found, weights=expected.weights) == expected
    assert not (config.out / "images").exists()


def test_the_same_half_as_of_a_file(config: SummaCTrainingConfig) -> None:
    """Drawn by the same column with the same seed."""
    result = train_summac_conv(replace(config, split_by="source", holdout=0.0))
    half = [row for row in rows() if in_first_half(row["source"], 0)]
    assert 0 < result.examples == len(half) < 40


def test_runs_may_have_the_same_ids(config: SummaCTrainingConfig, tmp_path: Path) -> None:
    """Two runs are one table; a run may also choose the epoch."""
    other = write_run(tmp_path / "other", rows(20))
    both = replace(config, tables=(*config.tables, other), validation=(other,))
    result = train_summac_conv(both)
    assert (result.examples, result.validation_examples) == (60, 20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"granularity": "2sents"}, "0 of 2 parts; run it to the end", id="no NLI"),
        pytest.param({"split_by": "article"}, "no column article; there are: id", id="split_by"),
        pytest.param({"make_negatives": True}, "needs files of texts", id="negatives"),
    ],
)
def test_what_a_run_cannot_give(
    config: SummaCTrainingConfig, change: dict[str, Any], message: str
) -> None:
    """One line that says what is missing."""
    with pytest.raises(ConfigError, match=message):
        train_summac_conv(replace(config, **change))


def test_runs_that_do_not_fit(config: SummaCTrainingConfig, tmp_path: Path) -> None:
    """Unfinished, of another model, a file beside a run, no run at all."""
    part = write_run(tmp_path / "part", rows(), finished=False)
    with pytest.raises(ConfigError, match=r"part: NLI of .* for 1 of 2 parts"):
        train_summac_conv(replace(config, tables=(part,)))
    other = write_run(tmp_path / "other", rows(), model="others")
    with pytest.raises(ConfigError, match="different models: others@r1, words@r1"):
        train_summac_conv(replace(config, tables=(*config.tables, other)))
    with pytest.raises(ConfigError, match="--validation has NLI of others@r1, not of words@r1"):
        train_summac_conv(replace(config, validation=(other,)))
    with pytest.raises(InputError, match="name one kind"):
        train_summac_conv(replace(config, tables=(*config.tables, "t.jsonl")))
    with pytest.raises(ConfigError, match="not a run directory"):
        train_summac_conv(replace(config, tables=(str(tmp_path),)))
