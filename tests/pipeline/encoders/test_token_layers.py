"""Token embeddings by layer, against the stock model one text at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.base import RejectedItemsError
from claimscore.pipeline.encoders.tokens import BatchedTokenEncoder, load
from tests.tiny_models import TEXTS, save_tiny_encoder

ALL = [*TEXTS, "a", TEXTS[0], "the hotel was not clean and the staff was rude! " * 9]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_tiny_encoder(tmp_path_factory.mktemp("enc") / "bert")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> BatchedTokenEncoder:
    return load(
        EncoderConfig(
            token_encoder=str(folder), token_layer=2, device="cpu", offline=True, batch_tokens=200
        )
    )


@pytest.mark.parametrize("n_layers", [1, 2])
def test_layers_equal_the_stock_models(
    folder: Path, encoder: BatchedTokenEncoder, n_layers: int
) -> None:
    """Unit length, special tokens left out, batches and padding without effect."""
    model, tokenizer = (
        AutoModel.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    for text, found in zip(ALL, encoder.token_layers(ALL, n_layers), strict=True):
        ids = tokenizer(text, truncation=True, max_length=64)["input_ids"]
        with torch.no_grad():
            states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        layers = np.stack([layer[0, 1:-1].numpy() for layer in states[-n_layers:]])
        layers /= np.linalg.norm(layers, axis=-1, keepdims=True)
        assert np.abs(found.layers - layers).max() <= 2e-5
        assert len(found.pieces) == len(found.words) == layers.shape[1]


def test_there_are_no_more_layers_than_the_model_has(encoder: BatchedTokenEncoder) -> None:
    """Five are asked for, a small model has two; the embeddings below are no layer."""
    assert encoder.token_layers(["a"], 5)[0].layers.shape[0] == 2


def test_tokens_know_their_words(encoder: BatchedTokenEncoder) -> None:
    """What each reads in the text, as it is written there, and which make up one word."""
    (found,) = encoder.token_layers(["Rude zoo!"], 1)
    assert "".join(found.pieces) == "Rudezoo!"
    of_words: dict[int, str] = {}
    for word, piece in zip(found.words.tolist(), found.pieces, strict=True):
        of_words[word] = of_words.get(word, "") + piece
    assert list(of_words.values()) == ["Rude", "zoo", "!"]


def test_texts_without_tokens_are_named(encoder: BatchedTokenEncoder) -> None:
    """A blank text is the caller's mistake; one that the tokenizer drops costs its record."""
    with pytest.raises(ValueError, match="text 0 is empty"):
        encoder.token_layers([" "], 1)
    with pytest.raises(RejectedItemsError, match="leaves nothing") as caught:
        encoder.token_layers(["a", "\u200b", "\u200b"], 1)
    assert (caught.value.kind, caught.value.indices) == ("no_tokens", (1, 2))


def test_a_tokenizer_that_tells_no_places_is_refused(
    encoder: BatchedTokenEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words cannot be put together without them."""
    monkeypatch.setattr(encoder._layers, "_tokenizer", object())
    with pytest.raises(ConfigError, match="name another token encoder"):
        encoder.token_layers(["a"], 1)


def test_progress_counts_texts(encoder: BatchedTokenEncoder) -> None:
    """Repeated ones too."""
    heard: list[int] = []
    encoder.token_layers(ALL, 1, on_batch=heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == len(ALL)
