"""A stock encoder on packed batches: no padding, and no layer computed further than it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
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
        segments = Segments.of(batch, self.device, first_only=first_only, n_layers=self._n_layers)
        ids = torch.from_numpy(batch.ids).to(self.device)
        types = torch.from_numpy(batch.types if self._with_types else np.zeros_like(batch.types))
        return self._model(
            input_ids=ids[None],
            token_type_ids=types[None].to(self.device),
            position_ids=self._positions(ids, batch, segments)[None],
            segments=segments,
            **options,
        )

    def _positions(self, ids: Tensor, batch: TokenBatch, segments: Segments) -> Tensor:
        """Places within the row; RoBERTa and its kin count from the padding index on, and do not
        count a padding token that stands in a text."""
        counted = torch.ones_like(ids)
        if self._padding_index is not None:
            counted = (ids != self._padding_index).long()
        running = counted.cumsum(0)
        before = running[segments.starts] - counted[segments.starts]
        lengths = torch.from_numpy(batch.lengths).to(self.device)
        places = running - before.repeat_interleave(lengths, output_size=len(ids))
        if self._padding_index is None:
            return places - 1
        return places * counted + self._padding_index


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
