from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoTokenizer

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import load_token_encoder, token_encoder
from claimscore.pipeline.encoders.loading import folder_digest
from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError
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
from tests.support.fake_encoders import states_of
from tests.support.shared_data import shared
from tests.support.tiny_models import TEXTS, save_tiny_encoder, save_tiny_nli

#: No time limits: tests share their cores with other work.
steady = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
Folders = Callable[..., Path]

FAMILIES = ("bert", "distilbert", "electra", "roberta", "deberta", "xlm-roberta", "albert")
CANDIDATES = [*TEXTS, TEXTS[0], "a", TEXTS[3]]
REFERENCES = [*TEXTS[1:], TEXTS[0], TEXTS[0], TEXTS[4], "quiet rooms"]
LONG = "the hotel was not clean and the staff was rude! " * 9


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Gives the folder of a tiny encoder; each is made once."""
    made: dict[str, Path] = {}

    def folder(family: str = "bert") -> Path:
        if family not in made:
            made[family] = save_tiny_encoder(tmp_path_factory.mktemp("enc") / family, family)
        return made[family]

    return folder


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def config(folder: Path, layer: int | None = 2, **options: Any) -> EncoderConfig:
    return EncoderConfig(
        token_encoder=str(folder), token_layer=layer, device="cpu", offline=True, **options
    )


def one_by_one(
    folder: Path, candidates: list[str], references: list[str], layer: int
) -> NDArray[np.float64]:
    """BERTScore written out for one pair at a time, on the stock model's hidden states."""
    model, tokenizer = (
        AutoModel.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    space = " " if "Roberta" in type(tokenizer).__name__ else ""

    def embed(text: str) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        inputs = tokenizer(
            space + text, truncation=True, max_length=64, return_special_tokens_mask=True
        )
        with torch.no_grad():
            states = model(torch.tensor([inputs["input_ids"]]), output_hidden_states=True)
        vectors = states.hidden_states[layer][0].numpy()
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors, np.array(inputs["special_tokens_mask"]) == 0

    rows = []
    for candidate, reference in zip(candidates, references, strict=True):
        (c, own_c), (r, own_r) = embed(candidate), embed(reference)
        cosine = (c @ r.T).astype(np.float64)
        p, q = cosine.max(axis=1)[own_c].mean(), cosine.max(axis=0)[own_r].mean()
        rows.append([p, q, 2 * p * q / (p + q)])
    return np.array(rows)


class FakeModel:
    """States that depend on the token alone, a memory of `most_tokens`, and a record of rows."""

    def __init__(self, most_tokens: int = 10**9) -> None:
        self.most_tokens = most_tokens
        self.rows: Counter[tuple[int, ...]] = Counter()
        self.widths: list[int] = []
        self.table = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0))

    def __call__(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        if input_ids.numel() > self.most_tokens:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")
        self.widths.append(input_ids.shape[1])
        for row, mask in zip(input_ids, attention_mask, strict=True):
            self.rows[tuple(row[mask.bool()].tolist())] += 1
        return self.table[input_ids]


def fake(
    tiny: Folders, model: FakeModel, budget: int = 256, *, left: bool = False
) -> BatchedTokenEncoder:
    tokenizer = AutoTokenizer.from_pretrained(tiny())
    return BatchedTokenEncoder(
        ModelInfo("fake", "1", "float32"),
        states_of(model, tokenizer, left=left),
        tokenizer,
        layer=1,
        baseline=None,
        limit=64,
        batch_tokens=budget,
    )


@pytest.mark.parametrize("layer", [1, 2])
def test_golden_numbers_of_bert_score(layer: int) -> None:
    """Equal to bert-score 0.3.13 to the digits that were printed."""
    cases = json.loads(shared("data/bertscore/golden.json").read_text())["cases"]
    encoder = load_token_encoder(config(shared("data/ls_score/tiny_bert"), layer))
    found = encoder.bertscore([c["candidate"] for c in cases], [c["reference"] for c in cases])
    expected = [[case[f"layer{layer}"][key] for key in "PRF"] for case in cases]
    assert np.abs(found - expected).max() <= 1e-6


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [1, 2])
def test_batches_equal_one_pair_at_a_time(tiny: Folders, family: str, layer: int) -> None:
    """Sorting, padding, dropping upper layers and sharing texts change no score."""
    candidates, references = [*CANDIDATES, LONG], [*REFERENCES, TEXTS[0]]
    encoder = load(config(tiny(family), layer, batch_tokens=200))
    found = encoder.bertscore(candidates, references)
    assert found.dtype == np.float64
    assert np.abs(found - one_by_one(tiny(family), candidates, references, layer)).max() <= 2e-6


