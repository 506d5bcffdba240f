"""What a model pass is: a function of one chunk of records and one model.

Each pass is a function of the chunk alone, so a chunk that was interrupted is computed
again whole and gives the same numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from claimscore.metrics.base import PassNeed
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch, RejectedItemsError

#: Told how many items a model is about to judge; gives what to call after each batch.
Listen = Callable[[int], OnBatch]


@dataclasses.dataclass(frozen=True, slots=True)
class PassInput:
    """What a pass sees of a chunk.

    `read` gives a table of the chunk; `broken` are the records of which a task failed that
    the pass needs: their scores are null whatever a model says, so they are left out.
    """

    model: Any  # what the role's loader returns; the pass knows its type
    need: PassNeed
    records: pl.DataFrame
    read: Callable[[str], pl.DataFrame]
    broken: frozenset[str]
    listen: Listen


@dataclasses.dataclass(frozen=True, slots=True)
class PassResult:
    """The rows of the pass's tables, by table, and the records that it could not do."""

    rows: Mapping[str, pl.DataFrame]
    failures: pl.DataFrame


@dataclasses.dataclass(frozen=True, slots=True)
class ModelPass:
    """A pass of one kind: which model it asks (`role`), after which tasks, and how.

    `unit` is what `PassInput.listen` counts: pairs of texts, or texts. `check` raises
    `ConfigError`, before anything is spent, where something else is missing.
    """

    kind: str
    role: str
    compute: Callable[[PassInput], PassResult]
    after: tuple[str, ...] = ()
    check: Callable[[], None] = lambda: None
    unit: str = "pairs"


def failure_row(stage: str, record: str, exc: RejectedItemsError) -> dict[str, Any]:
    """A row of `failures` for a record that the model rejected."""
    return {"id": record, "stage": stage, "kind": exc.kind, "message": str(exc), "attempts": 1}


def truncated(model: Any, items: Sequence[Any]) -> pl.Series:
    """Whether the model read an item in part only; null where it does not tell."""
    tell = getattr(model, "truncates", None)
    told = [None] * len(items) if tell is None else tell(items)
    return pl.Series("truncated", told, dtype=pl.Boolean())


def model_columns(info: ModelInfo) -> dict[str, pl.Expr]:
    """The columns of `MODEL_PROVENANCE`."""
    return {name: pl.lit(value) for name, value in info._asdict().items()}
