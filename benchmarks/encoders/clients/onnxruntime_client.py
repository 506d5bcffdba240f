"""ONNX Runtime: the stock model exported by torch, graph optimisations on."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from common import Job, Work, serve
from exported import in_our_batches
from torch import Tensor
from transformers import AutoModelForSequenceClassification


class Logits(torch.nn.Module):
    """The model with tensors in and one tensor out, as an exported graph has them."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits


def load(job: Job) -> Work:
    model = AutoModelForSequenceClassification.from_pretrained(job.model).eval()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        _export(Logits(model).eval(), path)
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )

    def run(ids: Any, mask: Any) -> Any:
        return session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

    return in_our_batches(job, run)


def _export(model: torch.nn.Module, path: Path) -> None:
    ids = torch.full((2, 8), 5)
    mask = torch.ones_like(ids)  # a tensor of its own, or the exporter takes both for one input
    rows, width = torch.export.Dim("rows", min=1), torch.export.Dim("width", min=2)
    torch.onnx.export(
        model,
        (ids, mask),
        str(path),
        input_names=["input_ids", "attention_mask"],
        output_names=["logits"],
        dynamic_shapes={name: {0: rows, 1: width} for name in ("input_ids", "attention_mask")},
        dynamo=True,
        verbose=False,
    )


serve(load, ("onnxruntime", "onnx", "transformers", "torch"))