def test_layers_above_the_chosen_one_are_not_loaded(tiny: Folders) -> None:
    """They would cost memory and time and change nothing."""
    layers = {n: load(config(tiny(), n)) for n in (0, 1)}
    models = [encoder._backbone._model for encoder in layers.values()]
    assert [len(model.encoder.layer) for model in models] == [0, 1]
    assert [encoder.layer for encoder in layers.values()] == [0, 1]


def test_models_with_a_list_of_layer_types_are_shortened_too() -> None:
    """Newer configs name each layer's kind; the list must keep the length of the model."""
    settings = AutoConfig.for_model("modernbert", num_hidden_layers=6)
    token_encoder.keep_layers("m", settings, 4, None)
    assert (settings.num_hidden_layers, len(settings.layer_types)) == (4, 4)


def test_a_classifiers_encoder_can_be_read(tmp_path: Path) -> None:
    """A checkpoint with a head on top (roberta-large-mnli) is an encoder all the same."""
    encoder = load(config(save_tiny_nli(tmp_path / "nli", "roberta")))
    assert encoder.bertscore(TEXTS[:1], TEXTS[:1])[0] == pytest.approx([1, 1, 1], abs=1e-6)


def test_info_names_model_revision_and_dtype(tiny: Folders) -> None:
    """What a table records to find the model again; a folder has no published baseline."""
    encoder = load_token_encoder(config(tiny(), 1))
    assert encoder.info == ModelInfo(str(tiny()), folder_digest(tiny()), "float32")
    assert (encoder.layer, encoder.baseline) == (1, None)


@pytest.mark.parametrize("layer", [-1, 3])
def test_a_layer_that_is_not_there_is_refused(tiny: Folders, layer: int) -> None:
    """The message says which layers there are."""
    with pytest.raises(ConfigError, match=f"layers 0 to 2; --token-layer {layer}"):
        load(config(tiny(), layer))


def test_a_model_without_a_published_layer_must_be_told_one(tiny: Folders) -> None:
    """A guess would be a number that nobody else can compare with."""
    with pytest.raises(ConfigError, match="no published layer"):
        load(config(tiny(), None))


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    """Its last state is the decoder's, which is not what BERTScore reads."""
    with pytest.raises(ConfigError, match="not a plain encoder"):
        load(config(save_tiny_encoder(tmp_path / "bart", "bart")))


UNIT = st.lists(st.floats(-1, 1), min_size=3, max_size=3).filter(lambda v: sum(map(abs, v)) > 0.1)


@steady
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


def test_f1_is_zero_where_precision_and_recall_are() -> None:
    """No division by zero becomes a NaN."""
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
    tiny: Folders, candidates: list[str], references: list[str], message: str
) -> None:
    """An empty text is the caller's mistake, not a score of zero."""
    with pytest.raises(ValueError, match=message):
        fake(tiny, FakeModel()).bertscore(candidates, references)


def test_texts_that_the_tokenizer_drops_are_named(tiny: Folders) -> None:
    """A zero-width space is no empty string, but leaves no token: a failure row for its pairs."""
    with pytest.raises(RejectedItemsError, match="leaves nothing") as caught:
        fake(tiny, FakeModel()).bertscore(["a", "\u200b", "b"], ["b", "a", "\u200b"])
    assert (caught.value.kind, caught.value.indices) == ("no_tokens", (1, 2))


def test_each_distinct_text_is_encoded_once(tiny: Folders) -> None:
    """A text takes part in several pairs and on both sides."""
    model = FakeModel()
    found = fake(tiny, model).bertscore(["a", "b", " a", "b"], ["b", "a", "b", "b"])
    assert sorted(model.rows.values()) == [1, 1]
    assert np.array_equal(found[0], found[2])
    assert found[3] == pytest.approx([1, 1, 1])


