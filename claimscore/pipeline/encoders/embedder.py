"""One vector a text, from a sentence encoder: the numbers that sentence-transformers gives."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import Backbone, RunsInBudget, refuse_nan
from claimscore.pipeline.encoders.base import CountsTruncated, ModelInfo, OnBatch
from claimscore.pipeline.encoders.batching import BudgetedRunner, distinct
from claimscore.pipeline.encoders.loaded import Loaded, Target
from claimscore.pipeline.encoders.loading import EMBEDDED, find_model, load_config
from claimscore.pipeline.encoders.paces import Paced, paced
from claimscore.pipeline.encoders.sentence_layout import (
    LAYOUT_FILES,
    PLAIN,
    SentenceLayout,
    normalised,
    read_layout,
)
from claimscore.pipeline.encoders.token_rows import TokenBatch
from claimscore.pipeline.encoders.tokenizing import TextTokenizer, refuse_bare

logger = logging.getLogger("claimscore")

#: What the authors of all-MiniLM-L6-v2 let it read, and what they do with its states.
EMBEDDED_LIMIT = 256
EMBEDDED_LAYOUT = SentenceLayout("mean", (normalised,), ("mean", "normalize"), limit=EMBEDDED_LIMIT)


class BatchedEmbedder(RunsInBudget, CountsTruncated, Paced):
    """Sentence embeddings from one model on one device.

    Guarantees: rows in the order of the input, each distinct text encoded once, and never a
    vector with a NaN. ``layout`` says what is done with the token states, ``limit`` how many
    tokens are read; ``truncated`` counts the distinct texts cut to it.
    """

    def __init__(
        self,
        info: ModelInfo,
        backbone: Backbone,
        tokenizer: Any,  # transformers' tokenizers: untyped
        *,
        layout: SentenceLayout,
        limit: int,
        runner: BudgetedRunner,
    ) -> None:
        self.info = info
        self.layout = layout
        self.limit = limit if layout.limit is None else min(limit, layout.limit)
        self._backbone = backbone
        self._tokenizer = TextTokenizer(tokenizer, self.limit)
        self._runner = runner

    @property
    def facts(self) -> dict[str, str]:
        """What the numbers depend on besides `info`, for the store of results."""
        return {
            "limit": str(self.limit),
            "layout": " ".join(self.layout.names),
            "lower_case": str(self.layout.lower_case),
            "packed": str(self.packed),
        }

    @paced
    def embed(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, d]`` vectors in the order of the texts; no texts give ``[0, 0]``.

        ``on_batch`` hears the number of texts done after each batch and may raise to stop. Raises
        `ValueError` for a blank text, and `RejectedItemsError` naming the texts of which the
        tokenizer leaves nothing or which do not fit into memory.
        """
        stripped = [text.strip() for text in texts]
        if "" in stripped:
            raise ValueError(f"text {stripped.index('')} is empty: it has no embedding")
        unique = distinct(stripped)
        given = self._as_read(unique.items)
        encoded = self._tokenizer.encode(given)
        refuse_bare(encoded, given, self.info, unique.positions)
        self.count_truncated(int(encoded.truncated.sum()))
        counts = unique.counts
        found: dict[int, NDArray[np.float32]] = {}

        def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
            vectors = self._vectors(batch)
            found.update(zip(places.tolist(), vectors, strict=True))

        done = 0
        for places in self._runner.run_or_reject(
            encoded.lengths,
            forward,
            build=encoded.rows.batch,
            item="a text",
            owners=unique.positions,
        ):
            done += int(counts[places].sum())
            if on_batch is not None:
                on_batch(done)
        if not found:
            return np.zeros((0, 0), dtype=np.float32)
        return np.stack([found[place] for place in range(len(found))])[unique.inverse]

    def truncates(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each text whether it is longer than the model reads, ``[n]``."""
        unique = distinct([text.strip() for text in texts])
        return self._tokenizer.truncates(self._as_read(unique.items))[unique.inverse]

    def _as_read(self, texts: list[str]) -> list[str]:
        return [text.lower() for text in texts] if self.layout.lower_case else texts

    @torch.inference_mode()
    def _vectors(self, batch: TokenBatch) -> NDArray[np.float32]:
        read = self._backbone.first if self.layout.reads_first_only else self._backbone.states
        vectors = refuse_nan(self.layout.vectors(read(batch), batch.lengths), self.info)
        found: NDArray[np.float32] = vectors.cpu().numpy()
        return found


def load(config: EncoderConfig) -> BatchedEmbedder:
    """Load the sentence encoder that ``config.embedder`` names: "embedded", HF_ID[@REV], a folder.

    A sentence-transformers model is used as its folder says, any other encoder with the mean over
    its tokens. `ConfigError` where it cannot be had, or asks for what is not known here.
    """
    target = Target.of(config)
    return _load_embedded(target) if config.embedder == EMBEDDED else _load_stock(target)


def _load_embedded(target: Target) -> BatchedEmbedder:
    from claimscore.pipeline.encoders.embedded import BACKBONE_SHA256, find_backbone, load_backbone

    model, tokenizer = load_backbone(find_backbone(offline=target.config.offline))
    return _embedder(target.take(model, tokenizer, BACKBONE_SHA256[:12]), EMBEDDED_LAYOUT)


def _load_stock(target: Target) -> BatchedEmbedder:
    source = find_model(target.config.embedder, offline=target.config.offline, also=LAYOUT_FILES)
    settings = load_config(source)
    if getattr(settings, "is_encoder_decoder", False):
        raise ConfigError(f"{source.name} is not a plain encoder; name another sentence encoder")
    layout = read_layout(source, target.device)
    if layout is PLAIN:
        logger.warning(
            "%s is no sentence-transformers model: the mean over its tokens is used", source.name
        )
    return _embedder(target.load_encoder(source, settings), layout)


def _embedder(loaded: Loaded, layout: SentenceLayout) -> BatchedEmbedder:
    backbone = loaded.backbone()
    limit = min(loaded.limit, layout.limit or loaded.limit)
    return BatchedEmbedder(
        loaded.info,
        backbone,
        loaded.tokenizer,
        layout=layout,
        limit=limit,
        runner=loaded.runner(backbone.states, limit=limit),
    )
