"""sentence-transformers as its users write it: CrossEncoder.predict and SentenceTransformer.encode.

Both sort by characters and pad each batch of so many texts.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from common import Done, Job, Work, serve
from sentence_transformers import CrossEncoder, SentenceTransformer


def load(job: Job) -> Work:
    torch.set_num_threads(job.threads)
    settings: dict[str, Any] = {"dtype": getattr(torch, job.dtype)}
    if job.device == "cuda" and job.dtype != "float32" and importlib.util.find_spec("flash_attn"):
        settings["attn_implementation"] = "flash_attention_2"  # then `encode` does not pad
    return {"nli": _nli, "embed": _embed, "tokenise": _tokenise}[job.task](job, settings)


def _nli(job: Job, settings: dict[str, Any]) -> Work:
    model = CrossEncoder(job.model, device=job.device, model_kwargs=settings)

    def work(options: dict[str, Any]) -> Done:
        scores = model.predict(
            job.pairs[: options.get("n")],
            batch_size=options["batch_size"],
            apply_softmax=True,
            show_progress_bar=False,
        )
        return Done(scores)

    return work


def _embed(job: Job, settings: dict[str, Any]) -> Work:
    model = SentenceTransformer(job.model, device=job.device, model_kwargs=settings)

    def work(options: dict[str, Any]) -> Done:
        texts = job.items[: options.get("n")]
        vectors = model.encode(
            texts,
            batch_size=options["batch_size"],
            normalize_embeddings=True,
            show_progress_bar=False,
            convert_to_tensor=True,
        )
        return Done(vectors.float().cpu().numpy())

    return work


def _tokenise(job: Job, settings: dict[str, Any]) -> Work:
    """What `predict` does before the model: each pair whole, each batch padded."""
    tokenizer = CrossEncoder(job.model, device="cpu").tokenizer
    pairs = sorted(job.pairs, key=lambda pair: -len(pair[0]) - len(pair[1]))

    def work(options: dict[str, Any]) -> Done:
        size = options["batch_size"]
        for start in range(0, len(pairs), size):
            batch = [list(pair) for pair in pairs[start : start + size]]
            tokenizer(batch, padding=True, truncation=True, return_tensors="pt")
        return Done()

    return work


serve(load, ("sentence-transformers", "transformers", "torch"))
