"""The texts that a summary is compared with: references or source; there may be several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

import polars as pl

from claimscore.metrics.base import (
    ChunkTables,
    Requirements,
    Score,
    failure_reasons,
    no_text_reason,
    scored,
    unscored,
)
from claimscore.tables import REFERENCES_SIDE, SOURCE_SIDE

V = TypeVar("V")

#: Values of the option `against`: a side of the tables.
AGAINST = (REFERENCES_SIDE, SOURCE_SIDE)

#: Values of the option `multi`: which value counts where there are several texts.
MULTI = ("max", "mean")

MEASURES = ("f1", "recall", "precision")


class Compared(NamedTuple):
    """A record's summary and the texts to compare it with; `index` is each one's place."""

    id: str
    summary: str
    texts: tuple[tuple[int, str], ...]
    reason: str | None


def compared(records: pl.DataFrame, against: str) -> Iterator[Compared]:
    """Every record in order, without the blank texts; `reason` says which side has no text."""
    for row in records.iter_rows(named=True):
        summary = row.get("summary") or ""
        texts = tuple((i, text) for i, text in enumerate(_texts(row, against)) if text.strip())
        first = texts[0][1] if texts else None
        reason = no_text_reason((("summary", summary), (against, first)))
        yield Compared(row["id"], summary, texts, reason)


def score_compared(
    tables: ChunkTables, needs: Requirements, against: str, score: Callable[[Compared], Score]
) -> list[Score]:
    """One score a record, in order; `score` is asked where no stage failed and there are texts."""
    failed = failure_reasons(tables, needs)
    scores = []
    for item in compared(tables.records, against):
        reason = failed.get(item.id) or item.reason
        scores.append(score(item) if reason is None else unscored(item.id, reason))
    return scores


def score_text_values(
    tables: ChunkTables,
    needs: Requirements,
    against: str,
    values: Iterable[tuple[str, int, V]],
    score: Callable[[Compared, Mapping[int, V]], Score],
) -> list[Score]:
    """The same where texts have values: `values` are (id, place of the text, value), and `score`
    is asked with those of its record by place."""
    found: dict[str, dict[int, V]] = {}
    for record, index, value in values:
        found.setdefault(record, {})[index] = value
    return score_compared(tables, needs, against, lambda item: score(item, found.get(item.id, {})))


def scored_texts(identifier: str, values: Mapping[int, float], multi: str) -> Score:
    """The score of a record whose texts have these values, by place."""
    components: dict[str, object] = {
        "best": max(values, key=lambda index: values[index]),
        "values": values,
    }
    return scored(identifier, combined(list(values.values()), multi), components)


def _texts(row: dict[str, Any], against: str) -> list[str]:
    """The texts of `references`, or of `source` and `sources`, which are one side."""
    columns = ("references",) if against == REFERENCES_SIDE else ("source", "sources")
    found: list[str] = []
    for column in columns:
        value = row.get(column)
        if value is not None:
            found += [value] if isinstance(value, str) else value
    return found


def combined(values: Sequence[float], multi: str) -> float:
    """One value of several texts' values: the largest, or the mean."""
    return max(values) if multi == "max" else fmean(values)
