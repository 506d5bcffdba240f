"""A forward pass without padding for the encoders that people use for NLI and embeddings.

Rows of any length lie one after another in ``[tokens, hidden]``; every token attends to its own
row only, and no layer is computed further than it is read. One layer serves all families: a family
says where a model of transformers keeps its parts, and how its tokens attend. Numbers are those of
the stock model on one row at a time, up to the order of float32 sums.
"""

from __future__ import annotations

import dataclasses
import inspect
import platform
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.pipeline.encoders.tokenizing import TokenBatch

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
    """Where the rows of a batch are: ``starts`` of each row, ``within`` its row of each token, made
    for the models that ask for them.

    ``shared`` is what the layers of one model compute once for a batch, by a name of theirs.
    """

    batch: TokenBatch
    device: torch.device
    groups: list[LengthGroup]
    shared: dict[object, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, batch: TokenBatch, device: torch.device) -> Segments:
        groups, row, token = [], 0, 0
        for length, run in groupby(batch.lengths.tolist()):
            rows = len(list(run))
            groups.append(LengthGroup(row, rows, token, length))
            row, token = row + rows, token + rows * length
        return cls(batch, device, groups)

    @cached_property
    def starts(self) -> Tensor:
        return torch.from_numpy(self.batch.starts).to(self.device)

    @cached_property
    def within(self) -> Tensor:
        return torch.from_numpy(self.batch.within).to(self.device)

    @property
    def longest(self) -> int:
        return max(group.length for group in self.groups)

    @cached_property
    def bounds(self) -> Tensor:
        """Where rows begin, and where the last one ends, as kernels want it."""
        end = self.starts.new_tensor([len(self.batch.ids)])
        return torch.cat([self.starts, end]).to(torch.int32)

    def once(self, name: object, compute: Callable[[], Any]) -> Any:
        """What ``compute`` gives, computed for the first layer that asks."""
        if name not in self.shared:
            self.shared[name] = compute()
        return self.shared[name]


#: What is added to the logits of a group's rows, ``[rows or 1, heads, asked, length]``.
Bias = Callable[[LengthGroup], Tensor]
#: Query ``[tokens or rows, heads, dim]``, key and value ``[tokens, heads, dim]`` to the shape of
#: the query; a query of rows is of their first tokens.
Attention = Callable[[Tensor, Tensor, Tensor, Segments], Tensor]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    segments: Segments,
    *,
    scale: float | None = None,
    bias: Bias | None = None,
    window: int | None = None,
) -> Tensor:
    """Attend within each row; see `Attention`. Without a ``bias``, a token sees at most ``window``
    to either side."""
    if window is not None and window >= segments.longest - 1:
        window = None
    if bias is None and query.dtype != torch.float32 and has_varlen(query.device):
        return _on_device(query, key, value, segments, scale, window)
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    for group in segments.groups:
        own = slice(group.token, group.token + group.rows * group.length)
        first_only = len(query) != len(key)
        asked = slice(group.row, group.row + group.rows) if first_only else own
        mask = None if bias is None else bias(group).to(query.dtype)
        if bias is None and window is not None and window < group.length - 1:
            mask = _near(segments, group, window)[:, :, : 1 if first_only else None]
        q, k, v = (_rows(part, group) for part in (query[asked], key[own], value[own]))
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        _rows(output[asked], group).copy_(context)
    return output


def _near(segments: Segments, group: LengthGroup, window: int) -> Tensor:
    """Which tokens of its row each one sees, ``[1, 1, length, length]``."""
    places = segments.within[group.token : group.token + group.length]
    return (places[:, None] - places).abs()[None, None] <= window


def _rows(part: Tensor, group: LengthGroup) -> Tensor:
    """A group's ``[tokens, heads, dim]`` as ``[rows, heads, length, dim]``, a view."""
    return part.view(group.rows, -1, *part.shape[1:]).transpose(1, 2)


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
    asked = {"scale", "num_splits", "window_size"}
    return asked <= set(known) and torch.cuda.get_device_capability(device) >= (8, 0)


def _on_device(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    segments: Segments,
    scale: float | None,
    window: int | None,
) -> Tensor:
    """One call for all rows; ``num_splits=1`` keeps a row's numbers apart from its neighbours."""
    from torch.nn.attention import varlen

    first_only = len(query) != len(key)
    rows = torch.arange(len(segments.starts) + 1, dtype=torch.int32, device=query.device)
    attention: Any = varlen.varlen_attn  # its signature differs between releases
    output: Tensor = attention(
        query,
        key,
        value,
        rows if first_only else segments.bounds,
        segments.bounds,
        1 if first_only else segments.longest,
        segments.longest,
        scale=scale,
        num_splits=1,
        window_size=(-1, -1) if window is None else (window, window),
    )
    return output


