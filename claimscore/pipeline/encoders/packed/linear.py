"""Matrix products in the right arithmetic for the device.

On a CPU whose default path in torch is slow, weights are packed once for oneDNN. In reduced
precision only the products are reduced: what adds to the residual stream comes back in float32.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: Tokens for which oneDNN lays out the weights; other numbers work as well.
_TOKENS = 512


class Product(nn.Module):
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
    return Product(linear, dtype, out)


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
