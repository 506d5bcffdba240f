"""The heads of LS_Score's model, and the folder that holds a trained one.

A checkpoint is a folder: `ls_score.json` (settings), `head.safetensors`, and the backbone, either
beside them (`"backbone": "."`) or by name and exact version (`embedded`, a hub model), with
`backbone.safetensors` for the weights that training has changed. Head tensors have the names of
the published code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.atomic import write_bytes, write_text
from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.loading import (
    LoadedModel,
    ModelFolder,
    ModelLoader,
    check_files,
    folder_digest,
    load_config,
    quiet,
)

FORMAT = "claimscore-ls-score-1"
SETTINGS, HEAD, CHANGED = "ls_score.json", "head.safetensors", "backbone.safetensors"
HERE = "."

#: Bytes of logits that exist at once outside training.
LOGIT_BYTES = 64 * 2**20

HeadKind = Literal["ls", "bert-linear"]


class LinguisticHead(nn.Module):
    """p = softmax(W1ᵀ GELU(W0ᵀ H + b0) + b1), GELU in its tanh form, no LayerNorm.

    Wu et al. 2020: the head that gives each token its probability at its own place.
    New weights, not BERT's masked-language-model head.
    """

    kind: HeadKind = "ls"

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.decoder_l = nn.Sequential(
            nn.Linear(hidden, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, vocabulary)
        )

    def forward(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Return ``[n]`` log-probabilities of ``tokens [n]`` given their ``states [n, hidden]``."""
        logits = self.decoder_l(states.float())
        return -F.cross_entropy(logits, tokens, reduction="none")

    def in_pieces(self, states: Tensor, tokens: Tensor) -> Tensor:
        """As `forward`, with at most `LOGIT_BYTES` of logits in memory at once."""
        rows = max(1, LOGIT_BYTES // (4 * self.vocabulary))
        pieces = zip(torch.split(states, rows), torch.split(tokens, rows), strict=True)
        return torch.cat([self(part, own) for part, own in pieces])


class LinearHead(nn.Module):
    """One linear unit over the [CLS] vectors of document and summary: the BERT+Linear ablation."""

    kind: HeadKind = "bert-linear"

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * hidden, 1)

    def forward(self, document: Tensor, summary: Tensor) -> Tensor:
        """Return ``[n]`` scores of ``[n, hidden]`` documents and summaries."""
        score: Tensor = self.linear(torch.cat([document, summary], dim=-1).float())
        return score[:, 0]


Head = LinguisticHead | LinearHead


@dataclass(frozen=True)
class LSSettings:
    """The content of `ls_score.json`: the backbone and its version, the head, the longest text."""

    backbone: str
    revision: str
    head: HeadKind = "ls"
    max_tokens: int = 512
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.head not in get_args(HeadKind):
            raise ConfigError(f"the head is ls or bert-linear, not {self.head!r}")
        if self.max_tokens < 3:
            raise ConfigError(f"max_tokens must be at least 3, not {self.max_tokens}")


class Checkpoint(NamedTuple):
    """A checkpoint in memory; `revision` is a digest of all that the scores depend on."""

    settings: LSSettings
    backbone: LoadedModel
    head: Head
    revision: str


