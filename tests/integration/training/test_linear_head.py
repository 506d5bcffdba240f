"""A linear head fitted to ratings, cross-validated, with a tiny random backbone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError, InputError
from claimscore.pipeline.encoders.ls_model import load
from claimscore.training.linear_head import train_linear
from claimscore.training.recipes import LSTrainingConfig
from tests.integration.training.test_ls_score import NOUNS, WORDS, content
from tests.support.command_line import Command
from tests.support.rated_tables import write_jsonl
from tests.support.tiny_models import save_tiny_encoder


def rated_rows() -> list[dict[str, object]]:
    """Eight documents with four summaries each, of which two say nothing but `not`."""
    rng = np.random.default_rng(0)
    rows = []
    for n in range(32):
        words = ["not"] * 4 if n % 2 else rng.choice(WORDS[:-1], size=4).tolist()
        summary = f"The {NOUNS[n % 5]} was {' and '.join(words)}."
        ratings = {"nots": n % 2, "level": 2.5}
        source = f"The {NOUNS[n // 4 % 5]} was {WORDS[n // 4 % 6]}."
        rows.append({"id": f"r{n}", "source": source, "summary": summary, "ratings": ratings})
    return rows


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_encoder(tmp_path_factory.mktemp("linear") / "backbone")


@pytest.fixture
def config(tmp_path: Path, backbone: Path) -> LSTrainingConfig:
    table = write_jsonl(tmp_path / "rated.jsonl", rated_rows())
    return LSTrainingConfig(
        tables=(str(table),),
        out=tmp_path / "model",
        backbone=str(backbone),
        head="bert-linear",
        ratings=("nots", "level"),
        folds=4,
        device="cpu",
    )


def test_held_out_scores_and_the_model_of_all(config: LSTrainingConfig, tmp_path: Path) -> None:
    result = train_linear(config)
    assert (result.records, result.documents, result.folds) == (32, 8, 4)
    rows = [json.loads(line) for line in result.scores.read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"r{n}" for n in range(32)]
    assert all(len({row["fold"] for row in rows[n : n + 4]}) == 1 for n in range(0, 32, 4))
    np.testing.assert_allclose([row["predicted_level"] for row in rows], 2.5)
    said = [(row["nots"], row["predicted_nots"]) for row in rows]
    assert np.corrcoef(np.transpose(said))[0, 1] > 0.5
    model = load(EncoderConfig(ls_model=str(config.out), device="cpu"))
    scores = model.score([(str(row["source"]), str(row["summary"])) for row in rated_rows()])
    of_all = [(row["nots"] + row["level"]) / 2 for row in rows]
    assert np.corrcoef(scores.linear, of_all)[0, 1] > 0.6
    assert scores.linear.mean() == pytest.approx(np.mean(of_all), abs=1e-4)
    train_linear(replace(config, out=tmp_path / "again"))
    assert content(tmp_path / "again") == content(config.out)


def test_command_gives_scores_that_correlate_reads(config: LSTrainingConfig, cli: Command) -> None:
    paths = (*config.tables, "--out", config.out, "--backbone", config.backbone)
    options = ("--head", "bert-linear", "--ratings", "nots", "--folds", 4, "--device", "cpu")
    found = cli("train", "ls-score", *paths, *options, "--json").json()
    names = ("--scores", *found["columns"], "--ratings", "nots", "--samples", 20, "--json")
    rows = cli("evaluate", "correlate", found["scores"], *names).json()["correlations"]
    assert rows[0]["value"] > 0.3


@pytest.mark.parametrize(
    ("changes", "row", "message"),
    [
        pytest.param({"head": "ls"}, {}, "--head bert-linear", id="other head"),
        pytest.param({"label": "ok"}, {}, "no --label", id="label"),
        pytest.param({"folds": 2}, {}, "--folds", id="too few folds"),
        pytest.param({"folds": 9}, {}, "8 documents are too few for 9 folds", id="many folds"),
        pytest.param({"ratings": ("none",)}, {}, "rating none is no number", id="no rating"),
        pytest.param({}, {"summary": " "}, r"line 33: summary is empty", id="no text"),
        pytest.param({}, {"ratings": {"nots": "x"}}, "nots is no number: 'x'", id="text"),
    ],
)
def test_what_cannot_be_fitted(config: LSTrainingConfig, changes, row, message: str) -> None:
    write_jsonl(Path(config.tables[0]), [*rated_rows(), rated_rows()[0] | row][: 32 + bool(row)])
    with pytest.raises((ConfigError, InputError), match=message):
        train_linear(replace(config, **changes))
