"""Training of SummaC-Conv on tables that can be told apart; the classifier is a function."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from claimscore.errors import ConfigError, InputError
from claimscore.metrics import load_metric, summac_conv
from claimscore.metrics.summac_convolution import bin_edges, histograms, load_weights
from claimscore.training.recipes import SummaCTrainingConfig
from claimscore.training.summac_conv import ConvModel, fit, train_summac_conv
from tests.support.pass_doubles import FunctionClassifier
from tests.support.rated_tables import write_jsonl


def words_of(premise: str, claim: str) -> tuple[float, float, float]:
    """Entailment is the share of the claim's words that the premise has."""
    share = len({*premise.split()} & {*claim.split()}) / len({*claim.split()})
    return share, (1 - share) / 2, (1 - share) / 2


WORDS = ("room", "clean", "dirty", "garden", "quiet", "noisy", "beach", "pool", "staff", "cold")


def rows(count: int, seed: int = 0) -> list[dict[str, object]]:
    """Half of the summaries repeat sentences of the document, half have other words."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        sentences = [" ".join(rng.choice(WORDS, 4)).capitalize() + "." for _ in range(6)]
        summary = [sentences[0], sentences[1] if i % 2 else f"Nobody saw thing number {i} there."]
        made.append({"source": "\n".join(sentences), "summary": "\n".join(summary), "label": i % 2})
    return made


@pytest.fixture
def config(tmp_path: Path) -> SummaCTrainingConfig:
    table = str(write_jsonl(tmp_path / "table.jsonl", rows(120)))
    return SummaCTrainingConfig((table,), tmp_path / "conv.safetensors", epochs=30)


def test_a_table_that_can_be_told_apart_is_learnt(config: SummaCTrainingConfig) -> None:
    shown: list[int] = []
    classifier = FunctionClassifier(words_of)
    result = train_summac_conv(config, lambda done, _: shown.append(done), classifier)
    assert [result.facts[name] for name in ("examples", "held_out", "skipped")] == [108, 12, 0]
    assert result.facts["held_out_loss"] < 0.3
    assert shown == [64, 120]
    metric = load_metric(f"summac-conv:weights={config.out}")
    right = []
    for row in rows(60, seed=9):
        source, summary = (str(row[name]).split("\n") for name in ("source", "summary"))
        pairs = [(premise, claim) for premise in source for claim in summary]
        image = classifier.classify(pairs).reshape(len(source), len(summary), 3)
        value = summac_conv(image, config.out, bins=dict(metric.facts)["bins"])
        assert value is not None
        right.append((value > 0.5) == bool(row["label"]))
    assert np.mean(right) > 0.95


def test_weights_know_how_they_were_trained(config: SummaCTrainingConfig, tmp_path: Path) -> None:
    short, classifier = replace(config, epochs=1), FunctionClassifier(words_of)
    train_summac_conv(short, classifier=classifier)
    first = short.out.read_bytes()
    asked = len(classifier.asked)
    assert 0 < asked <= 120 * 6 * 2
    other = replace(short, out=tmp_path / "other.safetensors", seed=1)
    for again in (other, short):
        train_summac_conv(again, classifier=classifier)
    assert short.out.read_bytes() == first
    assert len(classifier.asked) == asked
    assert load_weights(other.out).settings["nli"] == "fake@r1"
    facts = dict(load_metric(f"summac-conv:weights={other.out}").facts)
    assert (facts["bins"], facts["labels"], facts["variant"]) == ("even50", "e", "paper")


def test_the_model_is_the_metric(config: SummaCTrainingConfig) -> None:
    rng = np.random.default_rng(0)
    images = [rng.random((4, n, 3)) for n in (1, 12, 3)]
    counts = [histograms(image, bin_edges("even50"), "e") for image in images]
    epoch = fit(replace(config, epochs=1), [(part, i % 2) for i, part in enumerate(counts)], [])
    assert (epoch.number, epoch.held_out_loss) == (1, None)
    model = ConvModel(50)
    state = {name: torch.from_numpy(value) for name, value in epoch.weights._state().items()}
    model.load_state_dict(state)
    for image, part in zip(images, counts, strict=True):
        read = torch.from_numpy(part).float()[None]
        logits = model(read, torch.ones(read.shape[:2], dtype=torch.bool))
        expected = summac_conv(image, epoch.weights, bins="even50")
        assert float(logits.detach().softmax(dim=1)[0, 1]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([{"source": "a", "summary": "b"}], "no column label"),
        ([{"source": "a", "summary": "b", "label": "maybe"}], "column label holds String"),
        ([{"source": 3, "summary": "b", "label": 1}], "source must be text"),
        ([{"source": "It is a long text."} | {"summary": "So it is.", "label": 1}] * 3, "is 1;"),
        ([{"source": " ", "summary": " ", "label": n} for n in (0, 1)], "nothing to train on"),
    ],
)
def test_tables_that_cannot_be_trained_on(
    config: SummaCTrainingConfig, tmp_path: Path, table: list[dict[str, object]], message: str
) -> None:
    path = str(write_jsonl(tmp_path / "bad.jsonl", table))
    with pytest.raises(InputError, match=message):
        train_summac_conv(replace(config, tables=(path,)), classifier=FunctionClassifier(words_of))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0}, "--epochs must be at least 1"),
        ({"seed": -1}, "--seed must be at least 0"),
    ],
)
def test_wrong_settings_are_refused(setting: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SummaCTrainingConfig(("t",), Path("o"), **setting)  # type: ignore[arg-type]
