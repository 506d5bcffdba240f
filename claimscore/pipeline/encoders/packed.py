"""A forward pass without padding for BERT, RoBERTa, XLM-R, ALBERT and their like.

Rows of any length lie one after another in ``[1, tokens, hidden]``; stock layers of transformers
run on it, with one more attention in transformers' own registry: every token attends to its own
row only. No layer is computed further than it is read. Numbers are those of the stock model on one
row at a time, up to the order of float32 sums.
"""

from __future__ import annotations

import dataclasses
import inspect
import platform
from collections.abc import Callable
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.pipeline.encoders.token_rows import TokenBatch

#: The name under which models ask for it.
IMPLEMENTATION = "claimscore_packed"
#: Tokens for which oneDNN lays out the weights; other numbers work as well.
_TOKENS = 512


class LengthGroup(NamedTuple):
    """``rows`` neighbouring rows of the same length, the first of which is row ``row``."""

    row: int
    rows: int
    token: int
    length: int


@dataclasses.dataclass
class Segments:
    """Where the rows of a batch are, and how much of them is still to be computed.

    ``first_only``: the last layer is read at each row's first token only. ``layers_left`` counts
    the layers down, as some models run one layer many times.
    """

    groups: list[LengthGroup]
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
            groups.append(LengthGroup(row, rows, token, length))
            row, token = row + rows, token + rows * length
        starts = torch.from_numpy(batch.starts).to(device)
        longest = max(group.length for group in groups)
        return cls(groups, starts, token, longest)

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
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

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
    if device.type != "cuda":
        return False
    try:
        from torch.nn.attention import varlen  # its import takes more than a second
    except ImportError:  # torch before 2.10
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
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

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


def _rows(part: Tensor, group: LengthGroup) -> Tensor:
    """A group's ``[tokens, heads, dim]`` as ``[rows, heads, length, dim]``, a view."""
    return part.view(group.rows, -1, *part.shape[1:]).transpose(1, 2)


def _on_device(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scaling: float | None
) -> Tensor:
    """One call for all rows; ``num_splits=1`` keeps a row's numbers apart from its neighbours."""
    from torch.nn.attention import varlen

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


@cache
def register_attention() -> None:
    """Make the packed attention known to transformers, whose import takes seconds."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, packed_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, packed_mask)


class CastLinear(nn.Module):
    """A linear layer whose weights are cast and packed once; ``out`` is the dtype of the result."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, out: torch.dtype) -> None:
        super().__init__()
        weight = linear.weight.detach().to(dtype)
        self._dtype, self._out = dtype, out
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        packed = pack(weight)
        self._packed = packed is not None
        self.weight = weight if packed is None else packed

    def forward(self, states: Tensor) -> Tensor:
        given = states.to(self._dtype)
        if self._packed:
            found: Tensor = torch.ops.mkldnn._linear_pointwise(
                given, self.weight, self.bias, "none", [], ""
            )
        else:
            found = F.linear(given, self.weight, self.bias)
        return found.to(self._out)


def replace_linear(linear: nn.Module, dtype: torch.dtype, out: torch.dtype) -> nn.Module:
    """Return the layer to use in place of ``linear``: itself where nothing would be gained."""
    if not isinstance(linear, nn.Linear):
        return linear
    if dtype == torch.float32 and not (linear.weight.device.type == "cpu" and packing_pays(dtype)):
        return linear
    return CastLinear(linear, dtype, out)


