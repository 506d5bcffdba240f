"""Attention over packed rows, as one more implementation in transformers' own registry.

The rows of a batch lie one after another in ``[1, tokens, hidden]``; `Segments` says where each
begins, and every token attends to its own row only.
"""

from __future__ import annotations

import dataclasses
import inspect
from functools import cache, cached_property
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from claimscore.pipeline.encoders.token_rows import TokenBatch

try:
    from torch.nn.attention import varlen
except ImportError:  # torch before 2.10
    varlen = None  # type: ignore[assignment]  # looked at before it is used

#: The name under which models ask for it.
IMPLEMENTATION = "claimscore_packed"


class Group(NamedTuple):
    """``rows`` neighbouring rows of the same length, the first of which is row ``row``."""

    row: int
    rows: int
    token: int
    length: int


@dataclasses.dataclass
class Segments:
    """Where the rows of a batch are, and what is still to be computed of them.

    ``first_only``: the last layer is read at each row's first token only. ``layers_left`` counts
    the layers down, as some models run one layer many times.
    """

    groups: list[Group]
    starts: Tensor
    n_tokens: int
    longest: int
    first_only: bool = False
    layers_left: int = 0

    @classmethod
    def of(cls, batch: TokenBatch, device: torch.device) -> Segments:
        groups, row, token = [], 0, 0
        for length, run in groupby(batch.lengths.tolist()):
            rows = len(list(run))
            groups.append(Group(row, rows, token, length))
            row, token = row + rows, token + rows * length
        starts = torch.from_numpy(batch.starts).to(device)
        longest = max(group.length for group in groups)
        return cls(groups, starts, token, longest)

    def begin(self, *, first_only: bool, n_layers: int) -> None:
        """A forward pass begins; an earlier one may have been broken off."""
        self.first_only, self.layers_left = first_only, n_layers

    @cached_property
    def bounds(self) -> Tensor:
        """Where rows begin, and where the last one ends, as kernels want it."""
        end = self.starts.new_tensor([self.n_tokens])
        return torch.cat([self.starts, end]).to(torch.int32)


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    segments: Segments | None = None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend within each row: ``[1, heads, tokens, dim]`` to ``[1, tokens, heads, dim]``.

    The query may instead have one token a row (the first). Without segments the batch is a padded
    one with a mask, and attention is transformers' own.
    """
    if segments is None:
        stock = ALL_ATTENTION_FUNCTIONS["sdpa"]
        found: tuple[Tensor, None] = stock(
            module, query, key, value, mask, scaling=scaling, **options
        )
        return found
    if query.dtype != torch.float32 and has_varlen(query.device):
        context = _on_device(query, key, value, segments, scaling)
    else:
        context = _by_length(query, key, value, segments, scaling)
    return context.unsqueeze(0), None


@cache
def has_varlen(device: torch.device) -> bool:
    """Whether torch's attention over rows of unlike length runs on the device, as asked for here.

    It is made for Ampere and later; earlier releases of torch cannot keep rows apart bit by bit.
    """
    if varlen is None or device.type != "cuda":
        return False
    known = inspect.signature(varlen.varlen_attn).parameters
    return {"scale", "num_splits"} <= set(known) and torch.cuda.get_device_capability(device) >= (
        8,
        0,
    )


def packed_mask(*, attention_mask: Tensor | None, **options: Any) -> Tensor | None:
    """Return no mask for a packed batch, that of transformers for a padded one."""
    if attention_mask is None:
        return None
    mask: Tensor | None = ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](
        attention_mask=attention_mask, **options
    )
    return mask


def _by_length(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scaling: float | None
) -> Tensor:
    """One call for each group of equal length, on views."""
    one_each = query.shape[2] == len(segments.starts)
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    found = torch.empty_like(q, memory_format=torch.contiguous_format)
    for group in segments.groups:
        own = slice(group.token, group.token + group.rows * group.length)
        asked = slice(group.row, group.row + group.rows) if one_each else own
        context = F.scaled_dot_product_attention(
            _rows(q[asked], group), _rows(k[own], group), _rows(v[own], group), scale=scaling
        )
        found[asked] = context.transpose(1, 2).flatten(0, 1)
    return found


def _rows(part: Tensor, group: Group) -> Tensor:
    """A group's ``[tokens, heads, dim]`` as ``[rows, heads, length, dim]``, a view."""
    return part.view(group.rows, -1, *part.shape[1:]).transpose(1, 2)


def _on_device(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scaling: float | None
) -> Tensor:
    """One call for all rows; ``num_splits=1`` keeps a row's numbers apart from its neighbours."""
    one_each = query.shape[2] == len(segments.starts)
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    rows = torch.arange(len(segments.starts) + 1, dtype=torch.int32, device=query.device)
    attend: Any = varlen.varlen_attn  # its signature differs between releases
    found: Tensor = attend(
        q,
        k,
        v,
        rows if one_each else segments.bounds,
        segments.bounds,
        1 if one_each else segments.longest,
        segments.longest,
        scale=scaling,
        num_splits=1,
    )
    return found


ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, packed_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, packed_mask)