class Product(nn.Module):
    """A linear layer in ``dtype``, its weights cast and packed once; ``out`` is of the result.

    ``plus`` is added to the result, by oneDNN within the product.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, out: torch.dtype) -> None:
        super().__init__()
        weight = linear.weight.detach().to(dtype)
        self._dtype, self._out = dtype, out
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        packed = pack(weight)
        self._packed = packed is not None
        self.weight = weight if packed is None else packed

    def forward(self, states: Tensor, plus: Tensor | None = None) -> Tensor:
        given, ops = states.to(self._dtype), torch.ops.mkldnn
        output: Tensor
        if not self._packed:
            output = F.linear(given, self.weight, self.bias)
        elif plus is not None and plus.dtype == self._dtype:
            output = ops._linear_pointwise.binary(given, plus, self.weight, self.bias, "add")
            return output
        else:
            output = ops._linear_pointwise(given, self.weight, self.bias, "none", [], "")
        output = output.to(self._out)
        return output if plus is None else output.add_(plus)


def pack(weight: Tensor) -> Tensor | None:
    """Return the weight laid out for oneDNN, or None where torch's own product is to be used.

    The operators are private to torch: whatever they raise means that they are not for us.
    """
    if weight.device.type != "cpu" or not packing_pays(weight.dtype):
        return None
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _TOKENS)
        probe = torch.zeros(2, weight.shape[1], dtype=weight.dtype)
        output = torch.ops.mkldnn._linear_pointwise(probe, packed, None, "none", [], "")
        torch.ops.mkldnn._linear_pointwise.binary(probe, output, packed, None, "add")
    except (AttributeError, RuntimeError, TypeError):
        return None
    return packed


@cache
def packing_pays(dtype: torch.dtype) -> bool:
    """Whether oneDNN with packed weights beats torch's own product on this CPU.

    A property of the CPU and not a timing, so that every run on a machine takes the same path and
    gives the same bits. float32: MKL, torch's default, uses half of a vector unit with AVX-512
    unless Intel made it; with AVX2 oneDNN is as fast or faster. bfloat16: oneDNN is what torch
    calls anyway, packing saves it the reordering.
    """
    onednn: Any = torch.backends.mkldnn  # untyped
    if not onednn.is_available():
        return False
    if dtype == torch.float32:
        capability = torch.backends.cpu.get_cpu_capability()
        return capability == "AVX2" or (capability.startswith("AVX512") and not made_by_intel())
    return dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def made_by_intel() -> bool:
    """Whether the CPU is Intel's, as far as the system tells; then also where it does not."""
    name = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        name += info.read_text(encoding="utf-8", errors="replace")
    return "AuthenticAMD" not in name


#: GELU in place: memory for another batch of inner states costs more than its sums. oneDNN can
#: compute it within the product, but with AVX2 a pass is slower so by 5%, with bfloat16 as fast.
gelu: Callable[[Tensor], Tensor] = torch.ops.aten.gelu_
#: As T5 and others approximate it.
tanh_gelu: Callable[[Tensor], Tensor] = partial(torch.ops.aten.gelu_, approximate="tanh")


class LayerParts(NamedTuple):
    """The parts of one layer. ``norms`` are before attention and feed-forward, or after them and
    the sum where ``normed_sum``; ``gate`` is multiplied with what ``activation`` gives."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    attended: nn.Linear
    inner: nn.Linear
    outer: nn.Linear
    norms: tuple[nn.Module, nn.Module]
    heads: int
    activation: Callable[[Tensor], Tensor] = gelu
    attention: Attention = attend
    gate: nn.Linear | None = None
    normed_sum: bool = True


class Layer:
    """One layer of any family; ``dtype`` is that of the products, states and norms are float32."""

    def __init__(self, parts: LayerParts, dtype: torch.dtype) -> None:
        self._activation = parts.activation
        self._asked, self._key, self._value = (
            Product(linear, dtype, dtype) for linear in (parts.query, parts.key, parts.value)
        )
        self._inner = Product(parts.inner, dtype, dtype)
        self._gate = None if parts.gate is None else Product(parts.gate, dtype, dtype)
        self._attended = Product(parts.attended, dtype, torch.float32)
        self._outer = Product(parts.outer, dtype, torch.float32)
        self._norms, self._normed_sum = parts.norms, parts.normed_sum
        self._heads, self._attention = parts.heads, parts.attention

    def __call__(self, states: Tensor, segments: Segments, *, first_only: bool) -> Tensor:
        """``[tokens, hidden]`` to the same, or to that of first tokens ``[rows, hidden]``."""
        asked = states[segments.starts] if first_only else states
        if self._normed_sum:
            first, second = self._norms
            attended = first(self._attend(asked, states, segments, asked))
            output: Tensor = second(self._feed(attended, attended))
            return output
        first, second = self._norms
        normed = first(states)
        given = normed[segments.starts] if first_only else normed
        attended = self._attend(given, normed, segments, asked)
        return self._feed(second(attended), attended)

    def cross(self, asked: Tensor, read: Tensor, segments: Segments) -> Tensor:
        """A decoder's: ``[rows, hidden]`` to the same, each attending to its row of ``read``."""
        first, second = self._norms
        attended = self._attend(first(asked), read, segments, asked)
        return self._feed(second(attended), attended)

    def _attend(self, asked: Tensor, states: Tensor, segments: Segments, plus: Tensor) -> Tensor:
        query, key, value = (
            linear(given).unflatten(-1, (self._heads, -1))
            for linear, given in (
                (self._asked, asked),
                (self._key, states),
                (self._value, states),
            )
        )
        output: Tensor = self._attended(
            self._attention(query, key, value, segments).flatten(1), plus
        )
        return output

    def _feed(self, states: Tensor, plus: Tensor) -> Tensor:
        inner = self._activation(self._inner(states))
        if self._gate is not None:
            inner *= self._gate(states)
        output: Tensor = self._outer(inner, plus)
        return output


