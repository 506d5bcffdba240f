"""How much a model pass would ask its model about, without a model.

A pass says how many items they are (`listen`) before it asks, so it is run up to that point for
their number, and up to its first question for their length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import polars as pl

from claimscore.metrics.base import PassRequirement
from claimscore.pipeline.encoders.protocols import OnBatch
from claimscore.pipeline.encoders.throughput import (
    estimated_tokens,
    padded_tokens,
    tokens_of_each,
)
from claimscore.pipeline.passes.model_pass import ModelPass, PassInput
from claimscore.pipeline.passes.pair_nli import PAIRS_AT_ONCE
from claimscore.pipeline.passes.token_movers import GROUP_PAIRS


class _Counted(Exception):
    """Ends a pass that is counted; no failure of it."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.n = n


#: How the tokens of a call are counted, by the model's method; `estimated_tokens` for the others.
_WEIGHTS: dict[str, Callable[[Any, int | None], int]] = {
    "padded_log_probs": padded_tokens,
    "score": tokens_of_each,
}


class _Scales:
    """In the place of a model: what it is asked first ends the pass with the tokens of it all."""

    head = "ls"  # of two kinds of LS models, the one that has work for every pass
    threshold = text_lengths = None
    told_of_parts = True
    pairs_at_once = PAIRS_AT_ONCE

    def __init__(self, limit: int | None = None, kind: str = "nli") -> None:
        self.limit = limit
        self.kind = kind  # of a verifier; where it is not known, the one that reads more
        self._items = 0

    def listen(self, items: int) -> OnBatch:
        self._items = items
        return lambda done: None

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        weight = _WEIGHTS.get(name, estimated_tokens)

        def asked(*given: object, **_options: object) -> NoReturn:
            lists = [texts for texts in given if isinstance(texts, list)]
            raise _Counted(sum(weight(texts, self.limit) for texts in lists))

        return asked

    def classify(self, pairs: list[tuple[str, str]], **_options: object) -> NoReturn:
        """Asked for a block of pairs at a time."""
        raise _Counted(estimated_tokens(pairs, self.limit) * self._items // max(1, len(pairs)))

    def token_layers(self, texts: list[str], *_args: object, **_options: object) -> NoReturn:
        """Asked for a group of pairs at a time."""
        group = max(1, min(self._items, GROUP_PAIRS))
        raise _Counted(estimated_tokens(texts, self.limit) * self._items // group)


def count_items(
    model_pass: ModelPass,
    need: PassRequirement,
    records: pl.DataFrame,
    read: Callable[[str], pl.DataFrame],
    limit: int | None = None,
    kind: str = "nli",
    *,
    tokens: bool = False,
) -> int:
    """The items (`ModelPass.unit`) of a pass on a chunk, whose tasks are done.

    `limit` and `kind` are those of its model (`Verifier`), as far as they are known. With `tokens`
    it is about how many tokens the model would read.
    """

    def listen(n: int) -> NoReturn:
        raise _Counted(n)

    scales = _Scales(limit, kind)
    heard = scales.listen if tokens else listen
    try:
        model_pass.compute(PassInput(scales, need, records, read, frozenset(), heard))
    except _Counted as counted:
        return counted.n
    return 0


def count_tokens(*given: Any) -> int:
    """About how many tokens the model of a pass would read, of the arguments of `count_items`.

    By the characters of the distinct texts or pairs, at most `limit` tokens each: nothing is
    tokenised, and what is stored of earlier runs counts as well.
    """
    return count_items(*given, tokens=True)