def test_a_small_window_gives_the_same_numbers(
    tiny: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few embeddings held at once cost time, not accuracy."""
    whole = fake(tiny, FakeModel()).bertscore(CANDIDATES, REFERENCES)
    monkeypatch.setattr(token_encoder, "WINDOW_TOKENS", 40)
    assert np.array_equal(fake(tiny, FakeModel()).bertscore(CANDIDATES, REFERENCES), whole)


SIDES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20)


@steady
@given(SIDES, st.lists(st.integers(1, 30), min_size=10, max_size=10), st.integers(1, 100))
def test_windows_cover_the_pairs_within_the_limit(
    pairs: list[tuple[int, int]], lengths: list[int], most: int
) -> None:
    """Every pair once, in order; only a single pair may exceed the limit."""
    sides = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    found = list(windows(sides, np.array(lengths), most))
    assert [pair for window in found for pair in window] == list(range(len(pairs)))
    for window in found:
        held = {text for pair in window for text in pairs[pair]}
        assert sum(lengths[text] for text in held) <= most or len(window) == 1


def test_a_smaller_memory_gives_the_same_numbers(tiny: Folders) -> None:
    """Out of memory halves the batch and changes neither numbers nor order."""
    whole = fake(tiny, FakeModel()).bertscore(CANDIDATES, REFERENCES)
    small = FakeModel(most_tokens=70)
    assert np.array_equal(fake(tiny, small).bertscore(CANDIDATES, REFERENCES), whole)
    assert set(small.rows.values()) == {1}


def test_a_text_that_fits_nowhere_names_its_pairs(tiny: Folders) -> None:
    """The caller learns which pairs to leave out."""
    encoder = fake(tiny, FakeModel(most_tokens=40))
    with pytest.raises(RejectedItemsError, match="a text of 64 tokens") as caught:
        encoder.bertscore(["a", LONG, "b"], [LONG, "b", "a"])
    assert (caught.value.kind, caught.value.indices) == ("out_of_memory", (0, 1))
    assert encoder.bertscore(["b"], ["a"]).shape == (1, 3)


def test_nan_is_an_error_and_never_a_score(tiny: Folders) -> None:
    """A broken state must not become a similarity."""
    model = FakeModel()
    model.table[:] = float("nan")
    with pytest.raises(ConfigError, match="not finite in float32"):
        fake(tiny, model).bertscore(["a"], ["b"])


def test_on_batch_counts_pairs_and_may_stop(tiny: Folders) -> None:
    """Progress is the number of pairs that have their scores."""
    heard: list[int] = []
    fake(tiny, FakeModel(), budget=60).bertscore(CANDIDATES, REFERENCES, on_batch=heard.append)
    assert heard == sorted(heard)
    assert (heard[-1], len(heard) > 2) == (len(CANDIDATES), True)

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fake(tiny, FakeModel()).bertscore(["a"], ["b"], on_batch=stop)


def test_no_pairs_give_no_rows(tiny: Folders) -> None:
    """An empty input is an empty table."""
    found = fake(tiny, FakeModel()).bertscore([], [])
    assert (found.shape, found.dtype) == ((0, 3), np.float64)


def test_long_texts_are_cut_and_counted(tiny: Folders) -> None:
    """Truncation changes what is compared, so it is not silent."""
    encoder = fake(tiny, FakeModel())
    assert encoder.truncates([LONG, "a", LONG]).tolist() == [True, False, True]


def test_the_same_input_gives_the_same_bits(tiny: Folders) -> None:
    """Batches are a function of the input alone."""
    first, second = (load(config(tiny())).bertscore(CANDIDATES, REFERENCES) for _ in range(2))
    assert np.array_equal(first, second)


def test_left_padding_is_respected(tiny: Folders) -> None:
    """Padding lies where the tokenizer says, and never takes part."""
    encoder = fake(tiny, FakeModel(), left=True)
    plain = fake(tiny, FakeModel()).bertscore(CANDIDATES, REFERENCES)
    assert np.array_equal(encoder.bertscore(CANDIDATES, REFERENCES), plain)


@pytest.mark.parametrize(
    ("name", "layer", "expected"),
    [
        pytest.param("roberta-large", 17, 0.83122575, id="roberta-large"),
        pytest.param("microsoft/deberta-xlarge-mnli", 40, 0.5150192, id="deberta"),
        pytest.param("bert-base-uncased", 9, 0.35219112, id="bert"),
    ],
)
def test_published_baselines(name: str, layer: int, expected: float) -> None:
    """The F1 baselines of bert-score's own files, at the layers that its authors chose."""
    assert published().layers[name] == layer
    found = published_baseline(name, layer)
    assert found is not None
    assert found[2] == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("FacebookAI/roberta-large@abc123", "roberta-large"),
        ("google-bert/bert-base-uncased", "bert-base-uncased"),
        ("microsoft/deberta-base", "microsoft/deberta-base"),
        ("someone/roberta-large", "someone/roberta-large"),
        ("roberta-large", "roberta-large"),
    ],
)
def test_published_names_leave_out_the_owners_of_today(name: str, expected: str) -> None:
    """The hub moved models to owners; a stranger's model of the same name is another one."""
    assert published_name(name) == expected


