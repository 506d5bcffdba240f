"""How many items a model pass would ask its model about, without a model.

A pass says how many they are (`listen`) before it asks, so it is run up to that point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import polars as pl

from claimscore.metrics.base import PassRequirement
from claimscore.pipeline.passes.model_pass import ModelPass, PassInput


class _Counted(Exception):
    """Ends a pass that is counted; no failure of it."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.n = n


class _NoModel:
    """In the place of a model, which is not asked; what passes look at before they ask."""

    limit = threshold = text_lengths = None
    told_of_parts = True
    kind = "nli"

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        return self._ask

    @staticmethod
    def _ask(*_args: object, **_options: object) -> NoReturn:
        raise AssertionError("a pass says how many items it has before it asks")


def count_items(
    model_pass: ModelPass,
    need: PassRequirement,
    records: pl.DataFrame,
    read: Callable[[str], pl.DataFrame],
) -> int:
    """The items (`ModelPass.unit`) of a pass on a chunk, whose tasks are done."""

    def listen(n: int) -> NoReturn:
        raise _Counted(n)

    given = PassInput(_NoModel(), need, records, read, frozenset(), listen)
    try:
        model_pass.compute(given)
    except _Counted as counted:
        return counted.n
    return 0
