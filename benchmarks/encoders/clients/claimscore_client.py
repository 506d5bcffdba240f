"""claimscore's encoders by their public protocols, as a pass of a run asks them.

The task `tokenise` makes the same call with a model that computes nothing.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Done, Job, Work, serve
from transformers import AutoTokenizer

from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders import load_model
from claimscore.pipeline.encoders.protocols import ModelInfo
from claimscore.pipeline.encoders.results import StoreStats, open_store

#: Pairs in one call, as a chunk of a run has them.
LOOKUP_WINDOW = 5000


def load(job: Job) -> Work:
    torch.set_num_threads(job.threads)
    return WORKS[job.task](job)


def model_of(job: Job, role: str) -> Any:
    """The model of a role, as `claimscore run` loads it."""
    models = {role: "embedded" if job.more.get("embedded") else job.model}
    if role == "token_encoder":
        models |= {"token_layer": job.more["layer"], "rescale_with_baseline": False}
    return load_model(role, EncoderConfig(**models, device=job.device, dtype=job.dtype))


def nli(job: Job) -> Work:
    model = model_of(job, "nli")
    pairs, limit = job.pairs, job.more.get("memory_bytes")
    cuda = job.device == "cuda"
    if limit is not None:
        free = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(limit / free)

    def work(options: dict[str, Any]) -> Done:
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        scores = model.classify(pairs[: options.get("n")])
        figures = {"memory_bytes": torch.cuda.max_memory_reserved()} if cuda else {}
        return Done(scores, figures)

    return work


def embed(job: Job) -> Work:
    model = model_of(job, "embedder")
    return lambda options: Done(model.embed(job.items[: options.get("n")]))


def bertscore(job: Job) -> Work:
    model = model_of(job, "token_encoder")
    candidates, references = (list(side) for side in zip(*job.pairs, strict=True))

    def work(options: dict[str, Any]) -> Done:
        part = slice(options.get("n"))
        return Done(model.bertscore(candidates[part], references[part]))

    return work


def tokenise(job: Job) -> Work:
    """CPU seconds of `classify` that are not the model's: tokenising, batches, the answers.

    A fresh model and fresh texts each time, so that nothing is kept from the last one; beside it
    the tokenizer's own time over the distinct texts.
    """
    backend = AutoTokenizer.from_pretrained(job.model).backend_tokenizer

    def work(options: dict[str, Any]) -> Done:
        model = model_of(job, "nli")
        mark = f" {options['round']}"
        pairs = [(first + mark, second + mark) for first, second in job.pairs]
        model.classify([("warm", "up"), ("and", "again")])
        # no public name: all but the model's arithmetic is asked for
        model._model = model._model._replace(
            logits=lambda batch: torch.zeros(len(batch.lengths), 3)
        )
        began = time.process_time()
        model.classify(pairs)
        cpu_s = time.process_time() - began
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        began = time.process_time()
        backend.encode_batch_fast(texts, add_special_tokens=False)
        tokenizer_s = time.process_time() - began
        return Done(figures={"tokenizer_s": tokenizer_s, "n_texts": len(texts)}, seconds=cpu_s)

    return work


def lookup(job: Job) -> Work:
    """Results stored and found again by a pass's own call, in a fresh folder each time.

    The model's numbers are made up at no cost, so that the seconds are the store's. `shuffled`:
    asked in another order than they were stored in.
    """

    def windows(pairs: Sequence[Any]) -> list[Sequence[Any]]:
        starts = range(0, len(pairs), LOOKUP_WINDOW)
        return [pairs[start : start + LOOKUP_WINDOW] for start in starts]

    in_order = windows(job.pairs)
    shuffled = windows(random.Random(0).sample(job.pairs, len(job.pairs)))

    def seconds(folder: Path, expect: str, calls: Sequence[Sequence[Any]]) -> float:
        store = open_store(folder, on_notice=print)
        model = store.around(_Free())
        began = time.perf_counter()
        for pairs in calls:
            model.classify(pairs)
        took = time.perf_counter() - began
        distinct = sum(len(set(pairs)) for pairs in calls)
        assert expect == "write" or store.stats == StoreStats(found=distinct)
        return took

    def work(options: dict[str, Any]) -> Done:
        with tempfile.TemporaryDirectory() as folder:
            insert_s = seconds(Path(folder), "write", in_order)
            asked = shuffled if options["shuffled"] else in_order
            found_s = seconds(Path(folder), "read", asked)
            return Done(figures={"insert_s": insert_s}, seconds=found_s)

    return work


class _Free:
    """A pair classifier that costs nothing."""

    info = ModelInfo("free", "0", "float32")
    facts: Mapping[str, str] = {}

    def classify(self, pairs: Sequence[Any], *, on_batch: Any = None) -> Any:
        return np.full((len(pairs), 3), 1 / 3, dtype=np.float32)

    def truncates(self, pairs: Sequence[Any]) -> Any:
        return np.zeros(len(pairs), dtype=bool)


WORKS = {
    "nli": nli,
    "embed": embed,
    "bertscore": bertscore,
    "tokenise": tokenise,
    "lookup": lookup,
}

serve(load, ("torch", "transformers", "tokenizers"))
