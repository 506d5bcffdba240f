"""One vector a text, from a sentence encoder: the numbers that sentence-transformers gives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.base import ModelInfo, OnBatch, RejectedItemsError
from claimscore.pipeline.encoders.batching import (
    Batch,
    BudgetedRunner,
    Distinct,
    RowOutOfMemoryError,
    distinct,
    longest_first,
    pad,
)
from claimscore.pipeline.encoders.loading import (
    EMBEDDED,
    find_model,
    free_memory,
    is_out_of_memory,
    load_config,
    load_tokenizer,
    load_weights,
    resolve_device,
    resolve_dtype,
    token_limit,
)
from claimscore.pipeline.encoders.sentence_layout import (
    LAYOUT_FILES,
    PLAIN,
    SentenceLayout,
    normalised,
    read_layout,
)

logger = logging.getLogger("claimscore")

#: What the authors of all-MiniLM-L6-v2 let it read, and what they do with its states.
EMBEDDED_LIMIT = 256
EMBEDDED_LAYOUT = SentenceLayout("mean", (normalised,), ("mean", "normalize"), limit=EMBEDDED_LIMIT)


class BatchedEmbedder:
    """Sentence embeddings from one model on one device.

    Guarantees: rows in the order of the input, each distinct text encoded once, and never a
    vector with a NaN. ``layout`` says what is done with the token states, ``limit`` how many
    tokens are read; ``truncated`` counts the distinct texts cut to it.
    """

    def __init__(
        self,
        info: ModelInfo,
        states: Callable[..., Tensor],
        tokenizer: Any,  # transformers' tokenizers: untyped
        *,
        layout: SentenceLayout,
        limit: int,
        budget: int,
        device: torch.device,
    ) -> None:
        self.info = info
        self.layout = layout
        self.limit = limit if layout.limit is None else min(limit, layout.limit)
        self.truncated = 0
        self.device = device
        self._states = states
        self._tokenizer = tokenizer
        self._pad_left = tokenizer.padding_side == "left"
        self._runner = BudgetedRunner(
            budget, is_out_of_memory=is_out_of_memory, free=partial(free_memory, device)
        )

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
        rows = self._encode(unique)
        order = longest_first([len(row) for row in rows])
        counts = unique.counts
        found: list[NDArray[np.float32] | None] = [None] * len(rows)

        def forward(batch: Batch) -> None:
            places = order[batch.start : batch.stop].tolist()
            vectors = self._vectors([rows[place] for place in places], batch.width)
            for place, vector in zip(places, vectors, strict=True):
                found[place] = vector

        done = 0
        try:
            for batch in self._runner.run([len(rows[i]) for i in order], forward):
                done += int(counts[order[batch.start : batch.stop]].sum())
                if on_batch is not None:
                    on_batch(done)
        except RowOutOfMemoryError as exc:
            raise RejectedItemsError(
                f"a text of {exc.tokens} tokens does not fit into the memory of {self.device}",
                kind="out_of_memory",
                indices=unique.positions(int(order[exc.row])),
            ) from exc
        if not found:
            return np.zeros((0, 0), dtype=np.float32)
        return np.stack([vector for vector in found if vector is not None])[unique.inverse]

    def _encode(self, unique: Distinct[str]) -> list[list[int]]:
        texts = [text.lower() for text in unique.items] if self.layout.lower_case else unique.items
        rows, bare = [], []
        for i, text in enumerate(texts):
            row = self._tokenizer(text, return_special_tokens_mask=True, verbose=False)
            if all(row["special_tokens_mask"]):
                bare.append(i)
            if len(row["input_ids"]) > self.limit:
                row = self._tokenizer(text, truncation=True, max_length=self.limit)
                self.truncated += 1
            rows.append(list(row["input_ids"]))
        if bare:
            raise RejectedItemsError(
                f"the tokenizer of {self.info.model} leaves nothing of {texts[bare[0]]!r}",
                kind="no_tokens",
                indices=tuple(sorted(i for item in bare for i in unique.positions(item))),
            )
        return rows

    @torch.inference_mode()
    def _vectors(self, ids: Sequence[list[int]], width: int) -> NDArray[np.float32]:
        mask = self._tensor([[1] * len(row) for row in ids], width, 0)
        states = self._states(
            input_ids=self._tensor(ids, width, int(self._tokenizer.pad_token_id)),
            attention_mask=mask,
        )
        vectors = self.layout.vectors(states, mask)
        if not bool(torch.isfinite(vectors).all()):
            raise ConfigError(
                f"{self.info.model} gave numbers that are not finite in {self.info.dtype}; "
                "use --dtype float32, or another model if that is not the reason"
            )
        found: NDArray[np.float32] = vectors.cpu().numpy()
        return found

    def _tensor(self, rows: Sequence[Sequence[int]], width: int, value: int) -> Tensor:
        return torch.from_numpy(pad(rows, width, value, left=self._pad_left)).to(self.device)


def load(config: EncoderConfig) -> BatchedEmbedder:
    """Load the sentence encoder that ``config.embedder`` names: "embedded", HF_ID[@REV], a folder.

    A sentence-transformers model is used as its folder says, any other encoder with the mean over
    its tokens. `ConfigError` where it cannot be had, or asks for what is not known here.
    """
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    if config.embedder == EMBEDDED:
        return _load_embedded(config, device, dtype)
    return _load_stock(config, device, dtype)


def _load_embedded(
    config: EncoderConfig, device: torch.device, dtype: torch.dtype
) -> BatchedEmbedder:
    from claimscore.pipeline.encoders.embedded import BACKBONE_SHA256, find_backbone, load_backbone

    model: Any  # transformers wraps `to` in a type that cannot be called
    model, tokenizer = load_backbone(find_backbone(offline=config.offline))
    model.to(device=device, dtype=dtype).eval()
    return BatchedEmbedder(
        ModelInfo(EMBEDDED, BACKBONE_SHA256[:12], config.dtype),
        lambda **inputs: model(**inputs).last_hidden_state,
        tokenizer,
        layout=EMBEDDED_LAYOUT,
        limit=token_limit(tokenizer, model.config, model),
        budget=config.batch_tokens,
        device=device,
    )


def _load_stock(config: EncoderConfig, device: torch.device, dtype: torch.dtype) -> BatchedEmbedder:
    from transformers import AutoModel

    source = find_model(config.embedder, offline=config.offline, also=LAYOUT_FILES)
    settings = load_config(source)
    if getattr(settings, "is_encoder_decoder", False):
        raise ConfigError(f"{source.name} is not a plain encoder; name another sentence encoder")
    layout = read_layout(source, device)
    if layout is PLAIN:
        logger.warning(
            "%s is no sentence-transformers model: the mean over its tokens is used", source.name
        )
    tokenizer = load_tokenizer(source)
    model = load_weights(
        source,
        AutoModel,
        settings,
        device=device,
        dtype=dtype,
        may_lack=lambda weight: "pooler" in weight,  # first-token output, which is not read here
    )
    return BatchedEmbedder(
        ModelInfo(source.name, source.revision, config.dtype),
        lambda **inputs: model(**inputs).last_hidden_state,
        tokenizer,
        layout=layout,
        limit=token_limit(tokenizer, settings, model),
        budget=config.batch_tokens,
        device=device,
    )
