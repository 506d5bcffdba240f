"""LS_Score's model: its head, the folder that holds a trained one, and the model at work.

Wu et al. 2020. Both texts are cut to the model's limit less two (510 word pieces) and stand between
[CLS] and [SEP], each alone, segment 0, nothing masked.

A checkpoint is a folder as `save_pretrained` writes it, with `ls_score.json` (settings) and
`head.safetensors`, whose tensors have the names of the published code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.atomic import write_bytes, write_text
from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import (
    LoadedEncoder,
    TextModel,
    encoder_backbone,
    refuse_nan,
)
from claimscore.pipeline.encoders.distinct import Distinct, distinct
from claimscore.pipeline.encoders.loading import (
    LoadedModel,
    ModelFolder,
    ModelLoader,
    check_files,
    folder_digest,
    load_config,
    quiet,
)
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch
from claimscore.pipeline.encoders.tokenizing import TokenBatch

FORMAT = "claimscore-ls-score-2"
SETTINGS, HEAD = "ls_score.json", "head.safetensors"

#: Bytes of logits that exist at once outside training.
LOGIT_BYTES = 64 * 2**20


class LinguisticHead(nn.Module):
    """p = softmax(W1ᵀ GELU(W0ᵀ H + b0) + b1), GELU in its tanh form, no LayerNorm.

    Wu et al. 2020: the head that gives each token its probability at its own place.
    New weights, not BERT's masked-language-model head.
    """

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
        return torch.cat([self(part, ids) for part, ids in pieces])


@dataclass(frozen=True)
class LSSettings:
    """The content of `ls_score.json`: the longest text, and how the model was trained."""

    max_tokens: int = 512
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_tokens < 3:
            raise ConfigError(f"max_tokens must be at least 3, not {self.max_tokens}")


class Checkpoint(NamedTuple):
    """A checkpoint in memory; the backbone's version is a digest of all its files."""

    settings: LSSettings
    backbone: LoadedModel
    head: LinguisticHead


def new_head(model: Any, seed: int = 0) -> LinguisticHead:
    """Return a head with BERT's initial weights: normal, deviation 0.02, biases 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = LinguisticHead(int(model.config.hidden_size), int(model.config.vocab_size))
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
    folder: Path, settings: LSSettings, head: LinguisticHead, backbone: LoadedModel
) -> Path:
    """Write a checkpoint; equal content gives equal bytes. The settings come last."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SETTINGS).unlink(missing_ok=True)
    with quiet():
        backbone.model.save_pretrained(folder)
        backbone.tokenizer.save_pretrained(folder)
    tensors = {name: value.detach().cpu() for name, value in head.named_parameters()}
    write_bytes(folder / HEAD, save(tensors))
    content = {"format": FORMAT, **asdict(settings)}
    write_text(folder / SETTINGS, json.dumps(content, indent=1, sort_keys=True) + "\n")
    return folder


def read_checkpoint(folder: Path, *, device: torch.device | str = "cpu") -> Checkpoint:
    """Read a checkpoint; `ConfigError` where a file is missing, broken, or of another model."""
    settings = _read_settings(folder)
    source = ModelFolder(str(folder), folder, folder_digest(folder, (SETTINGS, HEAD)))
    check_files(source)
    backbone = _like_bert(ModelLoader(EncoderConfig(offline=True, device=str(device))), source)
    if settings.max_tokens > backbone.limit:
        raise ConfigError(
            f"{folder}: max_tokens is {settings.max_tokens}, but its backbone reads "
            f"{backbone.limit} tokens at most"
        )
    head = new_head(backbone.model)
    try:
        head.load_state_dict(load_file(folder / HEAD))
    except (OSError, SafetensorError) as exc:
        raise ConfigError(f"{folder / HEAD} cannot be read as safetensors: {exc}") from exc
    except RuntimeError as exc:
        raise ConfigError(f"{folder / HEAD} is no head of the model beside it") from exc
    return Checkpoint(settings, backbone, head.to(device).eval())


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


