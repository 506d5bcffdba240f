"""NLI over pairs of texts: any sequence-classification model that knows the three labels.

Every distinct pair is judged once, in batches of similar length, and the answers come back in the
order of the input. The label order is read from the model's config and never assumed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders.backbone import (
    Backbone,
    RunsInBudget,
    padded_model,
    refuse_nan,
    row_sums,
)
from claimscore.pipeline.encoders.base import CountsTruncated, ModelInfo, OnBatch
from claimscore.pipeline.encoders.batching import BudgetedRunner
from claimscore.pipeline.encoders.embedded import EmbeddedNLI, find_backbone, load_embedded_nli
from claimscore.pipeline.encoders.labels import label_columns
from claimscore.pipeline.encoders.loaded import Loaded, Target
from claimscore.pipeline.encoders.loading import EMBEDDED, find_model, load_config, load_tokenizer
from claimscore.pipeline.encoders.paces import Paced, paced
from claimscore.pipeline.encoders.packed import PackedBackbone, family_of
from claimscore.pipeline.encoders.pairs import Pair, distinct_pairs
from claimscore.pipeline.encoders.token_rows import TokenBatch
from claimscore.pipeline.encoders.tokenizing import PairTokenizer

Prepare = Callable[[TokenBatch], TokenBatch]


class BatchedPairClassifier(RunsInBudget, CountsTruncated, Paced):
    """Probabilities of entailment, neutral and contradiction from one model on one device.

    Guarantees: rows in the order of the input, each distinct pair computed once, softmax in
    float32, and never a score from a NaN. ``logits`` gives ``[rows, 3]`` of a batch, for which
    ``prepare`` has done what can be done before (`Backbone.prepare`); ``truncated`` counts the
    pairs cut to the model's limit.
    """

    def __init__(
        self,
        info: ModelInfo,
        logits: Callable[[TokenBatch], Tensor],
        tokenizer: PairTokenizer,
        *,
        columns: tuple[int, int, int],
        runner: BudgetedRunner,
        prepare: Prepare = lambda batch: batch,
    ) -> None:
        self.info = info
        self._logits = logits
        self._tokenizer = tokenizer
        self._columns = list(columns)
        self._runner = runner
        self._prepare = prepare

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

    @paced
    @torch.inference_mode()
    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, 3]`` probabilities; `RejectedItemsError` for a pair that fits nowhere."""
        given = distinct_pairs(pairs)
        unique = given.pairs
        counts = unique.counts
        encoded = self._tokenizer.encode(given)
        self.count_truncated(int(counts[encoded.truncated].sum()))
        logits: list[Tensor] = []
        order: list[NDArray[np.int64]] = []

        def build(places: NDArray[np.int64]) -> TokenBatch:
            return self._prepare(encoded.rows.batch(places))

        def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
            logits.append(self._logits(batch))
            order.append(places)

        done = 0
        for places in self._runner.run_or_reject(
            encoded.lengths,
            forward,
            build=build,
            item="a pair",
            owners=unique.positions,
        ):
            if on_batch is not None:
                done += int(counts[places].sum())
                on_batch(done)
        if not logits:
            return np.zeros((0, 3), dtype=np.float32)
        found = np.empty((len(unique.items), 3), dtype=np.float32)
        found[np.concatenate(order)] = self._probabilities(torch.cat(logits))
        return found[unique.inverse]

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        """Return for each pair whether it is longer than the model reads, ``[n]``."""
        unique = distinct_pairs(pairs)
        return self._tokenizer.truncates(unique)[unique.pairs.inverse]

    def _probabilities(self, logits: Tensor) -> NDArray[np.float32]:
        probabilities = torch.softmax(refuse_nan(logits.float(), self.info), dim=-1)
        array: NDArray[np.float32] = probabilities[:, self._columns].cpu().numpy()
        return array


def load(config: EncoderConfig) -> BatchedPairClassifier:
    """Load the classifier that ``config.nli`` names; `ConfigError` where it cannot judge NLI."""
    target = Target.of(config)
    return _load_embedded(target) if config.nli == EMBEDDED else _load_stock(target)


def _load_embedded(target: Target) -> BatchedPairClassifier:
    model, tokenizer = load_embedded_nli(find_backbone(offline=target.config.offline))
    model.to(target.device).eval()
    loaded = target.take(model.bert, tokenizer, model.revision)
    backbone = loaded.backbone(with_types=True)
    logits = partial(_segment_logits, model, backbone)
    return BatchedPairClassifier(
        loaded.info,
        logits,
        PairTokenizer(tokenizer, loaded.limit),
        columns=label_columns(EMBEDDED, model.id2label),
        runner=loaded.runner(logits),
        prepare=backbone.prepare,
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


def _load_stock(target: Target) -> BatchedPairClassifier:
    from transformers import AutoModelForSequenceClassification

    source = find_model(target.config.nli, offline=target.config.offline)
    settings = load_config(source)
    columns = label_columns(source.name, settings.id2label)
    tokenizer = load_tokenizer(source)
    if getattr(settings, "pad_token_id", None) is None:
        settings.pad_token_id = tokenizer.pad_token_id
    loaded = target.load(source, settings, tokenizer, AutoModelForSequenceClassification)
    logits, prepare = _logits(loaded)
    return BatchedPairClassifier(
        loaded.info,
        logits,
        PairTokenizer(tokenizer, loaded.limit),
        columns=columns,
        runner=loaded.runner(logits),
        prepare=prepare,
    )


def _logits(loaded: Loaded) -> tuple[Callable[[TokenBatch], Tensor], Prepare]:
    """The classifier's logits of a batch: packed where its family can be, else its own forward.

    And what is done for a batch before.
    """
    model, with_types = loaded.model, _takes_types(loaded)
    family = family_of(model.config)
    if family is None:
        stock = padded_model(model, loaded.tokenizer, with_types=with_types)
        return lambda batch: stock(batch).logits, lambda batch: batch
    backbone = PackedBackbone(model.base_model, dtype=loaded.target.dtype, with_types=with_types)
    return lambda batch: family.head(model, backbone.first(batch)), backbone.prepare


def _takes_types(loaded: Loaded) -> bool:
    """Whether the model tells the two texts apart by token types (RoBERTa and others do not)."""
    return (
        "token_type_ids" in loaded.tokenizer.model_input_names
        and "token_type_ids" in inspect.signature(loaded.model.forward).parameters
        and getattr(loaded.settings, "type_vocab_size", 2) > 1
    )
