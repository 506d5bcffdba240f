"""Training of LS_Score on a toy table with a tiny random backbone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError, InputError
from claimscore.metrics.linguistic_semantic import code_linguistic, combined
from claimscore.pipeline.encoders.ls_model import HEAD, SETTINGS, load, load_backbone, new_head
from claimscore.training import ls_score
from claimscore.training.labelled_records import TextColumns
from claimscore.training.loop import TrainingProgress
from claimscore.training.ls_candidates import CandidateMaker, read_pairs
from claimscore.training.ls_score import (
    Ranker,
    ranking_loss,
    train,
)
from claimscore.training.recipes import LSTrainingConfig
from tests.support.rated_tables import write_jsonl
from tests.support.tiny_models import save_tiny_encoder

NOUNS = ("hotel", "pool", "staff", "food", "beach")
WORDS = ("clean", "warm", "good", "quiet", "great", "not")


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_encoder(tmp_path_factory.mktemp("ls") / "backbone")


def toy_rows(count: int, seed: int = 0) -> list[dict[str, object]]:
    rng = np.random.default_rng(seed)

    def sentence() -> str:
        noun, first, second = rng.choice(NOUNS), *rng.choice(WORDS, size=2)
        return f"The {noun} was {first} and {second}."

    rows = []
    for i in range(count):
        sentences = [sentence() for _ in range(5)]
        rows.append({"source": " ".join(sentences), "summary": " ".join(sentences[:2]), "n": i % 2})
    return rows


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "table.jsonl", toy_rows(24))


@pytest.fixture
def config(table: Path, backbone: Path, tmp_path: Path) -> LSTrainingConfig:
    return LSTrainingConfig(
        tables=(str(table),),
        out=tmp_path / "model",
        backbone=str(backbone),
        epochs=3,
        lr=1e-3,
        head_lr=1e-2,
        max_tokens=64,
        validation=0.2,
        device="cpu",
    )


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_held_out_ranking_is_told_by_kind_and_part(config: LSTrainingConfig) -> None:
    kinds = ("delete", "add", "disorder_words")
    long = replace(config, dropout=0.0, epochs=3, validation=0.4, negatives=kinds, head_lr=1e-3)
    result = train(long)
    before, after = ({k.kind: k for k in result.epochs[i].kinds} for i in (0, -1))
    assert set(after) == set(kinds)
    assert all(kind.negatives == result.validation_records for kind in after.values())
    assert before["disorder_words"].linguistic < 0.8
    assert after["disorder_words"].linguistic > 0.85
    losses = [epoch.train_loss for epoch in result.epochs[1:]]
    assert losses[-1] < losses[0]
    assert result.skipped == 0


@pytest.mark.parametrize(("loss", "variant"), [("paper", "paper"), ("code", "code")])
def test_training_scores_as_the_metric(config: LSTrainingConfig, loss: str, variant: str) -> None:
    own = replace(config, loss=loss, epochs=0)
    train(own)
    backbone = load_backbone(own.backbone)
    pair = read_pairs(own.tables, own.columns)[0]
    record = CandidateMaker(backbone.tokenizer, ("delete",), seed=0, max_tokens=64)(pair)
    assert record is not None
    ranker = Ranker(backbone, new_head("ls", backbone.model, own.seed), own, 64).eval()
    with torch.no_grad():
        ranked = ranker([record])[0]
    model = load(EncoderConfig(ls_model=str(own.out), device="cpu"))
    found = model.score([(pair.document, pair.summary)])
    code = code_linguistic(*model.padded_log_probs([pair.summary])[0].tolist())
    linguistic = found.linguistic[0] if variant == "paper" else code
    expected = combined(linguistic, found.semantic[0], variant)
    scale = 0.01 if variant == "paper" else 1.0
    assert float(ranked.linguistic[0]) == pytest.approx(scale * expected.linguistic, abs=1e-5)
    assert float(ranked.semantic[0]) == pytest.approx(expected.semantic, abs=1e-5)
    assert float(ranked.scores[0]) == pytest.approx(expected.score, abs=1e-5)


def test_an_interrupted_training_goes_on_to_the_same_bytes(
    config: LSTrainingConfig, tmp_path: Path
) -> None:

    class Interrupted(Exception):
        pass

    def stop(progress: TrainingProgress) -> None:
        if progress.step == 8:
            raise Interrupted

    config = replace(config, epochs=2, loss="code-unpadded")
    whole = replace(config, out=tmp_path / "whole")
    first = train(whole)
    train(replace(whole, out=tmp_path / "other", seed=7))
    assert content(tmp_path / "other")[HEAD] != content(whole.out)[HEAD]
    with pytest.raises(Interrupted):
        train(config, stop)
    assert not (config.out / SETTINGS).exists()
    with pytest.raises(ConfigError, match="other settings or data"):
        train(replace(config, lr=1e-4))
    steps: list[int] = []
    resumed = train(config, lambda progress: steps.append(progress.step))
    assert steps[0] == 6
    assert content(config.out) == content(whole.out)
    assert resumed.epochs == first.epochs


def test_head_only_training_leaves_the_backbone(config: LSTrainingConfig) -> None:
    train(replace(config, out=config.out / "new", epochs=0))
    train(replace(config, out=config.out / "head", epochs=1, trained="head"))
    train(replace(config, out=config.out / "all", epochs=1))
    new, head, whole = (
        load(EncoderConfig(ls_model=str(config.out / name), device="cpu"))
        for name in ("new", "head", "all")
    )
    pairs = [("The hotel was clean.", "The pool was warm."), ("The staff was good.", "The food.")]
    before, after = new.score(pairs), head.score(pairs)
    np.testing.assert_allclose(before.semantic, after.semantic, atol=1e-6)
    assert not np.allclose(before.linguistic, after.linguistic, atol=1e-3)
    assert not np.allclose(before.semantic, whole.score(pairs).semantic, atol=1e-4)


def test_the_ablation_trains_a_linear_head(config: LSTrainingConfig) -> None:
    result = train(replace(config, head="bert-linear"))
    best = result.epochs[result.best_epoch]
    assert best.validation_loss < result.epochs[0].validation_loss
    model = load(EncoderConfig(ls_model=str(config.out), device="cpu"))
    assert np.isfinite(model.score([("The hotel was clean.", "The pool.")]).linear).all()


def test_documents_are_on_one_side(config: LSTrainingConfig, tmp_path: Path) -> None:
    rows = toy_rows(6)
    more = [row | {"summary": row["source"].split(". ")[2] + "."} for row in rows]
    path = write_jsonl(tmp_path / "many.jsonl", rows + more)
    several = replace(config, tables=(str(path),))
    learning, held_out, _ = ls_score._records(several, load_backbone(config.backbone), 64)
    documents = [{tuple(record.document) for record in side} for side in (learning, held_out)]
    assert documents[0].isdisjoint(documents[1])
    assert len(learning) + len(held_out) == 12


def test_pairs_of_a_table(tmp_path: Path) -> None:
    rows = [
        {"text": "A. B.", "claim": "A.", "ok": 1},
        {"text": "A. B.", "claim": "B.", "ok": 0},
        {"text": "A. B.", "claim": "A.", "ok": 1},
        {"text": "A. B.", "claim": " ", "ok": 1},
    ]
    table = str(write_jsonl(tmp_path / "t.jsonl", rows))
    assert read_pairs([table], TextColumns("text", "claim", "ok")) == [("A. B.", "A.")]
    assert len(read_pairs([table], TextColumns("text", "claim"))) == 2
    with pytest.raises(InputError, match=r"t\.jsonl, line 1: no column source.*--document"):
        read_pairs([table], TextColumns())
    with pytest.raises(InputError, match="no row to train on"):
        read_pairs([table], TextColumns("text", "claim", "claim"))
    with pytest.raises(InputError, match="ok must be text"):
        read_pairs([table], TextColumns("text", "ok"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"negatives": ("translate",)}, "unknown negative", id="unknown negative"),
        pytest.param({"loss": "best"}, "the loss is one of", id="unknown loss"),
        pytest.param({"epochs": -1}, "epochs", id="negative epochs"),
        pytest.param({"validation": 0.0}, "shares", id="nothing held out"),
        pytest.param({"lr": float("nan")}, "learning rates", id="no learning rate"),
        pytest.param({"weight_decay": -1.0}, "--weight-decay", id="negative decay"),
    ],
)
def test_wrong_settings_are_refused(config: LSTrainingConfig, changes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(config, **changes)


def test_what_would_overwrite_or_cannot_be_learnt_is_refused(
    config: LSTrainingConfig, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="another --out"):
        replace(config, out=Path(config.backbone))
    path = write_jsonl(tmp_path / "one.jsonl", toy_rows(1))
    with pytest.raises(InputError, match="takes two documents"):
        train(replace(config, tables=(str(path),)))


KINDS = ("delete", "disorder_words", "add")


def test_ranking_loss_by_hand() -> None:
    """Hinges of margin 1: on LS for all, or on L and on S for those that they concern."""
    linguistic, semantic = torch.tensor([2.0, 1.5, 0.0, 3.0]), torch.tensor([0.8, 0.6, 0.1, 0.9])
    on_all = (1 - 0.7) + 0 + (1 + 1.1)
    assert float(ranking_loss(linguistic, semantic, KINDS, "paper")) == pytest.approx(on_all)
    on_l = (1 - 0.5) + 0
    on_s = (1 - 0.2) + (1 + 0.1)
    assert float(ranking_loss(linguistic, semantic, KINDS, "code")) == pytest.approx(on_l + on_s)
