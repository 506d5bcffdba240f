"""The embedded backbone with torch, tokenizers and safetensors alone: its forward and tokenizer.

Why not transformers' classes: importing them takes three seconds, for which a default run would
wait. The order of operations is theirs, so the numbers are equal bit by bit to those of
`packed_backbone` of transformers' model, and the ids to those of transformers' tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.pipeline.encoders.packed import Layer, LayerParts, PackedBackbone
from claimscore.pipeline.encoders.packed_families import BERT_PARTS, linear_of


def packed_bert(
    weights: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> PackedBackbone:
    """Return BERT's encoder from its weights by name, to run packed.

    ``settings`` is the content of its ``config.json``; fewer ``num_hidden_layers`` than there are
    weights for are the lower ones. ``dtype`` is that of the products.
    """
    eps, heads = float(settings["layer_norm_eps"]), int(settings["num_attention_heads"])
    weights = {name: part.to(device, torch.float32) for name, part in weights.items()}
    paths = {field: path for field, path in BERT_PARTS.items() if field != "activation"}
    norms = paths.pop("norms").split("+")

    def linear(name: str) -> nn.Linear:
        return linear_of(weights[f"{name}.weight"], weights[f"{name}.bias"])

    def normed(name: str) -> nn.LayerNorm:
        found = nn.LayerNorm(len(weights[f"{name}.bias"]), eps=eps, device="meta")
        found.weight = nn.Parameter(weights[f"{name}.weight"], requires_grad=False)
        found.bias = nn.Parameter(weights[f"{name}.bias"], requires_grad=False)
        return found

    norm = normed("embeddings.LayerNorm")
    tables = {
        f"{of}_ids": weights[f"embeddings.{part}_embeddings.weight"]
        for of, part in (("input", "word"), ("token_type",) * 2, ("position",) * 2)
    }

    def embed(inputs: dict[str, Tensor]) -> Tensor:
        word, kind, place = (F.embedding(inputs[name][0], table) for name, table in tables.items())
        found: Tensor = norm(word + kind + place)
        return found

    def layer(name: str) -> Layer:
        parts: dict[str, Any] = {f: linear(f"{name}.{path}") for f, path in paths.items()}
        first, second = (normed(f"{name}.{path}") for path in norms)
        return Layer(LayerParts(**parts, norms=(first, second), heads=heads), dtype)

    layers = [layer(f"encoder.layer.{i}") for i in range(int(settings["num_hidden_layers"]))]
    return PackedBackbone(embed, layers, device=device, with_types=True)


class WordPieces:
    """The tokenizer of a BERT folder, as far as `tokenizing` asks transformers' tokenizers.

    A list of texts gives lists of ids, one text gives the ids alone.
    """

    is_fast = True

    def __init__(self, folder: Path) -> None:
        self.backend_tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.model_max_length = int(settings.get("model_max_length", 10**6))

    def __call__(
        self,
        text: str | Sequence[str],
        text_pair: str | Sequence[str] | None = None,
        *,
        add_special_tokens: bool = True,
        truncation: bool | str = False,
        max_length: int | None = None,
        **options: Any,
    ) -> TextEncoding:
        """Return ids, types, masks of special tokens and offsets, whatever ``options`` ask for.

        ``truncation`` cuts to ``max_length``, the longer text of a pair first.
        """
        backend = self.backend_tokenizer
        backend.no_padding()
        if truncation and max_length is not None:
            backend.enable_truncation(max_length, strategy="longest_first")
        else:
            backend.no_truncation()
        if isinstance(text, str):
            return TextEncoding(
                backend.encode(text, text_pair, add_special_tokens=add_special_tokens)
            )
        given = list(text) if text_pair is None else list(zip(text, text_pair, strict=True))
        return TextEncoding(backend.encode_batch(given, add_special_tokens=add_special_tokens))


class TextEncoding:
    """What transformers calls a batch encoding, of one text or of a list."""

    def __init__(self, rows: Any) -> None:  # tokenizers.Encoding, or a list of them
        self._rows = rows

    def __getitem__(self, name: str) -> Any:
        attribute = _FIELDS[name]
        if isinstance(self._rows, list):
            return [getattr(row, attribute) for row in self._rows]
        return getattr(self._rows, attribute)

    def word_ids(self) -> list[int | None]:
        """The word to which each token of the one text belongs, None for special tokens."""
        words: list[int | None] = self._rows.word_ids
        return words


_FIELDS = {
    "input_ids": "ids",
    "token_type_ids": "type_ids",
    "special_tokens_mask": "special_tokens_mask",
    "offset_mapping": "offsets",
}
