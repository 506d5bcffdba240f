import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.loading import folder_digest
from claimscore.pipeline.encoders.nli import load
from claimscore.pipeline.encoders.protocols import NLI_LABELS, ModelInfo, label_columns
from tests.support.embedded_models import needs_backbone
from tests.support.tiny_models import FAMILIES, LONG, TEXTS, Folders, save_tiny_nli

PAIRS = [*itertools.product(TEXTS[:4], TEXTS[2:]), ("a", "a very " * 6), (TEXTS[0], TEXTS[2])]


def config(folder: Path, **options: Any) -> EncoderConfig:
    return EncoderConfig(nli=str(folder), device="cpu", offline=True, **options)


def one_by_one(folder: Path, pairs: list[tuple[str, str]]) -> NDArray[np.float32]:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    places = {name.lower(): i for i, name in model.config.id2label.items()}
    rows = []
    for a, b in pairs:
        inputs = tokenizer([a], [b], return_tensors="pt", truncation=True, max_length=64)
        with torch.no_grad():
            rows.append(model(**inputs).logits.softmax(-1)[0].numpy())
    return np.stack(rows)[:, [places[name] for name in NLI_LABELS]]


@pytest.mark.parametrize("family", FAMILIES)
def test_batches_equal_the_stock_model_on_one_pair_at_a_time(tiny: Folders, family: str) -> None:
    folder = tiny(family, "nli")
    pairs = [*PAIRS, (LONG, TEXTS[0]), (TEXTS[0], LONG), (LONG, LONG), ("", TEXTS[0])]
    pairs += [(LONG[9:], LONG[:200]), (LONG, f"{LONG}a"), ("a", "")]
    expected = one_by_one(folder, pairs)
    assert expected.std(axis=0).min() > 1e-3, "the tiny model must tell pairs apart"
    for budget in (1, 200, 4096):
        classifier = load_model("nli", config(folder, batch_tokens=budget))
        assert classifier.info == ModelInfo(str(folder), folder_digest(folder), "float32")
        found = classifier.classify(pairs)
        assert found.dtype == np.float32
        assert np.abs(found - expected).max() <= 2e-5
        assert np.abs(found.sum(axis=1) - 1).max() <= 1e-6


def test_a_modernbert_that_averages_all_tokens(tmp_path: Path) -> None:
    folder = save_tiny_nli(tmp_path / "model", "modernbert")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "classifier_pooling": "mean"}))
    expected = one_by_one(folder, PAIRS)
    found = load_model("nli", config(folder)).classify(PAIRS)
    assert np.abs(found - expected).max() <= 2e-5


def test_label_names_are_read_in_any_spelling() -> None:
    for labels, expected in (
        (["CONTRADICTION", "NEUTRAL", "ENTAILMENT"], (2, 1, 0)),
        ([" Contradict ", "entail", "Neutral"], (1, 2, 0)),
    ):
        assert label_columns("m", dict(enumerate(labels))) == expected


@pytest.mark.parametrize(
    "labels",
    [
        ["LABEL_0", "LABEL_1", "LABEL_2"],
        ["entailment", "not_entailment"],
        ["entailment", "neutral", "entail"],
        ["entailment", "neutral", "contradiction", "other"],
    ],
    ids=len,
)
def test_a_model_without_the_three_labels_is_refused(labels: list[str]) -> None:
    with pytest.raises(ConfigError, match=f"its labels are {labels[0]}, {labels[1]}"):
        label_columns("m", dict(enumerate(labels)))


def test_a_plain_encoder_and_a_head_without_weights_are_refused(
    tmp_path: Path, tiny: Folders
) -> None:
    with pytest.raises(ConfigError, match="not an NLI model"):
        load(config(tiny()))
    folder = save_tiny_nli(tmp_path / "model")
    (folder / "model.safetensors").write_bytes((tiny() / "model.safetensors").read_bytes())
    with pytest.raises(ConfigError, match=r"no weights for classifier\.bias"):
        load(config(folder))


@needs_backbone
def test_the_embedded_model_equals_its_module_on_one_pair_at_a_time() -> None:
    """Packed rows and segment means give what the module gives; labels and revision are its own."""
    from scripts.judge.model import load_embedded_nli

    classifier = load_model("nli", EncoderConfig(device="cpu", offline=True, batch_tokens=100))
    model, tokenizer = load_embedded_nli(offline=True)
    assert classifier.info == ModelInfo("embedded", model.revision, "float32")
    places = [{name: i for i, name in model.id2label.items()}[name] for name in NLI_LABELS]
    pairs = [*PAIRS[:5], ("", "a"), (LONG, TEXTS[0])]
    found = classifier.classify(pairs)
    for (first, second), row in zip(pairs, found, strict=True):
        inputs = tokenizer([first], [second], return_tensors="pt")
        with torch.no_grad():
            expected = model(**inputs).softmax(-1)[0, places].numpy()
        assert np.abs(row - expected).max() <= 2e-5


@needs_backbone
def test_the_embedded_model_reads_normal_forms() -> None:
    """Texts as typed and as tokenised have the same numbers, lengths and cuts."""
    clean = ('It cost £134,565, "a lot" (really).', "He didn't pay.")
    typed = ("It cost £ 134,565 , `` a lot '' -LRB- really -RRB- .", "He did n\u2019t pay .")
    classifier = load_model("nli", EncoderConfig(device="cpu", offline=True))
    one, other = classifier.classify([clean, typed])
    assert one.tolist() == other.tolist()
    assert len({*classifier.text_lengths([clean[0], typed[0]]).tolist()}) == 1
    assert classifier.info.revision.endswith(",form-1")
