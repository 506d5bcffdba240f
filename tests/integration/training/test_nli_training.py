"""Training of the embedded NLI model, in seconds on random data and a tiny random backbone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, BertTokenizer

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import embedded
from claimscore.training import nli_examples, nli_training
from claimscore.training.loop import TrainingProgress
from claimscore.training.nli_training import train
from claimscore.training.recipes import NLITrainingConfig

WORDS = ("room", "clean", "dirty", "not", "the", "is", "a", "dog", "cat", "runs", "sleeps", "quiet")


@pytest.fixture
def backbone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A random BERT of two small layers, accepted in place of the real one by its digest."""
    folder = tmp_path / "backbone"
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    settings = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    settings.save_pretrained(folder)
    torch.manual_seed(0)
    save_file(BertModel(settings).state_dict(), folder / "model.safetensors")
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    digest = embedded.file_sha256(folder / "model.safetensors")
    monkeypatch.setattr(embedded, "BACKBONE_SHA256", digest)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a training file and two evaluation sets of random sentences."""
    folder = tmp_path / "data"
    folder.mkdir()
    random_pairs(96, seed=0).write_parquet(folder / "train.parquet")
    random_pairs(24, seed=1).write_parquet(folder / "dev_snli.parquet")
    random_pairs(24, seed=2).write_parquet(folder / "dev_other.parquet")
    return folder


@pytest.fixture
def config(backbone: Path, data: Path, tmp_path: Path) -> NLITrainingConfig:
    return NLITrainingConfig(
        data=(data,),
        out=tmp_path / "adapter.safetensors",
        backbone=backbone,
        samples=48,
        horizon=1.3,
        batch_size=8,
        max_length=32,
        checkpoint_every=2,
    )


def random_pairs(count: int, *, seed: int, source: str = "random") -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(2, 9))) for _ in range(2 * count)]
    labels = [list(nli_examples.LABEL2ID)[i] for i in rng.integers(0, 3, size=count)]
    return pl.DataFrame(
        {
            "premise": texts[:count],
            "hypothesis": texts[count:],
            "label": labels,
            "source": [source] * count,
        }
    )


def test_an_interrupted_run_goes_on_to_the_same_bytes(
    config: NLITrainingConfig, tmp_path: Path
) -> None:

    class Interrupted(Exception):
        pass

    def stop_at_five(progress: TrainingProgress) -> None:
        if progress.step == 5:
            raise Interrupted

    whole = train(replace(config, out=tmp_path / "whole.safetensors")).read_bytes()
    other = replace(config, out=tmp_path / "other.safetensors", seed=7)
    assert train(other).read_bytes() != whole
    with pytest.raises(Interrupted):
        train(config, stop_at_five)
    assert not config.out.exists()
    with pytest.raises(ConfigError, match="other settings or data"):
        train(replace(config, head_lr=0.5))
    steps: list[int] = []
    resumed = train(config, lambda progress: steps.append(progress.step)).read_bytes()
    assert steps == [5, 6]
    assert resumed == whole
    assert list(config.out.parent.glob("*.checkpoint*")) == []
    train(config, lambda progress: steps.append(progress.step))
    assert steps == [5, 6], "a finished adapter is left as it is"


def test_only_the_upper_layers_change(config: NLITrainingConfig) -> None:
    tensors = embedded.read_adapter(train(config)).tensors
    layers = {name.split(".")[3] for name in tensors if name.startswith("bert.encoder.layer.")}
    assert layers == {"1"}
    assert not [name for name in tensors if "embeddings" in name]


def test_train_nli_calibrates_and_evaluates_every_dev_set(config: NLITrainingConfig) -> None:
    result = nli_training.train_nli(replace(config, samples=32))
    assert [dev.name for dev in result.dev] == ["dev_other", "dev_snli"]
    assert all(dev.pairs == 24 and sum(map(sum, dev.confusion)) == 24 for dev in result.dev)
    metadata = embedded.read_adapter(result.adapter).metadata
    assert float(metadata["temperature"]) == result.temperature


def test_a_second_phase_starts_from_the_first_and_trains_every_layer(
    config: NLITrainingConfig, tmp_path: Path
) -> None:
    out = tmp_path / "second.safetensors"
    second = replace(config, start=train(config), out=out, frozen_layers=0)
    tensors = embedded.read_adapter(train(second)).tensors
    layers = {name.split(".")[3] for name in tensors if ".encoder.layer." in name}
    assert layers == {"0", "1"}
    (tmp_path / "fresh").mkdir()
    fresh = replace(second, start=None, out=tmp_path / "fresh" / "adapter.safetensors")
    assert train(fresh).read_bytes() != out.read_bytes()


def test_a_source_of_weight_zero_is_never_drawn() -> None:
    """Weights are shares of a pass: 0 never, 1 once, 2 twice."""
    sources = ["joci_train"] * 10 + ["help_and"] * 10 + ["snli"] * 10
    examples = nli_examples.NLIExamples(
        [[1]] * 30, [[2]] * 30, np.zeros(30, dtype=np.int64), sources
    )
    weights = (("joci_", 0.0), ("help_", 2.0))
    plan = nli_examples.sample_plan(examples, weights, batch_size=5, batches=6, seed=0)
    counts = np.bincount(np.concatenate(plan), minlength=30)
    assert counts.tolist() == [0] * 10 + [2] * 10 + [1] * 10


def test_the_learning_rate_rises_falls_slowly_then_ends_near_zero(
    config: NLITrainingConfig,
) -> None:
    """Warm-up to the peak, a slow descent, and a cooldown to 0."""
    settings = replace(config, samples=800, horizon=2.0, warmup=0.1, cooldown=0.5)
    rates = [nli_training.schedule(step, settings) for step in range(settings.steps)]
    peak = rates.index(max(rates))
    assert max(rates) == pytest.approx(1.0)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert 0 < rates[-1] < 0.03


def test_the_fitted_temperature_makes_overconfident_logits_honest() -> None:
    generator = torch.Generator().manual_seed(0)
    honest = torch.randn(4000, 3, generator=generator) * 2
    labels = torch.multinomial(honest.softmax(dim=1), 1, generator=generator)[:, 0]
    temperature = nli_training.fit_temperature(honest * 3, labels)
    assert temperature == pytest.approx(3.0, rel=0.1)
    before = nli_training.measure("x", honest * 3, labels)
    after = nli_training.measure("x", honest * 3 / temperature, labels)
    assert after.accuracy == before.accuracy
    assert after.ece < before.ece / 3
    assert sum(map(sum, after.confusion)) == after.pairs == 4000


def test_files_that_hold_no_training_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no train\*\.parquet"):
        nli_examples.training_files([tmp_path])
    file = tmp_path / "train.parquet"
    random_pairs(4, seed=0).with_columns(label=pl.lit("maybe")).write_parquet(file)
    with pytest.raises(ConfigError, match="maybe"):
        nli_examples.read_pairs([file])
