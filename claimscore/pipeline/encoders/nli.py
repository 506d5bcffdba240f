"""NLI over pairs of texts: any sequence-classification model that knows the three labels.

Every distinct pair is judged once, in batches of similar length, and the answers come back in the
order of the input. The label order is read from the model's config and never assumed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import (
    Backbone,
    budgeted_runner,
    encoder_backbone,
    padded_model,
    refuse_nan,
    row_sums,
    weights_dtype,
)
from claimscore.pipeline.encoders.base import NLI_LABELS, ModelInfo, OnBatch
from claimscore.pipeline.encoders.batching import BudgetedRunner, distinct
from claimscore.pipeline.encoders.budgets import Budget, Probe
from claimscore.pipeline.encoders.embedded import EmbeddedNLI, find_backbone, load_embedded_nli
from claimscore.pipeline.encoders.loading import (
    EMBEDDED,
    find_model,
    load_config,
    load_tokenizer,
    load_weights,
    resolve_device,
    resolve_dtype,
    token_limit,
)
from claimscore.pipeline.encoders.packed import PackedBackbone, family_of
from claimscore.pipeline.encoders.token_rows import TokenBatch
from claimscore.pipeline.encoders.tokenizing import Pair, PairTokenizer

#: How models spell the three labels, in lower case.
LABEL_NAMES = {
    "entailment": "entailment",
    "entail": "entailment",
    "entails": "entailment",
    "entailed": "entailment",
    "neutral": "neutral",
    "contradiction": "contradiction",
    "contradict": "contradiction",
    "contradicts": "contradiction",
    "contradictory": "contradiction",
}


class BatchedPairClassifier:
    """Probabilities of entailment, neutral and contradiction from one model on one device.

    Guarantees: rows in the order of the input, each distinct pair computed once, softmax in
    float32, and never a score from a NaN. ``logits`` gives ``[rows, 3]`` of a batch;
    ``truncated`` counts the pairs cut to the model's limit.
    """

    def __init__(
        self,
        info: ModelInfo,
        logits: Callable[[TokenBatch], Tensor],
        tokenizer: PairTokenizer,
        *,
        columns: tuple[int, int, int],
        runner: BudgetedRunner,
    ) -> None:
        self.info = info
        self.truncated = 0
        self._logits = logits
        self._tokenizer = tokenizer
        self._columns = list(columns)
        self._runner = runner

    @property
    def packed(self) -> bool:
        """Whether the model runs without padding."""
        return not self._runner.padded

    @property
    def budget(self) -> Budget:
        """Tokens in one forward pass, and where the number is from."""
        return Budget(self._runner.budget, self._runner.origin)

    @property
    def limit(self) -> int:
        """The most tokens of a pair, its special ones included."""
        return self._tokenizer.limit

    @property
    def pairs_from_ids(self) -> bool:
        """Whether each text is tokenised once and pairs are put together from ids."""
        return self._tokenizer.template is not None

    @property
    def facts(self) -> dict[str, str]:
        """What the numbers depend on besides `info`, for the store of results."""
        return {"limit": str(self._tokenizer.limit), "packed": str(self.packed)}

    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, 3]`` probabilities; `RejectedItemsError` for a pair that fits nowhere."""
        unique = distinct(pairs)
        counts = unique.counts
        encoded = self._tokenizer.encode(unique.items)
        self.truncated += int(counts[encoded.truncated].sum())
        found = np.empty((len(unique.items), 3), dtype=np.float32)

        def forward(places: NDArray[np.int64]) -> None:
            found[places] = self._probabilities(encoded.rows.batch(places))

        done = 0
        for places in self._runner.run_or_reject(
            encoded.lengths, forward, item="a pair", owners=unique.positions
        ):
            done += int(counts[places].sum())
            if on_batch is not None:
                on_batch(done)
        return found[unique.inverse]

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        """Return for each pair whether it is longer than the model reads, ``[n]``."""
        unique = distinct(pairs)
        return self._tokenizer.truncates(unique.items)[unique.inverse]

    @torch.inference_mode()
    def _probabilities(self, batch: TokenBatch) -> NDArray[np.float32]:
        logits = refuse_nan(self._logits(batch).float(), self.info)
        probabilities = torch.softmax(logits, dim=-1)[:, self._columns]
        array: NDArray[np.float32] = probabilities.cpu().numpy()
        return array


def load(config: EncoderConfig) -> BatchedPairClassifier:
    """Load the classifier that ``config.nli`` names; `ConfigError` where it cannot judge NLI."""
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    if config.nli == EMBEDDED:
        return _load_embedded(config, device, dtype)
    return _load_stock(config, device, dtype)


