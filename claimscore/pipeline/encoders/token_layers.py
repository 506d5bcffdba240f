"""The token embeddings of whole texts, layer by layer, with the words that the tokens make up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import Backbone, refuse_nan
from claimscore.pipeline.encoders.base import ModelInfo, OnBatch, RejectedItemsError, TokenLayers
from claimscore.pipeline.encoders.batching import BudgetedRunner, distinct
from claimscore.pipeline.encoders.text_ids import alone
from claimscore.pipeline.encoders.token_rows import TokenBatch, WholeRows, ragged


class _Encoded(NamedTuple):
    ids: list[int]
    own: list[int]
    pieces: list[str]
    words: list[int]


class LayerReader:
    """Reads the upper layers of an encoder; each distinct text once, results in their order."""

    def __init__(
        self,
        info: ModelInfo,
        backbone: Backbone,
        tokenizer: Any,  # transformers' tokenizers: untyped
        *,
        limit: int,
        runner: BudgetedRunner,
        in_front: str = "",
    ) -> None:
        self.info = info
        self._backbone = backbone
        self._tokenizer = tokenizer
        self._limit = limit
        self._runner = runner
        self._in_front = in_front

    def read(
        self, texts: Sequence[str], n_layers: int, *, on_batch: OnBatch | None = None
    ) -> list[TokenLayers]:
        """The last ``n_layers`` layers (fewer where the model has fewer) of each text.

        A text is cut to the model's limit. Raises `ValueError` for a blank text,
        `RejectedItemsError` naming the texts of which the tokenizer leaves nothing or which do
        not fit into memory, `ConfigError` for a tokenizer that does not say where its tokens are.
        """
        stripped = [text.strip() for text in texts]
        if "" in stripped:
            raise ValueError(f"text {stripped.index('')} is empty: it has no tokens")
        unique = distinct(stripped)
        encoded = [self._encode(text) for text in unique.items]
        bare = [i for i, text in enumerate(encoded) if not text.own]
        if bare:
            raise RejectedItemsError(
                f"the tokenizer of {self.info.model} leaves nothing of {unique.items[bare[0]]!r}",
                kind="no_tokens",
                indices=unique.positions(*bare),
            )
        rows = WholeRows(ragged(text.ids for text in encoded))
        counts, done = unique.counts, 0
        found: dict[int, TokenLayers] = {}

        def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
            layers = self._layers(batch, n_layers)
            for i, states in zip(places.tolist(), layers, strict=True):
                text = encoded[i]
                own = states[:, np.array(text.own)]
                found[i] = TokenLayers(own, text.pieces, np.array(text.words))

        for places in self._runner.run_or_reject(
            rows.lengths, forward, build=rows.batch, item="a text", owners=unique.positions
        ):
            done += int(counts[places].sum())
            if on_batch is not None:
                on_batch(done)
        return [found[i] for i in unique.inverse.tolist()]

    def _encode(self, text: str) -> _Encoded:
        if not getattr(self._tokenizer, "is_fast", False):
            raise ConfigError(
                f"the tokenizer of {self.info.model} does not say where its tokens stand in the "
                "text; name another token encoder"
            )
        whole = self._in_front + text
        with alone(self._tokenizer):
            row = self._tokenizer(
                whole,
                truncation=True,
                max_length=self._limit,
                return_special_tokens_mask=True,
                return_offsets_mapping=True,
            )
        words = row.word_ids()
        own = [
            i
            for i, (special, word) in enumerate(zip(row["special_tokens_mask"], words, strict=True))
            if not special and word is not None
        ]
        spans = row["offset_mapping"]
        return _Encoded(
            list(row["input_ids"]),
            own,
            [whole[slice(*spans[i])].strip() for i in own],
            [int(words[i]) for i in own],
        )

    @torch.inference_mode()
    def _layers(self, batch: TokenBatch, n_layers: int) -> list[NDArray[np.float32]]:
        """The unit-length states of each row, ``[L, tokens, d]``."""
        layers = F.normalize(torch.stack(self._backbone.layers(batch, n_layers)), dim=-1)
        states: NDArray[np.float32] = refuse_nan(layers, self.info).cpu().numpy()
        return np.split(states, batch.starts[1:], axis=1)
