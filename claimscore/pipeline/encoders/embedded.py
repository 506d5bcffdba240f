"""The embedded NLI model: all-MiniLM-L6-v2 plus an adapter that ships with claimscore.

The adapter (int8 differences to the backbone's upper layers, and a classification head) is package
data of less than 12 MB. Weights are read as safetensors only, and the loaded module answers in the
order of its ``id2label``.

It runs without transformers, whose import takes three seconds. The order of operations is theirs,
so the numbers are equal bit by bit to those of `packed_backbone` of transformers' model, and the
ids to those of transformers' tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore import minilm
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import LoadedEncoder
from claimscore.pipeline.encoders.packed import Layer, LayerParts, PackedBackbone
from claimscore.pipeline.encoders.packed_families import BERT_PARTS, linear_of
from claimscore.pipeline.encoders.protocols import ModelInfo
from claimscore.text import NORMAL_FORM

ADAPTER_PATH = Path(__file__).parent / "data" / "embedded_nli.safetensors"
ADAPTER_FORMAT = "claimscore-embedded-nli-1"
ADAPTER_VERSION = "3"
METADATA_KEY = "claimscore"
HEAD_WIDTH = 256
ID2LABEL = {0: "contradiction", 1: "neutral", 2: "entailment"}


class Adapter(NamedTuple):
    """The content of the adapter file: tensors to apply and the metadata that describes them."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]

    @property
    def temperature(self) -> float:
        """What logits are divided by."""
        return float(self.metadata.get("temperature", "1.0"))

    @property
    def threshold(self) -> float | None:
        """The probability of entailment from which on a text carries a claim, where one is fit."""
        threshold = self.metadata.get("threshold")
        return None if threshold is None else float(threshold)


class SegmentHead(nn.Module):
    """Classify a pair from the two mean-pooled segments of its joint encoding.

    Why not the usual first-token pooler: the backbone is a sentence-embedding model, so the means
    of the two segments are meaningful from the first step, and training starts from the quality
    of sentence embeddings instead of from chance.
    """

    def __init__(self, hidden: int, width: int = HEAD_WIDTH, dropout: float = 0.1) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(5 * hidden)
        self.f1 = nn.Linear(5 * hidden, width)
        self.drop = nn.Dropout(dropout)
        self.f2 = nn.Linear(width, len(ID2LABEL))

    def classify(self, cls: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return the logits for unit vectors: first token, premise mean, hypothesis mean."""
        product = first * second * first.shape[-1] ** 0.5
        features = torch.cat([cls, first, second, (first - second).abs(), product], dim=-1)
        hidden = F.gelu(self.f1(self.ln(features * first.shape[-1] ** 0.5)))
        logits: Tensor = self.f2(self.drop(hidden))
        return logits


class PackedNLI(NamedTuple):
    """The embedded NLI model as a run uses it: the adapted backbone, and what follows it."""

    encoder: LoadedEncoder
    head: SegmentHead
    temperature: float
    threshold: float | None


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the content of the backbone's ``config.json``."""
    settings: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return settings


def load_packed(
    info: ModelInfo,
    folder: Path,
    settings: Mapping[str, Any],
    *,
    device: torch.device,
    dtype: torch.dtype,
    weights: Mapping[str, Tensor] | None = None,
) -> LoadedEncoder:
    """Return the backbone in a folder from `minilm.find`, by default with its own weights.

    ``settings`` may name fewer layers than it has; ``dtype`` is that of the products.
    """
    weights = load_file(folder / "model.safetensors") if weights is None else weights
    tokenizer = WordPieces(folder)
    return LoadedEncoder(
        info,
        packed_bert(weights, settings, device=device, dtype=dtype),
        tokenizer,
        min(tokenizer.model_max_length, int(settings["max_position_embeddings"])),
    )


def load_packed_nli(
    info: ModelInfo, *, device: torch.device, dtype: torch.dtype, offline: bool = False
) -> PackedNLI:
    """Return the embedded NLI model, packed: the numbers of `EmbeddedNLI` in `scripts/judge`."""
    folder = minilm.find(offline=offline)
    settings, content = read_settings(folder), read_adapter(ADAPTER_PATH)
    weights = load_file(folder / "model.safetensors")
    with torch.random.fork_rng(devices=[]):
        head = SegmentHead(int(settings["hidden_size"]))
    apply_adapter(content, weights, head)
    return PackedNLI(
        load_packed(info, folder, settings, device=device, dtype=dtype, weights=weights),
        head.to(device).eval(),
        content.temperature,
        content.threshold,
    )


@cache
def adapter_revision(path: Path = ADAPTER_PATH) -> str:
    """Return version and digest of an adapter, and the form of the texts that the model reads: what
    tables record as its revision."""
    return f"{ADAPTER_VERSION}-{minilm.file_sha256(path)[:12]},{NORMAL_FORM}"


def read_adapter(path: Path) -> Adapter:
    """Return an adapter's tensors and metadata; refuse files of another format or backbone."""
    try:
        tensors = load_file(path)
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
    except (OSError, ValueError, SafetensorError) as exc:
        raise ConfigError(f"the NLI adapter {path} cannot be read as safetensors: {exc}") from exc
    if metadata.get("format") != ADAPTER_FORMAT:
        raise ConfigError(
            f"{path} is not an adapter of format {ADAPTER_FORMAT} (scripts/judge makes one)"
        )
    if metadata.get("backbone_sha256") != minilm.SHA256:
        raise ConfigError(f"the NLI adapter {path} was trained on another backbone")
    return Adapter(tensors, metadata)


def apply_adapter(adapter: Adapter, encoder: Mapping[str, Tensor], head: SegmentHead) -> None:
    """Add the adapter's differences to the backbone's weights and fill the head, in place.

    Every tensor of the adapter must have its parameter: an unknown name raises ``ConfigError``.
    """
    parts = {"bert": encoder, "head": dict(head.named_parameters())}
    with torch.no_grad():
        for name, value in unpack(adapter.tensors).items():
            part, _, key = name.partition(".")
            target = parts.get(part, {}).get(key)
            if target is None or target.shape != value.shape:
                raise ConfigError(f"the NLI adapter holds {name!r}, which the model does not have")
            if part == "bert":
                target.add_(value)
            else:
                target.copy_(value)


def unpack(packed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return float32 tensors by name: of matrices int8 (``name:q``) and the scale of each row
    (``name:scale``), of vectors float16."""
    named: dict[str, Tensor] = {}
    for name, value in packed.items():
        base, _, kind = name.partition(":")
        if kind == "q":
            named[base] = value.float() * packed[f"{base}:scale"][:, None]
        elif not kind:
            named[base] = value.float()
    return named


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
        layer_norm = nn.LayerNorm(len(weights[f"{name}.bias"]), eps=eps, device="meta")
        layer_norm.weight = nn.Parameter(weights[f"{name}.weight"], requires_grad=False)
        layer_norm.bias = nn.Parameter(weights[f"{name}.bias"], requires_grad=False)
        return layer_norm

    norm = normed("embeddings.LayerNorm")
    tables = {
        f"{of}_ids": weights[f"embeddings.{part}_embeddings.weight"]
        for of, part in (("input", "word"), ("token_type",) * 2, ("position",) * 2)
    }

    def embed(inputs: dict[str, Tensor]) -> Tensor:
        word, kind, place = (F.embedding(inputs[name][0], table) for name, table in tables.items())
        states: Tensor = norm(word + kind + place)
        return states

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
