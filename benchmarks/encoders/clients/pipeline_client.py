"""The transformers pipeline for text classification, in the order of the pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from common import Done, Job, Work, serve
from transformers import pipeline


def load(job: Job) -> Work:
    torch.set_num_threads(job.threads)
    classify = pipeline(
        "text-classification", model=job.model, dtype=getattr(torch, job.dtype), device=job.device
    )
    columns = classify.model.config.label2id
    inputs = [{"text": first, "text_pair": second} for first, second in job.pairs]

    def work(options: dict[str, Any]) -> Done:
        found = classify(inputs[: options.get("n")], batch_size=options["batch_size"], top_k=None)
        values = np.zeros((len(found), len(columns)))
        for row, scores in zip(values, found, strict=True):
            for score in scores:
                row[columns[score["label"]]] = score["score"]
        return Done(values)

    return work


serve(load, ("transformers", "torch"))
