"""What the engines other than torch share: our batches around a compiled graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from common import Done, Job, Work, budgeted
from transformers import AutoTokenizer

#: Ids and mask of a padded batch -> its logits.
Graph = Callable[[Any, Any], Any]


def in_our_batches(job: Job, graph: Graph) -> Work:
    """Sort pairs by tokens, batch them by a budget of tokens, take the softmax."""
    tokenizer = AutoTokenizer.from_pretrained(job.model)
    pad = int(tokenizer.pad_token_id)

    def work(options: dict[str, Any]) -> Done:
        pairs = job.pairs[: options.get("n")]
        rows = tokenizer([a for a, _ in pairs], [b for _, b in pairs])["input_ids"]
        values = np.zeros((len(rows), 3))
        for batch in budgeted([len(row) for row in rows], options["batch_tokens"]):
            width = len(rows[batch[0]])
            ids = np.full((len(batch), width), pad, dtype=np.int64)
            mask = np.zeros((len(batch), width), dtype=np.int64)
            for i, place in enumerate(batch):
                ids[i, : len(rows[place])] = rows[place]
                mask[i, : len(rows[place])] = 1
            logits = np.asarray(graph(ids, mask), dtype=np.float64)
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            values[batch] = powers / powers.sum(axis=1, keepdims=True)
        return Done(values)

    return work
