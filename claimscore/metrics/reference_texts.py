"""Metrics that compare a summary with each of its references, or with each text of its source."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    PassRequirement,
    Requirements,
    Score,
    option,
    option_facts,
    score_records,
    scored,
)
from claimscore.tables import REFERENCES_SIDE, SOURCE_SIDE, texts_on_side

V = TypeVar("V")

_SIDES = (REFERENCES_SIDE, SOURCE_SIDE)
_AGAINST_HELP = "The texts that the summary is compared with."
_MULTI_HELP = "The value of a record with several texts: that of the best one, or the mean."


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """Options of a metric with one value a text."""

    against: str = option(REFERENCES_SIDE, _AGAINST_HELP, _SIDES)
    multi: str = option("max", _MULTI_HELP, ("max", "mean"))


@dataclasses.dataclass(frozen=True)
class MeasureOptions:
    """Options of a metric with precision, recall and F1 for each text."""

    against: str = option(REFERENCES_SIDE, _AGAINST_HELP, _SIDES)
    measure: str = option("f1", "The number that is the score.", ("f1", "recall", "precision"))
    multi: str = option("max", _MULTI_HELP, ("max", "mean"))


class SummaryPair(NamedTuple):
    """A record's summary and the texts to compare it with, by their place; blank ones left out."""

    id: str
    summary: str
    texts: dict[int, str]


ScorePair = Callable[[SummaryPair], Score]


def text_metric(
    name: str,
    options: TextOptions | MeasureOptions,
    scorer: Callable[[ChunkTables], ScorePair],
    passes: tuple[PassRequirement, ...] = (),
    **described: Any,
) -> Metric:
    """A metric of the summary against its references or its source, described by the other fields.

    `scorer` reads the tables of a chunk and returns what scores the pair of each record.
    """
    requires = Requirements(columns=("summary", options.against), passes=passes)

    def score(tables: ChunkTables) -> list[Score]:
        return score_pairs(tables, requires, options.against, scorer(tables))

    fields = {"facts": option_facts(options)} | described
    return Metric(name=name, version="v1", requires=requires, score=score, **fields)


def score_pairs(
    tables: ChunkTables, requires: Requirements, against: str, score: ScorePair
) -> list[Score]:
    """One score a record, in order; `score` gets the pairs that have texts and did not fail."""

    def score_row(row: Mapping[str, Any]) -> Score:
        texts = enumerate(texts_on_side(row, against))
        own = {index: text for index, text in texts if text.strip()}
        return score(SummaryPair(row["id"], row["summary"], own))

    return score_records(tables, requires, score_row)


def by_place(values: Iterable[tuple[str, int, V]]) -> dict[str, dict[int, V]]:
    """Values of (id, place of the text, value), by id and place."""
    found: dict[str, dict[int, V]] = {}
    for record, index, value in values:
        found.setdefault(record, {})[index] = value
    return found


def scored_texts(
    pair: SummaryPair, values: Mapping[int, float], multi: str, components: Mapping[str, object]
) -> Score:
    """The score of a record whose texts have these values, by place."""
    return scored(pair.id, combined(values, multi), {**components, "values": values})


def combined(values: Mapping[int, float], multi: str) -> float:
    """One value of several texts' values: the largest, or the mean."""
    return max(values.values()) if multi == "max" else fmean(values.values())


def best_place(values: Mapping[int, float]) -> int:
    """The place of the largest value; of equal ones the first."""
    return max(values, key=lambda index: values[index])
