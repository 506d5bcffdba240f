"""The seam between token rows and a transformer: a batch of rows in, the states of its tokens out.

Two kinds stand behind it: a packed forward pass for the families in `packed`, and the stock model
on padded batches for all others. The states have no padding in either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.batching import BatchRunner, pad
from claimscore.pipeline.encoders.distinct import Distinct, distinct
from claimscore.pipeline.encoders.packed_families import family_of, packed_backbone
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch
from claimscore.pipeline.encoders.tokenizing import (
    EncodedTexts,
    TextTokenizer,
    TokenBatch,
    TokenRows,
    refuse_bare,
)


class Backbone(Protocol):
    """A transformer encoder on one device. States are float32, in the order of the batch."""

    device: torch.device
    padded: bool

    def prepare(self, batch: TokenBatch) -> TokenBatch:
        """Do for a batch what can be done while another thread has the device; not needed."""
        ...

    def states(self, batch: TokenBatch) -> Tensor:
        """Return the last layer's states ``[tokens, hidden]``."""
        ...

    def first(self, batch: TokenBatch) -> Tensor:
        """Return the last layer's state of each row's first token, ``[rows, hidden]``."""
        ...

    def layers(self, batch: TokenBatch, n_layers: int) -> list[Tensor]:
        """Return the last ``n_layers`` layers' states, those of the embeddings not among them."""
        ...


class PaddedModel:
    """A stock model on padded batches: ``call`` takes ids and mask ``[rows, width]``.

    Why not only a `Backbone`: a head that is not known here needs the model's own forward.
    """

    padded = True

    def __init__(
        self,
        call: Callable[..., Any],
        *,
        device: torch.device,
        pad_id: int,
        pad_left: bool = False,
        with_types: bool = False,
    ) -> None:
        self.device = device
        self._call = call
        self.pad_id = pad_id
        self._pad_left = pad_left
        self._with_types = with_types

    def __call__(self, batch: TokenBatch, **options: Any) -> Any:
        """Return what the model gives for the batch."""
        rows = batch.split()
        inputs = {
            "input_ids": self.filled(rows),
            "attention_mask": self.filled([np.ones(len(row)) for row in rows], 0),
        }
        if self._with_types:
            types = batch._replace(ids=batch.types).split()
            inputs["token_type_ids"] = self.filled(types, 0)
        return self._call(**inputs, **options)

    def packed(self, states: Tensor, batch: TokenBatch) -> Tensor:
        """Return ``[rows, width, hidden]`` without its padding: ``[tokens, hidden]`` in float32."""
        width = states.shape[1]
        lengths = torch.from_numpy(batch.lengths).to(states.device)[:, None]
        places = torch.arange(width, device=states.device)
        own = places >= width - lengths if self._pad_left else places < lengths
        return states[own].float()

    def filled(self, rows: Sequence[Any], value: int | None = None) -> Tensor:
        """Return rows ``[rows, width]`` filled up with padding, or with another value."""
        width, value = max(map(len, rows)), self.pad_id if value is None else value
        return torch.from_numpy(pad(rows, width, value, left=self._pad_left)).to(self.device)


class PaddedBackbone:
    """Token states from a stock encoder on padded batches."""

    padded = True

    def __init__(self, model: PaddedModel) -> None:
        self.device = model.device
        self._model = model

    def prepare(self, batch: TokenBatch) -> TokenBatch:
        return batch

    def states(self, batch: TokenBatch) -> Tensor:
        return self._model.packed(self._model(batch).last_hidden_state, batch)

    def first(self, batch: TokenBatch) -> Tensor:
        return self.states(batch)[torch.from_numpy(batch.starts).to(self.device)]

    def layers(self, batch: TokenBatch, n_layers: int) -> list[Tensor]:
        states = self._model(batch, output_hidden_states=True).hidden_states
        last = states[1:][-n_layers:] or states[-1:]  # the first are the embeddings
        return [self._model.packed(states, batch) for states in last]


def encoder_backbone(model: Any, tokenizer: Any, *, dtype: torch.dtype) -> Backbone:
    """Return the backbone of a loaded encoder: packed where its family can be, else padded.

    The model is taken over and not to be used otherwise.
    """
    if family_of(model.config) is not None:
        return packed_backbone(model, dtype=dtype, with_types=False)
    return PaddedBackbone(padded_model(model.to(dtype), tokenizer))


