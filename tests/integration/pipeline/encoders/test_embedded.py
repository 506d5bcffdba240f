"""The embedded NLI model: loaded, and its adapters checked. All offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertTokenizer

from claimscore import minilm
from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import embedded, nli
from claimscore.pipeline.encoders.embedded import ADAPTER_PATH, WordPieces
from scripts.judge import model as judge
from tests.support.embedded_models import needs_backbone
from tests.support.tiny_models import LONG, TEXTS


def test_the_model_card_names_the_shipped_adapter() -> None:
    """The card and the file, package data of less than 12 MB, are changed together."""
    card = (ADAPTER_PATH.parent / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert minilm.file_sha256(ADAPTER_PATH) in card
    assert f"{ADAPTER_PATH.stat().st_size:,}" in card
    assert ADAPTER_PATH.stat().st_size <= 12_000_000


def test_adapters_of_another_kind_are_refused(tmp_path: Path) -> None:
    path, weights = tmp_path / "adapter.safetensors", {"head.f2.bias": torch.zeros(3)}
    torch.save(weights, path)
    with pytest.raises(ConfigError, match="safetensors"):
        embedded.read_adapter(path)
    other = {"format": embedded.ADAPTER_FORMAT, "backbone_sha256": "0"}
    for metadata, message in (({}, "not an adapter of format"), (other, "another backbone")):
        save_file(weights, path, metadata={embedded.METADATA_KEY: json.dumps(metadata)})
        with pytest.raises(ConfigError, match=message):
            embedded.read_adapter(path)


@needs_backbone
def test_the_tokenizer_is_that_of_transformers() -> None:
    """Ids, types, special tokens, offsets and words, of texts and of pairs, cut and whole."""
    folder = minilm.find(offline=True)
    own, stock = WordPieces(folder), BertTokenizer.from_pretrained(folder)
    assert own.model_max_length == stock.model_max_length
    texts = [*TEXTS, LONG, "Café no. 12½ — naïve, don’t!", "価格は¥3,000 😀 [SEP]", "\tA\n b "]
    fields = ("input_ids", "token_type_ids", "special_tokens_mask", "offset_mapping")
    wanted = (*fields[1:3], "offsets_mapping")
    options = {f"return_{name}": True for name in wanted}
    for seconds in (None, texts[::-1], [""] * len(texts)):
        for cut in ({}, {"truncation": "longest_first", "max_length": 9}):
            found, expected = own(texts, seconds, **cut), stock(texts, seconds, **options, **cut)
            for name in fields:
                assert found[name] == expected[name]
    plain = own(texts, add_special_tokens=False)["input_ids"]
    assert plain == stock(texts, add_special_tokens=False)["input_ids"]
    assert own(LONG).word_ids() == stock(LONG).word_ids()


@needs_backbone
@pytest.mark.parametrize("threshold", [None, 0.25])
def test_an_adapter_may_come_with_a_threshold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threshold: float | None
) -> None:
    content = embedded.read_adapter(embedded.ADAPTER_PATH)
    given = {name: value for name, value in content.metadata.items() if name != "threshold"}
    if threshold is not None:
        given["threshold"] = str(threshold)
    monkeypatch.setattr(embedded, "ADAPTER_PATH", tmp_path / "adapter.safetensors")
    judge.write_adapter(tmp_path / "adapter.safetensors", content.tensors, given)
    assert nli.load(EncoderConfig(offline=True)).threshold == threshold
