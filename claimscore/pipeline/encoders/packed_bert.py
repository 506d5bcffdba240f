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
    weights = {name: part.to(device, torch.float32) for name, part in weights.items()}
    tables = {
        f"{name}_ids": weights[f"embeddings.{part}_embeddings.weight"]
        for name, part in (
            ("input", "word"),
            ("token_type", "token_type"),
            ("position", "position"),
        )
    }
    eps = float(settings["layer_norm_eps"])
    norm = _norm(weights, "embeddings.LayerNorm", eps)

    def embed(inputs: dict[str, Tensor]) -> Tensor:
        word, kind, place = (F.embedding(inputs[name][0], table) for name, table in tables.items())
        found: Tensor = norm(word + kind + place)
        return found

    def parts(name: str) -> LayerParts:
        return LayerParts(
            query=_linear(weights, f"{name}.attention.self.query"),
            key=_linear(weights, f"{name}.attention.self.key"),
            value=_linear(weights, f"{name}.attention.self.value"),
            attended=_linear(weights, f"{name}.attention.output.dense"),
            inner=_linear(weights, f"{name}.intermediate.dense"),
            outer=_linear(weights, f"{name}.output.dense"),
            norms=(
                _norm(weights, f"{name}.attention.output.LayerNorm", eps),
                _norm(weights, f"{name}.output.LayerNorm", eps),
            ),
            heads=int(settings["num_attention_heads"]),
        )

    n_layers = int(settings["num_hidden_layers"])
    layers = [Layer(parts(f"encoder.layer.{i}"), dtype) for i in range(n_layers)]
    return PackedBackbone(embed, layers, device=device, with_types=True)


def _linear(weights: Mapping[str, Tensor], name: str) -> nn.Linear:
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    linear.weight, linear.bias = nn.Parameter(weight, False), nn.Parameter(bias, False)
    return linear


def _norm(weights: Mapping[str, Tensor], name: str, eps: float) -> nn.LayerNorm:
    weight = weights[f"{name}.weight"]
    norm = nn.LayerNorm(weight.shape[0], eps=eps, device="meta")
    norm.weight = nn.Parameter(weight, requires_grad=False)
    norm.bias = nn.Parameter(weights[f"{name}.bias"], requires_grad=False)
    return norm


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