def padded_model(model: Any, tokenizer: Any, *, with_types: bool = False) -> PaddedModel:
    """Return a stock model that takes token batches."""
    return PaddedModel(
        model,
        device=next(model.parameters()).device,
        pad_id=int(tokenizer.pad_token_id),
        pad_left=tokenizer.padding_side == "left",
        with_types=with_types,
    )


def row_sums(states: Tensor, lengths: NDArray[np.int64]) -> Tensor:
    """Return the sums ``[rows, hidden]`` of neighbouring states ``[tokens, hidden]``."""
    sizes = torch.from_numpy(np.ascontiguousarray(lengths)).to(states.device)
    sums: Tensor = torch.segment_reduce(states, "sum", lengths=sizes)
    return sums


class LoadedEncoder(NamedTuple):
    """An encoder in memory as it runs: packed where its family can be, else padded.

    ``limit`` is how many tokens it can read, the special ones included.
    """

    info: ModelInfo
    backbone: Backbone
    tokenizer: Any  # transformers' tokenizers: untyped
    limit: int


class BatchedModel:
    """A model on one device, whose rows go through it in batches; ``at_most`` bounds their tokens.

    A class of it says how texts become rows, and what its forward pass gives for a batch.
    """

    def __init__(
        self,
        info: ModelInfo,
        device: torch.device,
        *,
        padded: bool,
        batch_tokens: int | None,
        at_most: int | None = None,
    ) -> None:
        self.info = info
        self._runner = BatchRunner(device, given=batch_tokens, padded=padded, at_most=at_most)

    @property
    def packed(self) -> bool:
        """Whether the model runs without padding."""
        return not self._runner.padded

    @property
    def budget(self) -> int:
        """Tokens in one forward pass."""
        return self._runner.budget

    @torch.inference_mode()
    def _each(
        self,
        items: Distinct[Any],
        rows: TokenRows,
        forward: Callable[[list[int], TokenBatch], Iterable[Any]],
        on_batch: OnBatch | None,
        *,
        owners: NDArray[np.int64] | None = None,
        lengths: NDArray[np.int64] | None = None,
    ) -> list[Any]:
        """What ``forward`` gives for each row of distinct items, in the order of the rows.

        It gets a batch and the places of its rows. The others are as in `BatchRunner.run`.
        """
        results: dict[int, Any] = {}

        def run(places: NDArray[np.int64], batch: TokenBatch) -> None:
            numbers = places.tolist()
            results.update(zip(numbers, forward(numbers, batch), strict=True))

        self._runner.run(items, rows, run, lengths=lengths, owners=owners, on_batch=on_batch)
        return [results[place] for place in range(len(results))]


class TextModel(BatchedModel):
    """An encoder that reads texts one by one; of a text at most ``limit`` tokens."""

    def __init__(self, loaded: LoadedEncoder, batch_tokens: int | None = None) -> None:
        backbone = loaded.backbone
        super().__init__(
            loaded.info, backbone.device, padded=backbone.padded, batch_tokens=batch_tokens
        )
        self.limit = loaded.limit
        self._backbone, self._tokenizer = backbone, loaded.tokenizer
        self._texts = TextTokenizer(loaded.tokenizer, loaded.limit)

    def as_read(self, text: str) -> str:
        """A text as the tokenizer gets it."""
        return text

    def truncates(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each text whether it is longer than the model reads, ``[n]``."""
        unique = distinct([text.strip() for text in texts])
        return self._texts.truncates(list(map(self.as_read, unique.items)))[unique.inverse]

    def _encoded(self, texts: Distinct[str]) -> EncodedTexts:
        encoded = self._texts.encode(list(map(self.as_read, texts.items)))
        refuse_bare(encoded.n_own, texts.items, self.info, texts.positions)
        return encoded


def refuse_nan(numbers: Tensor, info: ModelInfo) -> Tensor:
    """Return the numbers if all are finite, else raise `ConfigError`: never a score from a NaN."""
    on_cpu = numbers.device.type == "cpu"  # where numpy is faster by far for a few numbers
    finite = np.isfinite(numbers.numpy()) if on_cpu else torch.isfinite(numbers)
    if not bool(finite.all()):
        raise ConfigError(
            f"{info.model} gave numbers that are not finite in {info.dtype}; "
            "use --dtype float32, or another model if that is not the reason"
        )
    return numbers
