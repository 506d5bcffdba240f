"""Training of LS_Score on a toy table with a tiny random backbone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError, InputError
from claimscore.pipeline.encoders.ls_model import load, load_backbone
from claimscore.training.ls_score import (
    CandidateMaker,
    Ranker,
    draw_records,
    hinges,
    train_ls_score,
)
from claimscore.training.recipes import LSTrainingConfig
from tests.support.command_line import Command
from tests.support.rated_tables import write_jsonl
from tests.support.tiny_models import save_tiny_encoder

NOUNS = ("hotel", "pool", "staff", "food", "beach")
WORDS = ("clean", "warm", "good", "quiet", "great", "not")


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_encoder(tmp_path_factory.mktemp("ls") / "backbone")


def toy_rows(count: int) -> list[dict[str, str]]:
    rng = np.random.default_rng(0)

    def sentence() -> str:
        noun, first, second = rng.choice(NOUNS), *rng.choice(WORDS, size=2)
        return f"The {noun} was {first} and {second}."

    texts = [[sentence() for _ in range(5)] for _ in range(count)]
    return [{"source": " ".join(five), "summary": " ".join(five[:2])} for five in texts]


@pytest.fixture
def config(backbone: Path, tmp_path: Path) -> LSTrainingConfig:
    return LSTrainingConfig(
        tables=(str(write_jsonl(tmp_path / "table.jsonl", toy_rows(24))),),
        out=tmp_path / "model",
        backbone=str(backbone),
        lr=1e-3,
        max_tokens=64,
        holdout=0.4,
        dropout=0.0,
        device="cpu",
    )


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_the_best_epoch_ranks_good_summaries_first(
    config: LSTrainingConfig, tmp_path: Path
) -> None:
    shown: list[int] = []
    result = train_ls_score(config, lambda done, _: shown.append(done))
    before, *trained = result.tables["epochs"].iter_rows(named=True)
    assert [result.facts[name] for name in ("records", "held_out", "skipped")] == [15, 9, 0]
    assert trained[-1]["held_out_loss"] < before["held_out_loss"]
    ranks = [(epoch["first_share"], -epoch["held_out_loss"]) for epoch in trained]
    assert result.facts["best_epoch"] == 1 + ranks.index(max(ranks))
    assert shown == list(range(1, 13))
    train_ls_score(replace(config, out=tmp_path / "again"))
    assert content(tmp_path / "again") == content(config.out)
    train_ls_score(replace(config, out=tmp_path / "other", seed=7))
    assert content(tmp_path / "other") != content(config.out)


def test_training_scores_as_the_model_does(config: LSTrainingConfig) -> None:
    train_ls_score(replace(config, epochs=0))
    backbone, row = load_backbone(config.backbone), toy_rows(1)[0]
    make = CandidateMaker(backbone.tokenizer, ("delete", "add"), seed=0, max_tokens=64)
    record = make(*row.values())
    assert record is not None
    ranker = Ranker(backbone, config).eval()
    with torch.no_grad():
        (scores,) = ranker([record])
    assert len(scores) == 3
    model = load(EncoderConfig(ls_model=str(config.out), device="cpu"))
    ((linguistic, _, semantic, *_),) = model.scores([row["source"]], [row["summary"]])
    expected = 0.01 * linguistic + semantic
    assert float(scores[0]) == pytest.approx(expected, abs=1e-5)


def test_the_loss_by_hand() -> None:
    """Hinges of margin 1 of the good summary's LS over each other's."""
    linguistic, semantic = torch.tensor([2.0, 1.5, 0.0, 3.0]), torch.tensor([0.8, 0.6, 0.1, 0.9])
    assert float(hinges(linguistic + semantic)) == pytest.approx((1 - 0.7) + 0 + (1 + 1.1))


def test_records_of_a_document_are_on_one_side(backbone: Path) -> None:
    rows = toy_rows(6)
    pairs = [(row["source"], row["summary"]) for row in rows]
    pairs += [(row["source"], row["source"].split(". ")[2] + ".") for row in rows]
    pairs += [("One. Two.", " "), ("One.", "Two.")]
    make = CandidateMaker(load_backbone(str(backbone)).tokenizer, ("add",), seed=0, max_tokens=64)
    learning, held_out, skipped = draw_records(pairs, make, 100, 0.2, 0)
    documents = [{tuple(record.document) for record in side} for side in (learning, held_out)]
    assert documents[0].isdisjoint(documents[1])
    assert (len(learning) + len(held_out), skipped) == (12, 2)


def test_command_shows_every_epoch(tmp_path: Path, cli: Command) -> None:
    table = write_jsonl(tmp_path / "few.jsonl", toy_rows(4))
    call = ("train", "ls-score", table, "--out", tmp_path / "model", "--device", "cpu")
    lines = cli(*call).out.splitlines()
    rows = [line.split()[0] for line in lines if line.strip(" ─")]
    assert rows == ["LS_Score", "epoch", *"0123", "model:"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": -1}, "--epochs must be at least 0"),
        ({"out": "backbone"}, "another --out"),
    ],
)
def test_wrong_settings_are_refused(config: LSTrainingConfig, changes, message: str) -> None:
    if "out" in changes:
        changes = {"out": Path(config.backbone)}
    with pytest.raises(ConfigError, match=message):
        replace(config, **changes)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (toy_rows(1), "takes two documents"),
        ([], "the table is empty"),
        ([{"text": "A. B.", "summary": "A."}], r"t\.jsonl: no column source"),
        ([{"source": "A. B.", "summary": 3}], "line 1: summary must be text"),
    ],
)
def test_tables_that_teach_nothing(
    config: LSTrainingConfig, tmp_path: Path, rows, message: str
) -> None:
    table = str(write_jsonl(tmp_path / "t.jsonl", rows))
    with pytest.raises(InputError, match=message):
        train_ls_score(replace(config, tables=(table,)))