class LSModel(TextModel):
    """A backbone and LS_Score's head on one device.

    Guarantees: numbers in the order of the pairs, each distinct text encoded once a call, never
    more than `LOGIT_BYTES` of logits at once, and never a number from a NaN.
    """

    def __init__(
        self, loaded: LoadedEncoder, head: LinguisticHead, batch_tokens: int | None
    ) -> None:
        super().__init__(loaded, batch_tokens)
        self._head = head

    def scores(
        self, sources: Sequence[str], targets: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float64]:
        """Return ``[n, 5]`` numbers of each document with its summary: the mean log-probability of
        the summary's tokens, that without [CLS] and [SEP], the cosine, the summary's tokens with
        the special ones, and the word pieces of it that were cut off.

        Raises `RejectedItemsError` naming the pairs with a text of which the tokenizer leaves
        nothing or which does not fit into memory. ``on_batch`` as in `PairClassifier`.
        """
        documents, summaries = distinct(sources), distinct(targets)
        document_ids, summary_ids = self._encoded(documents), self._encoded(summaries)

        def first_states(places: list[int], batch: TokenBatch) -> Tensor:
            return refuse_nan(self._backbone.first(batch), self.info)

        def states_and_means(places: list[int], batch: TokenBatch) -> Iterator[_Summary]:
            states = refuse_nan(self._backbone.states(batch), self.info)
            first = states[torch.from_numpy(batch.starts).to(states.device)]
            values = np.split(self._log_probs(states, batch.ids), batch.starts[1:])
            for state, logs in zip(first, values, strict=True):
                yield _Summary(state, logs.mean(), logs[1:-1].mean())

        half = _half(on_batch, 0), _half(on_batch, len(sources))
        read = self._each(documents, document_ids.rows, first_states, half[0])
        scored = self._each(summaries, summary_ids.rows, states_and_means, half[1])
        left = _stacked(read, documents)
        right = _stacked([summary.state for summary in scored], summaries)
        means = np.array([summary[1:] for summary in scored]).reshape(-1, 2)
        counts = np.stack([summary_ids.lengths, summary_ids.n_cut], axis=1)
        means, counts = means[summaries.inverse], counts[summaries.inverse]
        return np.column_stack([means, _cosines(left, right), counts])

    def _log_probs(self, states: Tensor, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """The log-probability of each id at its own place, ``[tokens]``."""
        tokens = torch.from_numpy(ids).to(states.device)
        values = self._head.in_pieces(states, tokens).double()
        logs: NDArray[np.float64] = refuse_nan(values, self.info).cpu().numpy()
        return logs


def load(config: EncoderConfig) -> LSModel:
    """Load the checkpoint that ``config.ls_model`` names; `ConfigError` where it names none."""
    assert config.ls_model is not None, "check_named"
    loader = ModelLoader(config)
    folder = Path(config.ls_model).expanduser()
    settings, backbone, head = read_checkpoint(folder, device=loader.device)
    loaded = LoadedEncoder(
        ModelInfo(config.ls_model, backbone.info.revision, loader.config.dtype),
        encoder_backbone(backbone.model, backbone.tokenizer, dtype=loader.dtype),
        backbone.tokenizer,
        settings.max_tokens,
    )
    return LSModel(loaded, head, config.batch_tokens)


class _Summary(NamedTuple):
    """A summary's first state, and the means of its tokens' log-probabilities, whole and inner."""

    state: Tensor
    mean: float
    inner: float


def _stacked(vectors: list[Tensor], texts: Distinct[str]) -> Tensor:
    if not vectors:
        return torch.zeros(0, 1)
    rows = torch.stack(vectors)
    return rows[torch.from_numpy(texts.inverse).to(rows.device)]


def _cosines(left: Tensor, right: Tensor) -> NDArray[np.float64]:
    """Cosines of rows, in float64; the product of the norms counts as 1e-6 at least."""
    a, b = left.double().cpu().numpy(), right.double().cpu().numpy()
    norms = np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-6)
    cosines: NDArray[np.float64] = np.clip((a * b).sum(axis=1) / norms, -1.0, 1.0)
    return cosines


def _half(on_batch: OnBatch | None, before: int) -> OnBatch | None:
    """A listener for one of two texts of each pair, after ``before`` texts of pairs."""
    return None if on_batch is None else lambda done: on_batch((before + done) // 2)
