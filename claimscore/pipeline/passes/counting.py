"""How many items a model pass would ask its model about, without a model.

A pass says how many they are (`listen`) before it asks, so it is run up to that point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import polars as pl

from claimscore.metrics.base import PassNeed
from claimscore.pipeline.passes.base import ModelPass, PassInput


class _Counted(Exception):
    """Ends a pass that is counted; no failure of it."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.n = n


class _NoModel:
    """In the place of a model: it has every method and is asked nothing."""

    head = "ls"  # of two kinds of LS models, the one that has work for every pass

    def __getattr__(self, name: str) -> Any:
        return self._asked

    def _asked(self, *_args: object, **_options: object) -> NoReturn:
        raise AssertionError("a pass that is only counted asked its model")


def count_items(
    model_pass: ModelPass,
    need: PassNeed,
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
