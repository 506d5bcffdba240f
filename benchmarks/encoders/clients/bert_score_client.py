"""bert-score's scorer with one layer of one model, loaded once."""

from __future__ import annotations

from typing import Any

import torch
from bert_score import BERTScorer
from common import Done, Job, Work, serve
from tokenizers.pre_tokenizers import ByteLevel


def load(job: Job) -> Work:
    torch.set_num_threads(job.threads)
    scorer = BERTScorer(
        model_type=job.model, num_layers=job.more["layer"], device=job.device, lang=None
    )
    _put_space_in_front(scorer._tokenizer)
    candidates, references = (list(side) for side in zip(*job.pairs, strict=True))

    def work(options: dict[str, Any]) -> Done:
        part = slice(options.get("n"))
        found = scorer.score(candidates[part], references[part], batch_size=options["batch_size"])
        return Done(torch.stack(found, dim=1).cpu().numpy())

    return work


def _put_space_in_front(tokenizer: Any) -> None:
    """RoBERTa's texts begin with a space: bert-score asks for it, transformers 5 ignores it."""
    if type(tokenizer).__name__.startswith("Roberta"):
        tokenizer.backend_tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=True)


serve(load, ("bert-score", "transformers", "torch"))