def pack(weight: Tensor) -> Tensor | None:
    """Return the weight laid out for oneDNN, or None where torch's own product is to be used.

    The operators are private to torch: whatever they raise means that they are not for us.
    """
    if weight.device.type != "cpu" or not packing_pays(weight.dtype):
        return None
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _TOKENS)
        probe = torch.zeros(2, weight.shape[1], dtype=weight.dtype)
        torch.ops.mkldnn._linear_pointwise(probe, packed, None, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return None
    return packed


@cache
def packing_pays(dtype: torch.dtype) -> bool:
    """Whether oneDNN with packed weights beats torch's own product on this CPU.

    A property of the CPU and not a timing, so that every run on a machine takes the same path and
    gives the same bits. float32: MKL, torch's default, uses half of a vector unit with AVX-512
    unless Intel made it; with AVX2 both are equal. bfloat16: oneDNN is what torch calls anyway,
    packing saves it the reordering.
    """
    onednn: Any = torch.backends.mkldnn  # untyped
    if not onednn.is_available():
        return False
    if dtype == torch.float32:
        capability = torch.backends.cpu.get_cpu_capability()
        return capability.startswith("AVX512") and not made_by_intel()
    return dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def made_by_intel() -> bool:
    """Whether the CPU is Intel's, as far as the system tells; then also where it does not."""
    name = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        name += info.read_text(encoding="utf-8", errors="replace")
    return "AuthenticAMD" not in name


class Family(NamedTuple):
    """How a family's layers are called.

    ``layers`` are the distinct layer modules of an encoder; ``inner`` and ``residual`` name,
    within a layer, the linear modules inside a block and those that add to the stream;
    ``last`` computes a layer for the first tokens only; ``head`` gives the logits of a
    classifier from the states of first tokens ``[rows, hidden]``.
    """

    layers: Callable[[Any], list[nn.Module]]
    inner: tuple[str, ...]
    residual: tuple[str, ...]
    last: Callable[[Any, Tensor, Segments], Tensor]
    head: Callable[[Any, Tensor], Tensor]


def _bert_layers(model: Any) -> list[nn.Module]:
    return list(model.encoder.layer)


def _albert_layers(model: Any) -> list[nn.Module]:
    return [layer for group in model.encoder.albert_layer_groups for layer in group.albert_layers]


def _attend_first(attention: Any, states: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
    """The first tokens' states and their attention over whole rows, each ``[1, rows, hidden]``."""
    first = states[:, segments.starts]
    size = attention.attention_head_size

    def heads(linear: nn.Module, of: Tensor) -> Tensor:
        projected: Tensor = linear(of).unflatten(-1, (-1, size)).transpose(1, 2)
        return projected

    context, _ = packed_attention(
        attention,
        heads(attention.query, first),
        heads(attention.key, states),
        heads(attention.value, states),
        None,
        segments=segments,
        scaling=attention.scaling,
    )
    return first, context.flatten(2)


def _bert_last(layer: Any, states: Tensor, segments: Segments) -> Tensor:
    first, context = _attend_first(layer.attention.self, states, segments)
    found: Tensor = layer.feed_forward_chunk(layer.attention.output(context, first))
    return found


def _albert_last(layer: Any, states: Tensor, segments: Segments) -> Tensor:
    attention = layer.attention
    first, context = _attend_first(attention, states, segments)
    attended = attention.LayerNorm(first + attention.dense(context))
    found: Tensor = layer.full_layer_layer_norm(layer.ff_chunk(attended) + attended)
    return found


def _bert_head(model: Any, first: Tensor) -> Tensor:
    logits: Tensor = model.classifier(model.bert.pooler(first.unsqueeze(1)))
    return logits


def _roberta_head(model: Any, first: Tensor) -> Tensor:
    logits: Tensor = model.classifier(first.unsqueeze(1))
    return logits


def _albert_head(model: Any, first: Tensor) -> Tensor:
    albert = model.albert
    logits: Tensor = model.classifier(albert.pooler_activation(albert.pooler(first)))
    return logits


_QKV = ("attention.self.query", "attention.self.key", "attention.self.value")
_BERT_INNER = (*_QKV, "intermediate.dense")
_BERT_RESIDUAL = ("attention.output.dense", "output.dense")

_BERT = Family(_bert_layers, _BERT_INNER, _BERT_RESIDUAL, _bert_last, _bert_head)
_ROBERTA = _BERT._replace(head=_roberta_head)
_ALBERT = Family(
    _albert_layers,
    ("attention.query", "attention.key", "attention.value", "ffn"),
    ("attention.dense", "ffn_output"),
    _albert_last,
    _albert_head,
)

#: By transformers' ``model_type``.
FAMILIES = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "electra": _ROBERTA,
    "albert": _ALBERT,
}


def family_of(config: Any) -> Family | None:
    """Return the family of a model's config; None where it must run padded.

    A decoder, and positions other than the learned absolute ones, are not what was tried.
    """
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        return None
    return FAMILIES.get(config.model_type)


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
        register_attention()
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
        segments = packed.segments
        # An earlier pass over the batch may have been broken off.
        segments.first_only, segments.layers_left = first_only, self._n_layers
        return self._model(**packed.inputs, segments=segments, **options)

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