class PackedBatch(TokenBatch):
    """A batch with what a packed model takes of it, on the model's device: ``inputs`` by name,
    ``[1, tokens]``. What is prepared for the rows of many batches is cut with them."""

    device: torch.device
    inputs: dict[str, Tensor]

    @classmethod
    def with_inputs(
        cls, batch: TokenBatch, device: torch.device, inputs: dict[str, Tensor]
    ) -> PackedBatch:
        packed = cls(*batch)
        packed.device, packed.inputs = device, inputs
        return packed

    @cached_property
    def segments(self) -> Segments:
        return Segments.of(TokenBatch(*self), self.device)  # itself would be a circle

    def cut(self, rows: Sequence[int]) -> list[TokenBatch]:
        batches, output = super().cut(rows), list[TokenBatch]()
        sizes = [len(batch.ids) for batch in batches]
        cut = zip(*(part.split_with_sizes(sizes, 1) for part in self.inputs.values()), strict=True)
        for batch, parts in zip(batches, cut, strict=True):
            inputs = dict(zip(self.inputs, parts, strict=True))
            packed = self.with_inputs(batch, self.device, inputs)
            packed.segments = Segments.of(batch, self.device)
            output.append(packed)
        return output


class PackedBackbone(nn.Module):
    """An encoder that runs packed; see `Backbone`. As a module it can be watched like others.

    ``embed`` gives the states ``[tokens, hidden]`` of a batch's inputs, ``norm`` is applied to the
    last layer's. Positions count from after ``padding_index``, where there is one.
    """

    padded = False

    def __init__(
        self,
        embed: Callable[[dict[str, Tensor]], Tensor],
        layers: list[Layer],
        *,
        device: torch.device,
        with_types: bool,
        norm: nn.Module | None = None,
        padding_index: int | None = None,
    ) -> None:
        super().__init__()
        self.device = device
        self._embed, self._layers, self._norm = embed, layers, norm
        self._with_types, self._padding_index = with_types, padding_index

    def prepare(self, batch: TokenBatch) -> PackedBatch:
        if isinstance(batch, PackedBatch):
            return batch
        ids = torch.from_numpy(batch.ids)
        inputs = {
            "input_ids": ids,
            "token_type_ids": (
                torch.from_numpy(batch.types) if self._with_types else torch.zeros_like(ids)
            ),
            "position_ids": torch.from_numpy(self._positions(batch)),
        }
        inputs = {name: part[None].to(self.device) for name, part in inputs.items()}
        return PackedBatch.with_inputs(batch, self.device, inputs)

    def states(self, batch: TokenBatch) -> Tensor:
        return self._last(batch)

    def first(self, batch: TokenBatch) -> Tensor:
        return self._last(batch, first_only=True)

    def layers(self, batch: TokenBatch, n_layers: int) -> list[Tensor]:
        output: list[Tensor] = self(batch, n=n_layers)
        return output

    def _last(self, batch: TokenBatch, **options: bool) -> Tensor:
        output: list[Tensor] = self(batch, **options)
        return output[-1]

    def forward(self, batch: TokenBatch, *, first_only: bool = False, n: int = 1) -> list[Tensor]:
        """The states of the last ``n`` layers; those of the embeddings where there is none."""
        packed = self.prepare(batch)
        output = [self._embed(packed.inputs)]
        for i, layer in enumerate(self._layers, 1):
            last = first_only and i == len(self._layers)
            output.append(layer(output[-1], packed.segments, first_only=last))
            del output[: -min(n, len(self._layers))]
        if self._norm is not None:
            output[-1] = self._norm(output[-1])
        return output

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
        output: NDArray[np.int64] = places * counted + self._padding_index
        return output
