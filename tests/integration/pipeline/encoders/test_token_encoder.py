from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import AutoTokenizer

from claimscore import minilm
from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import load_model, token_encoder
from claimscore.pipeline.encoders.loading import folder_digest
from claimscore.pipeline.encoders.protocols import ModelInfo
from claimscore.pipeline.encoders.token_encoder import (
    BatchedTokenEncoder,
    Published,
    load,
    published,
    published_baseline,
    published_name,
)
from tests.support.tiny_models import FAMILIES, LONG, TEXTS, Folders, stock_states

CANDIDATES = [*TEXTS, TEXTS[0], "a", TEXTS[3], LONG]
REFERENCES = [*TEXTS[1:], TEXTS[0], TEXTS[0], TEXTS[4], "quiet rooms", TEXTS[0]]


def config(folder: Path, layer: int | None = 2, **options: Any) -> EncoderConfig:
    return EncoderConfig(
        token_encoder=str(folder), token_layer=layer, device="cpu", offline=True, **options
    )


def one_by_one(folder: Path, layer: int) -> NDArray[np.float64]:
    """BERTScore written out for one pair at a time, on the stock model's hidden states."""
    name = type(AutoTokenizer.from_pretrained(folder)).__name__
    space = " " if name.startswith("Roberta") else ""
    rows = []
    for candidate, reference in zip(CANDIDATES, REFERENCES, strict=True):
        (c, own_c), (r, own_r) = (
            stock_states(folder, space + text) for text in (candidate, reference)
        )
        c, r = (x[layer] / np.linalg.norm(x[layer], axis=1, keepdims=True) for x in (c, r))
        cosine = (c @ r.T).astype(np.float64)
        p, q = cosine.max(axis=1)[own_c].mean(), cosine.max(axis=0)[own_r].mean()
        rows.append([p, q, 2 * p * q / (p + q)])
    return np.array(rows)


#: A ModernBERT has a norm after its last layer, and none before.
LAYERS = [(family, 1) for family in FAMILIES if family != "bart"]
LAYERS += [("bert", 2), ("modernbert", 2)]


@pytest.mark.parametrize(("family", "layer"), LAYERS)
def test_batches_equal_one_pair_at_a_time(
    tiny: Folders, monkeypatch: pytest.MonkeyPatch, family: str, layer: int
) -> None:
    """Sorting, padding, dropping upper layers, sharing texts and holding few embeddings change no
    score."""
    encoder = load(config(tiny(family), layer, batch_tokens=200))
    assert encoder.info == ModelInfo(str(tiny(family)), folder_digest(tiny(family)), "float32")
    assert (encoder.layer, encoder.baseline) == (layer, None)
    expected = one_by_one(tiny(family), layer)
    for most_tokens in (token_encoder.WINDOW_TOKENS, 40):
        monkeypatch.setattr(token_encoder, "WINDOW_TOKENS", most_tokens)
        found = encoder.bertscore(CANDIDATES, REFERENCES)
        assert found.dtype == np.float64
        assert np.abs(found - expected).max() <= 2e-6


@pytest.mark.parametrize(
    ("family", "layer", "message"),
    [
        ("bert", -1, "layers 0 to 2; --token-layer -1"),
        ("bert", 3, "layers 0 to 2; --token-layer 3"),
        ("bert", None, "no published layer"),
        ("bart", 1, "not a plain encoder"),
    ],
)
def test_what_has_no_such_layer_is_refused(
    tiny: Folders, family: str, layer: int | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(config(tiny(family), layer))


@pytest.mark.parametrize(
    ("name", "layer", "f1"),
    [
        ("roberta-large", 17, 0.83122575),
        ("FacebookAI/roberta-large@abc123", 17, 0.83122575),
        ("microsoft/deberta-xlarge-mnli", 40, 0.5150192),
        ("google-bert/bert-base-uncased", 9, 0.35219112),
        ("someone/roberta-large", None, None),
    ],
)
def test_published_layers_and_baselines(name: str, layer: int | None, f1: float | None) -> None:
    """Of bert-score's own files; the hub moved models to owners, a stranger's is another one."""
    assert published().layers.get(published_name(name)) == layer
    found = published_baseline(name, layer or 17)
    assert (found and found[2]) == f1
    assert published_baseline(name, 99) is None


def test_the_embedded_encoder_uses_the_backbone_and_its_baseline(
    tiny: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = Published({"embedded": 2}, {("embedded", 2): (0.4, 0.5, 0.6)})
    monkeypatch.setattr(minilm, "find", lambda **_: tiny())
    monkeypatch.setattr(token_encoder, "published", lambda: values)
    encoder = load_model("token_encoder", EncoderConfig(device="cpu", offline=True))
    assert encoder.info == ModelInfo("embedded", minilm.SHA256[:12], "float32")
    assert (encoder.layer, encoder.baseline) == (2, (0.4, 0.5, 0.6))
    found = encoder.bertscore(CANDIDATES, REFERENCES)
    assert np.abs(found - one_by_one(tiny(), 2)).max() <= 2e-6


# Layers of whole texts


@pytest.fixture(scope="module")
def encoder(tiny: Folders) -> BatchedTokenEncoder:
    return load(config(tiny(), batch_tokens=200))


@pytest.mark.parametrize("n_layers", [1, 2, 5])
def test_layers_equal_the_stock_models(
    tiny: Folders, encoder: BatchedTokenEncoder, n_layers: int
) -> None:
    """Unit length, special tokens left out, batches and padding without effect; no more layers
    than the model's two, of which the embeddings are none."""
    heard: list[int] = []
    layers = encoder.token_layers(CANDIDATES, n_layers, on_batch=heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == len(CANDIDATES)
    for text, found in zip(CANDIDATES, layers, strict=True):
        expected = stock_states(tiny(), text)[0][1:][-n_layers:, 1:-1]
        expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
        assert np.abs(found.layers - expected).max() <= 2e-5
        assert len(found.pieces) == len(found.words) == expected.shape[1]


def test_tokens_know_their_words(encoder: BatchedTokenEncoder) -> None:
    (found,) = encoder.token_layers(["Rude zoo!"], 1)
    assert "".join(found.pieces) == "Rudezoo!"
    of_words: dict[int, str] = {}
    for word, piece in zip(found.words.tolist(), found.pieces, strict=True):
        of_words[word] = of_words.get(word, "") + piece
    assert list(of_words.values()) == ["Rude", "zoo", "!"]
