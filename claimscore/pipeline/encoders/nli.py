"""NLI over pairs of texts: any sequence-classification model that knows the three labels.

Every distinct pair is judged once, in batches of similar length, and the answers come back in the
order of the input. The label order is read from the model's config and never assumed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders.backbone import (
    BatchedModel,
    padded_model,
    refuse_nan,
    row_sums,
)
from claimscore.pipeline.encoders.distinct import Pair, distinct_pairs
from claimscore.pipeline.encoders.embedded import ID2LABEL, PackedNLI, load_packed_nli
from claimscore.pipeline.encoders.loading import (
    EMBEDDED,
    LoadedModel,
    ModelFolder,
    ModelLoader,
    load_config,
)
from claimscore.pipeline.encoders.packed_families import (
    classifier_logits,
    family_of,
    packed_backbone,
)
from claimscore.pipeline.encoders.protocols import (
    NLI_LABELS,
    ModelInfo,
    OnBatch,
    label_columns,
)
from claimscore.pipeline.encoders.throughput import metered
from claimscore.pipeline.encoders.token_rows import TokenBatch
from claimscore.pipeline.encoders.tokenizing import PairTokenizer, joined_template


class PairLogits(NamedTuple):
    """A model's logits ``[rows, 3]`` of a batch; ``prepare`` is as in `Backbone`."""

    device: torch.device
    padded: bool
    logits: Callable[[TokenBatch], Tensor]
    prepare: Callable[[TokenBatch], TokenBatch] = lambda batch: batch


class BatchedPairClassifier(BatchedModel):
    """Probabilities of entailment, neutral and contradiction from one model on one device.

    Guarantees: rows in the order of the input, each distinct pair computed once, softmax in
    float32, and never a score from a NaN. ``columns`` are the places of the three labels among the
    model's logits; one without contradiction leaves that out. ``threshold`` is the probability of
    entailment from which on a text carries a claim, where the model comes with one that was
    fitted. ``given`` are settings beyond the model's own that change the numbers. It is a
    `Verifier`.
    """

    def __init__(
        self,
        info: ModelInfo,
        model: PairLogits,
        tokenizer: PairTokenizer,
        *,
        columns: tuple[int, ...],
        batch_tokens: int | None = None,
        threshold: float | None = None,
        given: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(info, model.device, padded=model.padded, batch_tokens=batch_tokens)
        self.kind = "nli" if len(columns) == len(NLI_LABELS) else "binary"
        self.threshold = threshold
        self.given = dict(given or {})
        self._model = model
        self._tokenizer = tokenizer
        self.columns = list(columns)

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
        """The settings besides `info` that change the numbers, for the stored results."""
        return {"limit": str(self._tokenizer.limit), "packed": str(self.packed), **self.given}

    @metered()
    @torch.inference_mode()
    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, 3]`` probabilities; `RejectedItemsError` for a pair that fits nowhere."""
        given = distinct_pairs(pairs)
        encoded = self._tokenizer.encode(given)
        logits: list[Tensor] = []
        order: list[NDArray[np.int64]] = []

        def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
            logits.append(self._model.logits(batch))
            order.append(places)

        self._runner.run_items(
            given.pairs,
            encoded.lengths,
            forward,
            build=encoded.rows.batch,
            prepare=self._model.prepare,
            item="a pair",
            on_batch=on_batch,
        )
        if not logits:
            return np.zeros((0, 3), dtype=np.float32)
        found = np.empty((len(given.pairs.items), 3), dtype=np.float32)
        found[np.concatenate(order)] = self._probabilities(torch.cat(logits))
        return found[given.pairs.inverse]

    def text_lengths(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return how many tokens each of distinct texts has, special ones not among them."""
        return self._tokenizer.text_lengths(texts)

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        """Return for each pair whether it is longer than the model reads, ``[n]``."""
        unique = distinct_pairs(pairs)
        return self._tokenizer.truncates(unique)[unique.pairs.inverse]

    def _probabilities(self, logits: Tensor) -> NDArray[np.float32]:
        probabilities = torch.softmax(refuse_nan(logits.float(), self.info), dim=-1)
        array = np.full((len(logits), len(NLI_LABELS)), np.nan, dtype=np.float32)
        array[:, : len(self.columns)] = probabilities[:, self.columns].cpu().numpy()
        return array


