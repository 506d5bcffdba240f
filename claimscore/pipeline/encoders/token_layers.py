"""The token embeddings of whole texts, layer by layer, with the words that the tokens make up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.base import ModelInfo, OnBatch, RejectedItemsError
from claimscore.pipeline.encoders.batching import (
    Batch,
    BudgetedRunner,
    RowOutOfMemoryError,
    distinct,
    longest_first,
    pad,
)


class TokenLayers(NamedTuple):
    """One text's own tokens (no special ones): unit-length ``layers`` ``[L, tokens, d]``,
    what each token reads in the text, and the number of the word that it belongs to."""

    layers: NDArray[np.float32]
    pieces: list[str]
    words: NDArray[np.int64]


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
        hidden: Callable[..., Sequence[Tensor]],
        tokenizer: Any,  # transformers' tokenizers: untyped
        *,
        limit: int,
        device: torch.device,
        runner: BudgetedRunner,
        in_front: str = "",
    ) -> None:
        self.info = info
        self._hidden = hidden
        self._tokenizer = tokenizer
        self._limit = limit
        self._device = device
        self._runner = runner
        self._in_front = in_front
        self._pad_left = tokenizer.padding_side == "left"

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
                indices=tuple(sorted(i for item in bare for i in unique.positions(item))),
            )
        order = longest_first([len(text.ids) for text in encoded])
        found: dict[int, TokenLayers] = {}

        def forward(batch: Batch) -> None:
            places = order[batch.start : batch.stop].tolist()
            rows = self._layers([encoded[i].ids for i in places], batch.width, n_layers)
            for i, layers in zip(places, rows, strict=True):
                text = encoded[i]
                own = np.array(text.own)
                found[i] = TokenLayers(layers[:, own], text.pieces, np.array(text.words))

        try:
            for _ in self._runner.run([len(encoded[i].ids) for i in order], forward):
                if on_batch is not None:
                    on_batch(int(unique.counts[list(found)].sum()))
        except RowOutOfMemoryError as exc:
            raise RejectedItemsError(
                f"a text of {exc.tokens} tokens does not fit into the memory of {self._device}",
                kind="out_of_memory",
                indices=unique.positions(int(order[exc.row])),
            ) from exc
        return [found[i] for i in unique.inverse.tolist()]

    def _encode(self, text: str) -> _Encoded:
        if not getattr(self._tokenizer, "is_fast", False):
            raise ConfigError(
                f"the tokenizer of {self.info.model} does not say where its tokens stand in the "
                "text; name another token encoder"
            )
        whole = self._in_front + text
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
    def _layers(
        self, ids: Sequence[list[int]], width: int, n_layers: int
    ) -> list[NDArray[np.float32]]:
        states = self._hidden(
            input_ids=self._tensor(ids, width, int(self._tokenizer.pad_token_id)),
            attention_mask=self._tensor([[1] * len(row) for row in ids], width, 0),
        )
        last = states[1:][-n_layers:] or states[-1:]  # the first are the embeddings
        layers = F.normalize(torch.stack([layer.float() for layer in last]), dim=-1)
        own = [slice(width - len(r), width) if self._pad_left else slice(len(r)) for r in ids]
        rows = [layers[:, i, part].cpu().numpy() for i, part in enumerate(own)]
        if not all(np.isfinite(row).all() for row in rows):
            raise ConfigError(
                f"{self.info.model} gave numbers that are not finite in {self.info.dtype}; "
                "use --dtype float32, or another model if that is not the reason"
            )
        return rows

    def _tensor(self, rows: Sequence[Sequence[int]], width: int, value: int) -> Tensor:
        return torch.from_numpy(pad(rows, width, value, left=self._pad_left)).to(self._device)
