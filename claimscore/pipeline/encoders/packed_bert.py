"""The embedded backbone with torch, tokenizers and safetensors alone: its forward and tokenizer.

Why not transformers' classes: importing them takes three seconds, for which a default run would
wait. The order of operations is theirs, so the numbers are equal bit by bit to those of
`PackedBackbone` on transformers' model, and the ids to those of transformers' tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tokenizers
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.pipeline.encoders.packed import (
    PackedBackbone,
    PackedBatch,
    Segments,
    packed_attention,
    replace_linear,
)
from claimscore.pipeline.encoders.token_rows import TokenBatch


class PackedBert(PackedBackbone):
    """BERT's encoder from its weights by name, run packed; see `Backbone`.

    ``settings`` is the content of its ``config.json``; fewer ``num_hidden_layers`` than there are
    weights for are the lower ones. ``dtype`` is that of the products.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        settings: Mapping[str, Any],
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.device = device
        self._with_types = True
        self._padding_index = None
        weights = {name: part.to(device, torch.float32) for name, part in weights.items()}
        self._embeddings = [
            weights[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "token_type", "position")
        ]
        eps = float(settings["layer_norm_eps"])
        self._norm = _norm(weights, "embeddings.LayerNorm", eps)
        heads = int(settings["num_attention_heads"])
        self._layers = [
            _Layer(weights, f"encoder.layer.{i}", heads=heads, eps=eps, dtype=dtype)
            for i in range(int(settings["num_hidden_layers"]))
        ]

    def _run(self, batch: TokenBatch, *, first_only: bool = False, **options: Any) -> Any:
        packed = batch if isinstance(batch, PackedBatch) else self.prepare(batch)
        word, kind, place = (
            F.embedding(packed.inputs[name], table)
            for name, table in zip(
                ("input_ids", "token_type_ids", "position_ids"), self._embeddings, strict=True
            )
        )
        hidden = [self._norm(word + kind + place)]
        for i, layer in enumerate(self._layers, 1):
            last = first_only and i == len(self._layers)
            hidden.append(layer(hidden[-1], packed.segments, first_only=last))
            if not options.get("output_hidden_states"):
                del hidden[0]
        return SimpleNamespace(last_hidden_state=hidden[-1], hidden_states=hidden)


class _Layer:
    """One layer, ``[1, tokens, hidden]`` to the same, or to ``[1, rows, hidden]``."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        name: str,
        *,
        heads: int,
        eps: float,
        dtype: torch.dtype,
    ) -> None:
        def linear(part: str, out: torch.dtype) -> nn.Module:
            return replace_linear(_linear(weights, f"{name}.{part}"), dtype, out)

        self._heads = heads
        self._query, self._key, self._value = (
            linear(f"attention.self.{part}", dtype) for part in ("query", "key", "value")
        )
        self._attended = linear("attention.output.dense", torch.float32)
        self._inner = linear("intermediate.dense", dtype)
        self._outer = linear("output.dense", torch.float32)
        self._attention_norm = _norm(weights, f"{name}.attention.output.LayerNorm", eps)
        self._norm = _norm(weights, f"{name}.output.LayerNorm", eps)

    def __call__(self, states: Tensor, segments: Segments, *, first_only: bool) -> Tensor:
        asked = states[:, segments.starts] if first_only else states
        query, key, value = (
            linear(given).unflatten(-1, (self._heads, -1)).transpose(1, 2)
            for linear, given in (
                (self._query, asked),
                (self._key, states),
                (self._value, states),
            )
        )
        context, _ = packed_attention(
            None, query, key, value, None, segments=segments, scaling=query.shape[-1] ** -0.5
        )
        attended = self._attention_norm(self._attended(context.flatten(2)) + asked)
        found: Tensor = self._norm(self._outer(F.gelu(self._inner(attended))) + attended)
        return found


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
