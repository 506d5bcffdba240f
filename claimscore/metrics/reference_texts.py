"""Metrics that compare a summary with each of its references, or with each text of its source."""

from __future__ import annotations

import dataclasses
import math
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
    text_numbers,
    unscored,
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

#: Values by record and by the place of a text; None where nothing can be compared.
Values = Mapping[str, Mapping[Any, float | None]]


def text_metric(
    name: str,
    options: Any,
    scorer: Callable[[ChunkTables], ScorePair],
    passes: tuple[PassRequirement, ...] = (),
    **described: Any,
) -> Metric:
    """A metric of the summary against its references or its source, described by the other fields.

    `scorer` reads the tables of a chunk and returns what scores the pair of each record. Options
    without `against` are of a metric against the source.
    """
    against = getattr(options, "against", SOURCE_SIDE)
    requires = Requirements(columns=("summary", against), passes=passes)

    def score(tables: ChunkTables) -> list[Score]:
        return score_pairs(tables, requires, against, scorer(tables))

    fields = {"facts": option_facts(options)} | described
    return Metric(name=name, requires=requires, score=score, **fields)


def value_metric(
    name: str,
    options: Any,
    read: Callable[[ChunkTables], Values],
    what: str,
    passes: tuple[PassRequirement, ...],
    **described: Any,
) -> Metric:
    """A `text_metric` whose score is combined of one value a text, as `read` finds them in the
    tables; a record of which a text lacks one (`what`) has no score."""
    against = getattr(options, "against", SOURCE_SIDE)

    def scorer(tables: ChunkTables) -> ScorePair:
        of_records = read(tables)

        def score_pair(pair: SummaryPair) -> Score:
            by_text, values = of_records.get(pair.id, {}), dict[int, float]()
            for index in pair.texts:
                value = by_text.get(index)
                if value is None:
                    lacking = "no words to compare" if index in by_text else f"no {what}"
                    return unscored(pair.id, f"{lacking}: {against} {index}")
                if not math.isfinite(value):
                    return unscored(pair.id, f"the {what} is not a number: {against} {index}")
                values[index] = value
            return scored_texts(pair, values, options.multi, {"best": best_place(values)})

        return score_pair

    return text_metric(name, options, scorer, passes, **described)


def read_number(measure: str, name: str, against: str) -> Callable[[ChunkTables], Values]:
    """Reads the number of that name from the rows of a measure in `text_scores`."""

    def read(tables: ChunkTables) -> Values:
        rows = text_numbers(tables, (measure,), "summary", against)
        return {
            record: {index: numbers[name] for index, numbers in of.items() if name in numbers}
            for record, of in rows.items()
        }

    return read


def score_pairs(
    tables: ChunkTables, requires: Requirements, against: str, score: ScorePair
) -> list[Score]:
    """One score a record, in order; `score` gets the pairs that have texts and did not fail."""

    def score_row(row: Mapping[str, Any]) -> Score:
        texts = {n: text for n, text in enumerate(texts_on_side(row, against)) if text.strip()}
        return score(SummaryPair(row["id"], row["summary"], texts))

    return score_records(tables, requires, score_row)


def by_place(values: Iterable[tuple[str, int, V]]) -> dict[str, dict[int, V]]:
    """Values of (id, place of the text, value), by id and place."""
    by_record: dict[str, dict[int, V]] = {}
    for record, index, value in values:
        by_record.setdefault(record, {})[index] = value
    return by_record


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