def load(config: EncoderConfig) -> BatchedPairClassifier:
    """Load the classifier that ``config.nli`` names; `ConfigError` where it cannot judge NLI."""
    loader = ModelLoader(config)
    if config.nli != EMBEDDED:
        source = loader.find(config.nli)
        settings = load_config(source)
        columns = label_columns(source.name, settings.id2label)
        return load_classifier(loader, source, settings, columns)
    own = load_packed_nli(device=loader.device, dtype=loader.dtype, offline=config.offline)
    backbone, logits = own.encoder.backbone, partial(_segment_logits, own)
    return BatchedPairClassifier(
        ModelInfo(EMBEDDED, own.revision, loader.config.dtype),
        PairLogits(loader.device, backbone.padded, logits, backbone.prepare),
        PairTokenizer(own.encoder.tokenizer, own.encoder.limit),
        columns=label_columns(EMBEDDED, ID2LABEL),
        batch_tokens=config.batch_tokens,
        threshold=own.threshold,
    )


def load_classifier(
    loader: ModelLoader,
    source: ModelFolder,
    settings: Any,
    columns: tuple[int, ...],
    *,
    is_joined: bool = False,
    **options: Any,
) -> BatchedPairClassifier:
    """Load a sequence classifier. Its one output is the logit of column 1, beside a logit of 0;
    ``is_joined`` where it takes a pair as one text (`joined_template`)."""
    from transformers import AutoModelForSequenceClassification

    loaded = loader.load(source, AutoModelForSequenceClassification, settings)
    model = stock = _stock_logits(loaded, loader.dtype)
    if settings.num_labels == 1:
        model = stock._replace(logits=lambda batch: F.pad(stock.logits(batch), (1, 0)))
    template = joined_template(loaded.tokenizer, "") if is_joined else None
    pairs = PairTokenizer(loaded.tokenizer, loaded.limit, template)
    batch_tokens = loader.config.batch_tokens
    return BatchedPairClassifier(
        loaded.info, model, pairs, columns=columns, batch_tokens=batch_tokens, **options
    )


def _segment_logits(model: PackedNLI, batch: TokenBatch) -> Tensor:
    """The embedded model's logits ``[rows, 3]`` from its encoder's states."""
    states = model.encoder.backbone.states(batch)
    seconds = np.add.reduceat(batch.types, batch.starts)
    sizes = np.stack([batch.lengths - seconds, seconds], axis=1)
    sums = row_sums(states, sizes.reshape(-1)).view(-1, 2, states.shape[1])
    counts = torch.from_numpy(sizes).to(sums.device).clamp(min=1).unsqueeze(2)
    first, second = F.normalize(sums / counts, dim=-1).unbind(1)
    cls = F.normalize(states[torch.from_numpy(batch.starts).to(states.device)], dim=-1)
    return model.head.classify(cls, first, second) / model.temperature


def _stock_logits(loaded: LoadedModel, dtype: torch.dtype) -> PairLogits:
    """The classifier's logits: packed where its family can be, else its own forward."""
    model, with_types = loaded.model, _takes_types(loaded)
    if family_of(model.config) is None:
        stock = padded_model(model, loaded.tokenizer, with_types=with_types)
        return PairLogits(stock.device, True, lambda batch: stock(batch).logits)
    backbone = packed_backbone(model.base_model, dtype=dtype, with_types=with_types)
    logits = classifier_logits(model, backbone)
    return PairLogits(backbone.device, False, logits, backbone.prepare)


def _takes_types(loaded: LoadedModel) -> bool:
    """Whether the model tells the two texts apart by token types (RoBERTa and others do not)."""
    return (
        "token_type_ids" in loaded.tokenizer.model_input_names
        and "token_type_ids" in inspect.signature(loaded.model.forward).parameters
        and getattr(loaded.model.config, "type_vocab_size", 2) > 1
    )