def new_head(kind: HeadKind, model: Any, seed: int = 0) -> Head:
    """Return a head with BERT's initial weights: normal, deviation 0.02, biases 0."""
    hidden, vocabulary = int(model.config.hidden_size), int(model.config.vocab_size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head: Head = LinguisticHead(hidden, vocabulary) if kind == "ls" else LinearHead(hidden)
        for module in head.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
    return head


def load_backbone(
    spec: str, *, offline: bool = False, device: torch.device | str = "cpu"
) -> LoadedModel:
    """Load ``embedded``, HF_ID[@REV] or a folder; `ConfigError` where it is not like BERT."""
    loader = ModelLoader(EncoderConfig(offline=offline, device=str(device)))
    return _like_bert(loader, loader.find(spec))


def _like_bert(loader: ModelLoader, source: ModelFolder) -> LoadedModel:
    settings = load_config(source)
    if not getattr(settings, "is_encoder_decoder", False):
        loaded = loader.encoder(source, settings)
        if None not in (loaded.tokenizer.cls_token_id, loaded.tokenizer.sep_token_id):
            return loaded
    raise ConfigError(f"{source.name} is not an encoder like BERT: name another backbone")


def write_checkpoint(
    folder: Path, settings: LSSettings, head: Head, backbone: LoadedModel, changed: bool
) -> Path:
    """Write a checkpoint; equal content gives equal bytes. The settings come last.

    A backbone from a folder is written beside the head, whole; one that has a name of its own
    is only named, and its weights are kept where ``changed``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SETTINGS).unlink(missing_ok=True)
    (folder / CHANGED).unlink(missing_ok=True)
    write_bytes(folder / HEAD, save(_tensors(head)))
    if settings.backbone == HERE:
        with quiet():
            backbone.model.save_pretrained(folder)
            backbone.tokenizer.save_pretrained(folder)
    elif changed:
        write_bytes(folder / CHANGED, save(_tensors(backbone.model)))
    content = {"format": FORMAT, **asdict(settings)}
    content["revision"] = folder_digest(folder) if settings.backbone == HERE else settings.revision
    write_text(folder / SETTINGS, json.dumps(content, indent=1, sort_keys=True) + "\n")
    return folder


def read_checkpoint(
    folder: Path, *, offline: bool = False, device: torch.device | str = "cpu"
) -> Checkpoint:
    """Read a checkpoint; `ConfigError` where one is missing, broken, or of another backbone."""
    settings = _read_settings(folder)
    if settings.backbone == HERE:
        source = ModelFolder(str(folder), folder, folder_digest(folder))
        check_files(source)
        loader = ModelLoader(EncoderConfig(offline=offline, device=str(device)))
        backbone = _like_bert(loader, source)
    else:
        backbone = load_backbone(settings.backbone, offline=offline, device=device)
    if backbone.info.revision != settings.revision:
        raise ConfigError(
            f"{folder} was trained on {settings.backbone} at {settings.revision}, but that is now "
            f"{backbone.info.revision}; take the same version, or train again"
        )
    if settings.max_tokens > backbone.limit:
        raise ConfigError(
            f"{folder}: max_tokens is {settings.max_tokens}, but its backbone reads "
            f"{backbone.limit} tokens at most"
        )
    if (folder / CHANGED).is_file():
        _fill(backbone.model, folder / CHANGED)
    head = new_head(settings.head, backbone.model)
    _fill(head, folder / HEAD)
    return Checkpoint(settings, backbone, head.to(device).eval(), _digest(folder))


def _read_settings(folder: Path) -> LSSettings:
    path = folder / SETTINGS
    if not path.is_file():
        raise ConfigError(
            f"{folder} holds no LS_Score model ({SETTINGS} is missing); make one with "
            "`claimscore train ls-score TABLE --out FOLDER`"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT:
            raise ValueError(f"the format is not {FORMAT}")
        return LSSettings(**content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}; train the model again") from exc


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in module.named_parameters()}


def _fill(module: nn.Module, path: Path) -> None:
    """Fill all parameters of the module from a file; `ConfigError` where it does not fit."""
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as exc:
        raise ConfigError(f"{path} cannot be read as safetensors: {exc}") from exc
    wanted = dict(module.named_parameters())
    if wanted.keys() - tensors.keys():
        missing = sorted(wanted.keys() - tensors.keys())
        raise ConfigError(f"{path} has no {', '.join(missing[:3])}: it is not this model's")
    with torch.no_grad():
        for name, value in wanted.items():
            if tensors[name].shape != value.shape:
                raise ConfigError(
                    f"{path}: {name} is {list(tensors[name].shape)}, the backbone needs "
                    f"{list(value.shape)}: it was trained on another backbone"
                )
            value.copy_(tensors[name])


def _digest(folder: Path) -> str:
    """12 hex digits over the settings (which name the backbone's version) and our weights."""
    digest = hashlib.sha256()
    for name in (SETTINGS, HEAD, CHANGED):
        path = folder / name
        if path.is_file():
            with path.open("rb") as file:
                digest.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}".encode())
    return digest.hexdigest()[:12]
