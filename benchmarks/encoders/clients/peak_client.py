"""How many products of matrices a second this machine can do, by the ways torch offers.

The shapes are those of the model's layers, so that the figure is one that a perfect encoder
stage could reach; the best of several numbers of tokens counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from common import Done, Job, Work, serve
from torch import Tensor

LEAST_S = 0.25

Product = Callable[[Tensor], Tensor]


def load(job: Job) -> Work:
    torch.set_num_threads(job.threads)
    torch.set_float32_matmul_precision("highest")

    def work(options: dict[str, Any]) -> Done:
        hidden, inner, tokens = options["hidden"], options["inner"], options["tokens"]
        figures: dict[str, float] = {}
        with torch.inference_mode():
            for name in options["ways"]:
                best = 0.0
                for rows in tokens:
                    for n_in, n_out in ((hidden, inner), (inner, hidden)):
                        best = max(best, _gflops(WAYS[name], rows, n_in, n_out, job.device))
                figures[name] = best
        return Done(figures=figures)

    return work


def _gflops(
    way: Callable[[Tensor, Tensor], Product], rows: int, n_in: int, n_out: int, device: str
) -> float:
    weight = torch.randn(n_out, n_in, device=device) * 0.02
    states = torch.randn(rows, n_in, device=device)
    try:
        product = way(weight, states)
    except (RuntimeError, AttributeError, NotImplementedError):  # not on this machine
        return 0.0
    product(states)
    best, began = 0.0, time.perf_counter()
    while time.perf_counter() - began < LEAST_S:
        _wait(device)
        start = time.perf_counter()
        for _ in range(1 if device == "cpu" else 20):
            product(states)
        _wait(device)
        seconds = (time.perf_counter() - start) / (1 if device == "cpu" else 20)
        best = max(best, 2 * rows * n_in * n_out / seconds / 1e9)
    return best


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _torch(weight: Tensor, states: Tensor) -> Product:
    return lambda x: torch.nn.functional.linear(x, weight)


def _torch_bf16(weight: Tensor, states: Tensor) -> Product:
    low, x = weight.bfloat16(), states.bfloat16()
    return lambda _: torch.nn.functional.linear(x, low)


def _onednn(weight: Tensor, states: Tensor) -> Product:
    ops: Any = torch.ops.mkldnn
    packed = ops._reorder_linear_weight(weight, states.shape[0])
    return lambda x: ops._linear_pointwise(x, packed, None, "none", [], "")


def _onednn_bf16(weight: Tensor, states: Tensor) -> Product:
    x = states.bfloat16()
    product = _onednn(weight.bfloat16(), x)
    return lambda _: product(x)


WAYS: dict[str, Callable[[Tensor, Tensor], Product]] = {
    "torch fp32": _torch,
    "oneDNN fp32": _onednn,
    "torch bf16": _torch_bf16,
    "oneDNN bf16": _onednn_bf16,
}

serve(load, ("torch",))
