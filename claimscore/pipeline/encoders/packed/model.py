"""A stock encoder on packed batches: no padding, and no layer computed further than it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from claimscore.pipeline.encoders.packed.attention import IMPLEMENTATION, Segments
from claimscore.pipeline.encoders.packed.families import Family, family_of
from claimscore.pipeline.encoders.packed.linear import replace_linear
from claimscore.pipeline.encoders.token_rows import TokenBatch


class _Layer(nn.Module):
    """A stock layer; where only first tokens are read of the last one, only they are computed."""

    def __init__(self, layer: nn.Module, family: Family) -> None:
        super().__init__()
        self.layer = layer
        self._last = family.last

    def forward(
        self, states: Tensor, *args: Any, segments: Segments | None = None, **options: Any
    ) -> Tensor:
        if segments is not None:
            segments.layers_left -= 1
            if segments.first_only and not segments.layers_left:
                return self._last(self.layer, states, segments)
            options["segments"] = segments
        found: Tensor = self.layer(states, *args, **options)
        return found


class PackedBatch(TokenBatch):
    """A batch with what a packed model takes of it, on the model's device."""

    segments: Segments
    inputs: dict[str, Tensor]


class PackedBackbone:
    """A BERT-like encoder of transformers that runs packed; see `Backbone`.

    Takes the model over: its layers are replaced in place by ones that share their weights.
    ``dtype`` is that of the products; the residual stream and the norms are float32.
    """

    padded = False

    def __init__(
        self, model: Any, *, dtype: torch.dtype = torch.float32, with_types: bool = True
    ) -> None:
        family = family_of(model.config)
        if family is None:
            raise ValueError(f"{model.config.model_type} has no packed forward pass")
        self.device = next(model.parameters()).device
        self._model = model.float()
        self._n_layers = int(model.config.num_hidden_layers) * int(
            getattr(model.config, "inner_group_num", 1)
        )
        self._with_types = with_types
        self._padding_index: int | None = model.embeddings.position_embeddings.padding_idx
        model.config._attn_implementation = IMPLEMENTATION
        for layer in family.layers(model):
            _convert(layer, family, dtype)
        for parent in list(model.encoder.modules()):
            if isinstance(parent, nn.ModuleList):
                _wrap(parent, family.layers(model), family)

    def prepare(self, batch: TokenBatch) -> PackedBatch:
        packed = PackedBatch(*batch)
        packed.segments = Segments.of(batch, self.device)
        ids = torch.from_numpy(batch.ids)
        types = torch.from_numpy(batch.types) if self._with_types else torch.zeros_like(ids)
        inputs = {
            "input_ids": ids,
            "token_type_ids": types,
            "position_ids": torch.from_numpy(self._positions(batch)),
        }
        packed.inputs = {name: part[None].to(self.device) for name, part in inputs.items()}
        return packed

    def states(self, batch: TokenBatch) -> Tensor:
        found: Tensor = self._run(batch).last_hidden_state[0]
        return found

    def first(self, batch: TokenBatch) -> Tensor:
        found: Tensor = self._run(batch, first_only=True).last_hidden_state[0]
        return found

    def layers(self, batch: TokenBatch, n_layers: int) -> list[Tensor]:
        found = self._run(batch, output_hidden_states=True).hidden_states
        last = found[1:][-n_layers:] or found[-1:]  # the first are the embeddings
        return [states[0] for states in last]

    def _run(self, batch: TokenBatch, *, first_only: bool = False, **options: Any) -> Any:
        packed = batch if isinstance(batch, PackedBatch) else self.prepare(batch)
        packed.segments.begin(first_only=first_only, n_layers=self._n_layers)
        return self._model(**packed.inputs, segments=packed.segments, **options)

    def _positions(self, batch: TokenBatch) -> NDArray[np.int64]:
        """Places within the row; RoBERTa and its kin count from the padding index on, and do not
        count a padding token that stands in a text."""
        if self._padding_index is None:
            return batch.within
        counted = batch.ids != self._padding_index
        if counted.all():
            return batch.within + (self._padding_index + 1)
        running = np.cumsum(counted)
        before = running[batch.starts] - counted[batch.starts]
        places = running - np.repeat(before, batch.lengths)
        found: NDArray[np.int64] = places * counted + self._padding_index
        return found


def _convert(layer: nn.Module, family: Family, dtype: torch.dtype) -> None:
    for names, out in ((family.inner, dtype), (family.residual, torch.float32)):
        for name in names:
            parent, _, last = name.rpartition(".")
            owner = layer.get_submodule(parent)
            setattr(owner, last, replace_linear(getattr(owner, last), dtype, out))


def _wrap(parent: nn.ModuleList, layers: list[nn.Module], family: Family) -> None:
    for i, module in enumerate(parent):
        if any(module is layer for layer in layers):
            parent[i] = _Layer(module, family)
