"""Sentence embeddings: against the stock model one text at a time, and sentence-transformers."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from claimscore import minilm
from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.embedder import LAYOUT_FILES, PLAIN, load
from claimscore.pipeline.encoders.loading import folder_digest
from claimscore.pipeline.encoders.protocols import ModelInfo
from tests.support.embedded_models import needs_backbone
from tests.support.tiny_models import LONG, TEXTS, Folders, save_tiny_encoder, stock_states

ALL = [*TEXTS, TEXTS[0], "a", LONG, "Größe 東京 🙂"]


def config(folder: Path, **options: Any) -> EncoderConfig:
    return EncoderConfig(embedder=str(folder), device="cpu", offline=True, **options)


def save_sentence_model(
    folder: Path,
    *,
    pooling: dict[str, Any] | None = None,
    more: tuple[str, ...] = ("Normalize",),
    max_tokens: int | None = None,
    family: str = "bert",
) -> Path:
    """A tiny encoder with the files that sentence-transformers writes beside it."""
    save_tiny_encoder(folder, family)
    kinds = ("Transformer", "Pooling", *more)
    paths = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds) if i)]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    content = pooling or {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": True}
    files: dict[str, Any] = {"modules.json": modules, "1_Pooling/config.json": content}
    if max_tokens is not None:
        settings = {"max_seq_length": max_tokens, "do_lower_case": True}
        files["sentence_bert_config.json"] = settings
    for path in paths:
        (folder / path).mkdir(exist_ok=True)
    for name, described in files.items():
        (folder / name).write_text(json.dumps(described))
    return folder


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "deberta", "xlm-roberta"])
def test_batches_equal_one_text_at_a_time(
    tiny: Folders, family: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Sorting, padding and sharing texts change no vector; a plain encoder gives the mean, which
    is a choice that nobody made for this model."""
    with caplog.at_level(logging.WARNING, "claimscore"):
        encoder = load(config(tiny(family), batch_tokens=200))
    assert encoder.layout is PLAIN
    assert "no sentence-transformers model" in caplog.text
    found = encoder.embed(ALL)
    expected = [stock_states(tiny(family), text)[0][-1].mean(axis=0) for text in ALL]
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() <= 2e-5


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode": "cls"},
        {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True},  # older files
    ],
)
def test_the_first_token_may_be_what_is_read(tmp_path: Path, pooling: dict[str, Any]) -> None:
    folder = save_sentence_model(tmp_path / "m", pooling=pooling, more=())
    expected = [stock_states(folder, text)[0][-1][0] for text in ALL]
    assert np.abs(load(config(folder)).embed(ALL) - expected).max() <= 2e-5


@pytest.mark.parametrize("more", [(), ("Normalize",)], ids="-".join)
def test_equal_to_sentence_transformers(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Unit length, their limit of tokens and lower-casing: the same numbers."""
    package = pytest.importorskip("sentence_transformers")
    folder = save_sentence_model(tmp_path / "m", more=more, max_tokens=20, family="roberta")
    theirs = package.SentenceTransformer(str(folder), device="cpu")
    encoder = load(config(folder))
    expected = theirs.encode(ALL, show_progress_bar=False)
    assert np.abs(encoder.embed(ALL) - expected).max() <= 1e-5
    assert (encoder.limit, encoder.truncates(ALL).any()) == (20, True)
    assert encoder.facts["layout"] == " ".join(("mean", *(name.lower() for name in more)))


@needs_backbone
def test_the_embedded_model_is_all_minilm() -> None:
    """Mean of the last states, unit length, 256 tokens: what sentence-transformers gives."""
    package = pytest.importorskip("sentence_transformers")
    encoder = load_model("embedder", EncoderConfig(device="cpu", offline=True))
    assert encoder.info == ModelInfo("embedded", minilm.SHA256[:12], "float32")
    texts = ["car fast", "car quick", *TEXTS[:2], LONG * 5]
    found = encoder.embed(texts)
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() <= 1e-6
    theirs = package.SentenceTransformer(str(minilm.find()), device="cpu")
    assert np.abs(theirs.encode(texts, show_progress_bar=False) - found).max() <= 1e-5


def test_the_revision_covers_the_layout(tmp_path: Path) -> None:
    folder = save_sentence_model(tmp_path / "m")
    first = load(config(folder)).info.revision
    assert first == folder_digest(folder, LAYOUT_FILES)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    assert load(config(folder)).info.revision != first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"more": ("LayerNorm",)}, "module LayerNorm is not known", id="module"),
        pytest.param({"pooling": {"pooling_mode": "lasttoken"}}, "pooling lasttoken", id="pooling"),
        pytest.param({"pooling": {"pooling_mode": ["mean", "max"]}}, r"mean\+max", id="poolings"),
        pytest.param({"more": ("Dense", "Normalize")}, "module Dense is not known", id="dense"),
    ],
)
def test_a_step_that_is_not_known_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(config(save_sentence_model(tmp_path / "m", **options)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("modules.json", "{", "cannot be read", id="broken"),
        pytest.param("modules.json", "[]", "a pooling are expected", id="no modules"),
        pytest.param("modules.json", "3", "not a list", id="no list"),
        pytest.param("modules.json", '[{"path": "../.."}]', "outside of the model", id="above"),
        pytest.param("modules.json", '[{"path": "/etc"}]', "outside of the model", id="absolute"),
        pytest.param("1_Pooling/config.json", None, "cannot be read", id="no pooling"),
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
    path = save_sentence_model(tmp_path / "m") / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load(config(tmp_path / "m"))