def label_columns(model: str, id2label: Mapping[Any, str]) -> tuple[int, int, int]:
    """Return the model's columns of entailment, neutral and contradiction.

    Refuses a model whose labels are not exactly the three, such as LABEL_0: guessing an order
    would turn every score round.
    """
    named = {LABEL_NAMES.get(str(name).strip().lower()): int(i) for i, name in id2label.items()}
    if len(id2label) != 3 or set(named) != set(NLI_LABELS):
        shown = ", ".join(str(name) for name in list(id2label.values())[:6])
        raise ConfigError(
            f"{model} is not an NLI model: its labels are {shown}; it needs "
            "entailment, neutral and contradiction in its config's id2label"
        )
    return named["entailment"], named["neutral"], named["contradiction"]


def _load_embedded(
    config: EncoderConfig, device: torch.device, dtype: torch.dtype
) -> BatchedPairClassifier:
    model, tokenizer = load_embedded_nli(find_backbone(offline=config.offline))
    model.to(device).eval()
    bert: Any = model.bert
    limit = token_limit(tokenizer, bert.config, model)
    backbone = encoder_backbone(bert, tokenizer, dtype=dtype, with_types=True)
    info = ModelInfo(EMBEDDED, model.revision, config.dtype)
    logits = partial(_segment_logits, model, backbone)
    probe = Probe(info, limit, bert.config, logits)
    return BatchedPairClassifier(
        info,
        logits,
        PairTokenizer(tokenizer, limit),
        columns=label_columns(EMBEDDED, model.id2label),
        runner=budgeted_runner(config.batch_tokens, device, padded=backbone.padded, probe=probe),
    )


def _segment_logits(model: EmbeddedNLI, backbone: Backbone, batch: TokenBatch) -> Tensor:
    """The embedded model's logits ``[rows, 3]`` from its encoder's states."""
    states = backbone.states(batch)
    seconds = np.add.reduceat(batch.types, batch.starts)
    sizes = np.stack([batch.lengths - seconds, seconds], axis=1)
    sums = row_sums(states, sizes.reshape(-1)).view(-1, 2, states.shape[1])
    counts = torch.from_numpy(sizes).to(sums.device).clamp(min=1).unsqueeze(2)
    first, second = F.normalize(sums / counts, dim=-1).unbind(1)
    cls = F.normalize(states[torch.from_numpy(batch.starts).to(states.device)], dim=-1)
    return model.head.classify(cls, first, second) / model.temperature


def _load_stock(
    config: EncoderConfig, device: torch.device, dtype: torch.dtype
) -> BatchedPairClassifier:
    from transformers import AutoModelForSequenceClassification

    source = find_model(config.nli, offline=config.offline)
    settings = load_config(source)
    columns = label_columns(source.name, settings.id2label)
    tokenizer = load_tokenizer(source)
    if getattr(settings, "pad_token_id", None) is None:
        settings.pad_token_id = tokenizer.pad_token_id
    model = load_weights(
        source,
        AutoModelForSequenceClassification,
        settings,
        device=device,
        dtype=weights_dtype(settings, dtype),
    )
    limit = token_limit(tokenizer, settings, model)
    with_types = _takes_types(tokenizer, settings, model)
    logits = _logits(model, tokenizer, dtype=dtype, with_types=with_types)
    info = ModelInfo(source.name, source.revision, config.dtype)
    padded, probe = family_of(settings) is None, Probe(info, limit, settings, logits)
    return BatchedPairClassifier(
        info,
        logits,
        PairTokenizer(tokenizer, limit),
        columns=columns,
        runner=budgeted_runner(config.batch_tokens, device, padded=padded, probe=probe),
    )


def _logits(
    model: Any, tokenizer: Any, *, dtype: torch.dtype, with_types: bool
) -> Callable[[TokenBatch], Tensor]:
    """The classifier's logits of a batch: packed where its family can be, else its own forward."""
    family = family_of(model.config)
    if family is None:
        stock = padded_model(model, tokenizer, with_types=with_types)
        return lambda batch: stock(batch).logits
    backbone = PackedBackbone(model.base_model, dtype=dtype, with_types=with_types)
    return lambda batch: family.head(model, backbone.first(batch))


def _takes_types(tokenizer: Any, settings: Any, model: Any) -> bool:
    """Whether the model tells the two texts apart by token types (RoBERTa and others do not)."""
    return (
        "token_type_ids" in tokenizer.model_input_names
        and "token_type_ids" in inspect.signature(model.forward).parameters
        and getattr(settings, "type_vocab_size", 2) > 1
    )
