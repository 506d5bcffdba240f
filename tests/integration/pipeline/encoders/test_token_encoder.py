from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn import functional as F
from transformers import AutoTokenizer

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import load_token_encoder, token_encoder
from claimscore.pipeline.encoders.loading import folder_digest
from claimscore.pipeline.encoders.protocols import ModelInfo
from claimscore.pipeline.encoders.token_encoder import (
    BatchedTokenEncoder,
    bertscore_from_embeddings,
    load,
    published,
    published_baseline,
    published_name,
    read_embedded_baseline,
    windows,
)
from tests.support.tiny_models import LONG, TEXTS, Folders, stock_states

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


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize(
    "family", ["bert", "distilbert", "electra", "roberta", "deberta", "xlm-roberta", "albert"]
)
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


UNIT = st.lists(st.floats(-1, 1), min_size=3, max_size=3).filter(lambda v: sum(map(abs, v)) > 0.1)


@given(st.lists(UNIT, min_size=1, max_size=5), st.lists(UNIT, min_size=1, max_size=5))
def test_exchanging_the_texts_exchanges_precision_and_recall(
    first: list[list[float]], second: list[list[float]]
) -> None:
    """F1 is symmetric, and all values are cosines."""
    a, b = (F.normalize(torch.tensor(rows), dim=-1) for rows in (first, second))
    one = bertscore_from_embeddings(a, b, torch.ones(len(a)), torch.ones(len(b)))
    two = bertscore_from_embeddings(b, a, torch.ones(len(b)), torch.ones(len(a)))
    assert (one.precision, one.recall) == pytest.approx((two.recall, two.precision), abs=1e-6)
    assert -1.00001 <= one.precision <= 1.00001


def test_a_token_of_weight_zero_still_is_a_match() -> None:
    """[CLS] takes no part in the mean but may be the best match of another token."""
    candidate, reference = torch.eye(2), torch.eye(2)[:1]
    score = bertscore_from_embeddings(candidate, reference, torch.tensor([0, 1]), torch.ones(1))
    assert score == (0.0, 1.0, 0.0)
    score = bertscore_from_embeddings(candidate, torch.eye(2), torch.ones(2), torch.tensor([0, 1]))
    assert score == (1.0, 1.0, 1.0)
    one, other = torch.eye(2)[:1], torch.eye(2)[1:]
    assert bertscore_from_embeddings(one, other, torch.ones(1), torch.ones(1)).f1 == 0.0
    with pytest.raises(ValueError, match="without tokens"):
        bertscore_from_embeddings(one, other, torch.zeros(1), torch.ones(1))


@pytest.mark.parametrize(
    ("candidates", "references", "message"),
    [
        pytest.param(["a", " \n"], ["b", "c"], "candidate 1 is empty", id="candidate"),
        pytest.param(["a", "b"], ["", "c"], "reference 0 is empty", id="reference"),
        pytest.param(["a"], [], "1 candidates, but 0 references", id="lengths"),
    ],
)
def test_texts_without_a_score_are_named(
    encoder: BatchedTokenEncoder, candidates: list[str], references: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        encoder.bertscore(candidates, references)


SIDES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20)


@given(SIDES, st.lists(st.integers(1, 30), min_size=10, max_size=10), st.integers(1, 100))
def test_windows_cover_the_pairs_within_the_limit(
    pairs: list[tuple[int, int]], lengths: list[int], most: int
) -> None:
    sides = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    found = list(windows(sides, np.array(lengths), most))
    assert [pair for window in found for pair in window] == list(range(len(pairs)))
    for window in found:
        held = {text for pair in window for text in pairs[pair]}
        assert sum(lengths[text] for text in held) <= most or len(window) == 1


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


def test_embedded_baseline_file() -> None:
    layer, baselines = read_embedded_baseline()
    assert sorted(baselines) == [1, 2, 3, 4, 5, 6]
    assert all(0 < value < 1 for value in baselines[layer])


def test_the_embedded_encoder_uses_the_backbone_and_its_baseline(
    tiny: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    from claimscore.pipeline.encoders import embedded

    baselines = 2, {1: (0.1, 0.2, 0.3), 2: (0.4, 0.5, 0.6)}
    monkeypatch.setattr(embedded, "find_backbone", lambda **_: tiny())
    monkeypatch.setattr(token_encoder, "read_embedded_baseline", lambda: baselines)
    encoder = load_token_encoder(EncoderConfig(device="cpu", offline=True))
    assert encoder.info == ModelInfo("embedded", embedded.BACKBONE_SHA256[:12], "float32")
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