def test_a_model_or_layer_without_a_baseline_has_none() -> None:
    """Scores then stay unscaled, and the caller says so."""
    assert published_baseline("someone/roberta-large", 17) is None
    assert published_baseline("roberta-large", 99) is None


def test_every_baseline_has_a_default_layer_within_it() -> None:
    """The two tables that were copied fit together."""
    for name, rows in published().baselines.items():
        assert 0 <= published().layers[name] < len(rows)
        assert all(len(row) == 3 for row in rows)


def test_embedded_baseline_file(tmp_path: Path) -> None:
    """Layers by number; the default layer is the last unless the file names one."""
    path = tmp_path / "baseline.json"
    rows = {"5": {"precision": 0.1, "recall": 0.2, "f1": 0.3}}
    path.write_text(json.dumps({"layers": rows}))
    assert read_embedded_baseline(path) == (6, {5: (0.1, 0.2, 0.3)})
    path.write_text(json.dumps({"default_layer": 5, "source": "text", **rows}))
    assert read_embedded_baseline(path) == (5, {5: (0.1, 0.2, 0.3)})


@pytest.mark.parametrize("content", [None, "[]", "{", '{"layers": {"6": {"precision": 1}}}'])
def test_a_missing_or_broken_baseline_file_says_what_to_do(
    tmp_path: Path, content: str | None
) -> None:
    """The install is incomplete; no score without a baseline is passed off as one."""
    path = tmp_path / "baseline.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="install claimscore again"):
        read_embedded_baseline(path)


def test_the_embedded_encoder_uses_the_backbone_and_its_baseline(
    tiny: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layer, baseline and revision come with the package."""
    from claimscore.pipeline.encoders import embedded

    parts = AutoModel.from_pretrained(tiny()), AutoTokenizer.from_pretrained(tiny())
    monkeypatch.setattr(embedded, "find_backbone", lambda **_: tiny())
    monkeypatch.setattr(embedded, "load_backbone", lambda folder, config: parts)
    monkeypatch.setattr(
        token_encoder,
        "read_embedded_baseline",
        lambda: (2, {1: (0.1, 0.2, 0.3), 2: (0.4, 0.5, 0.6)}),
    )
    settings = EncoderConfig(device="cpu", offline=True)
    encoder = load_token_encoder(settings)
    assert encoder.info == ModelInfo("embedded", embedded.BACKBONE_SHA256[:12], "float32")
    assert (encoder.layer, encoder.baseline) == (2, (0.4, 0.5, 0.6))
    found = encoder.bertscore(CANDIDATES, REFERENCES)
    assert np.abs(found - one_by_one(tiny(), CANDIDATES, REFERENCES, 2)).max() <= 2e-6


# Layers of whole texts

ALL = [*TEXTS, "a", TEXTS[0], "the hotel was not clean and the staff was rude! " * 9]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_tiny_encoder(tmp_path_factory.mktemp("enc") / "bert")


@pytest.fixture(scope="module")
def encoder(bert: Path) -> BatchedTokenEncoder:
    return load(
        EncoderConfig(
            token_encoder=str(bert), token_layer=2, device="cpu", offline=True, batch_tokens=200
        )
    )


@pytest.mark.parametrize("n_layers", [1, 2])
def test_layers_equal_the_stock_models(
    bert: Path, encoder: BatchedTokenEncoder, n_layers: int
) -> None:
    """Unit length, special tokens left out, batches and padding without effect."""
    model, tokenizer = (
        AutoModel.from_pretrained(bert).eval(),
        AutoTokenizer.from_pretrained(bert),
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


def test_texts_without_layers_are_named(encoder: BatchedTokenEncoder) -> None:
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
    monkeypatch.setattr(encoder, "_tokenizer", object())
    with pytest.raises(ConfigError, match="name another token encoder"):
        encoder.token_layers(["a"], 1)


def test_progress_of_layers_counts_texts(encoder: BatchedTokenEncoder) -> None:
    """Repeated ones too."""
    heard: list[int] = []
    encoder.token_layers(ALL, 1, on_batch=heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == len(ALL)
