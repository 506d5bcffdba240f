"""OpenVINO: the stock model converted from torch, compiled for so many threads."""

from __future__ import annotations

from typing import Any

import openvino
import torch
from common import Job, Work, serve
from exported import in_our_batches
from transformers import AutoModelForSequenceClassification


def load(job: Job) -> Work:
    model = AutoModelForSequenceClassification.from_pretrained(job.model).eval()
    ids = torch.full((2, 8), 5)
    example = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.inference_mode():
        graph = openvino.convert_model(model, example_input=example)
    settings = {
        "INFERENCE_NUM_THREADS": job.threads,
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[job.dtype],
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = openvino.compile_model(graph, "CPU", settings)

    def run(ids: Any, mask: Any) -> Any:
        return compiled({"input_ids": ids, "attention_mask": mask})[0]

    return in_our_batches(job, run)


serve(load, ("openvino", "transformers", "torch"))
