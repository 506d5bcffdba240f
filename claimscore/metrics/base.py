"""What a metric is: what it needs, and a pure function from a chunk's tables to one score a record.

A score is a value, or None with a reason; never a stand-in number. What was missing is told in
the records' own words (`summary_a`), and what is particular to one record comes after a colon.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import polars as pl

from claimscore.tables import SIDE_COLUMNS, SOURCE_SIDE

#: The side of the tables that each column of the records becomes.
SIDES: dict[str, str] = {
    **{column: side for side, column in SIDE_COLUMNS.items()},
    "source": SOURCE_SIDE,
    "sources": SOURCE_SIDE,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Needs:
    """What must be there before a metric can score: columns, tasks, model passes by sides."""

    columns: tuple[str, ...]
    tasks: tuple[str, ...] = ()
    nli: tuple[tuple[str, str], ...] = ()
    token_scores: tuple[tuple[str, str], ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages whose failure leaves a record without a score, in the order they run."""
        passes = (("nli", self.nli), ("token_scores", self.token_scores))
        return self.tasks + tuple(stage for stage, pairs in passes if pairs)

    @property
    def sides(self) -> frozenset[str]:
        return frozenset(SIDES[column] for column in self.columns if column in SIDES)


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkTables:
    """The tables of one chunk of records, with the schemas of `claimscore.tables`.

    `records` has `id` and the input's columns; its order is the order of the scores.
    """

    records: pl.DataFrame
    claims: pl.DataFrame
    nli: pl.DataFrame
    token_scores: pl.DataFrame
    failures: pl.DataFrame


class Score(NamedTuple):
    """One record's score; `reason` says why the value is None, `components` what it is made of."""

    id: str
    value: float | None
    reason: str | None
    components: dict[str, object]


def scored(record: str, value: float, components: dict[str, object]) -> Score:
    return Score(record, value, None, components)


def unscored(record: str, reason: str, components: dict[str, object] | None = None) -> Score:
    return Score(record, None, reason, components or {})


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric and all that has to be said about it.

    `score` returns one `Score` a record, in the order of the records. `signature_keys` are the
    facts of a run that the values depend on, `facts` those that the metric itself fixes.
    """

    name: str
    version: str
    needs: Needs
    score: Callable[[ChunkTables], list[Score]]
    signature_keys: tuple[str, ...]
    higher_is: str
    range: tuple[float, float]
    description: str
    reference: str
    facts: tuple[tuple[str, str], ...] = ()


def signature(metric: Metric, facts: Mapping[str, str]) -> str:
    """All that changes the values in one line: `caspr|v1|llm:builtin-rules-1|nli:...`.

    A fact that the run does not have (no LLM where claims are sentences) is left out.
    """
    run_facts = [(key, facts[key]) for key in metric.signature_keys if key in facts]
    parts = [f"{key}:{value}" for key, value in (*metric.facts, *run_facts)]
    return "|".join([metric.name, metric.version, *parts])


def failure_reasons(tables: ChunkTables, needs: Needs) -> dict[str, str]:
    """Why records cannot be scored: for each, the first failure of what the metric needs.

    A failure without a side counts for every metric that needs its stage.
    """
    stages, sides = needs.stages, needs.sides
    concerned = tables.failures.filter(
        pl.col("stage").is_in(stages) & (pl.col("side").is_null() | pl.col("side").is_in(sides))
    )
    columns = concerned.select("id", "stage", "side", "index", "message").rows()
    rows = sorted(columns, key=lambda row: (stages.index(row[1]), row[2] or "", row[3] or 0))
    reasons: dict[str, str] = {}
    for record, stage, side, _, message in rows:
        place = f" for {SIDE_COLUMNS.get(side, side)}" if side else ""
        reasons.setdefault(record, f"{stage} failed{place}: {message}")
    return reasons


def no_text_reason(texts: Iterable[tuple[str, str | None]]) -> str | None:
    """The first column whose text is null or blank, as a reason; None where all have a text."""
    empty = next((column for column, text in texts if not (text or "").strip()), None)
    return f"no text in {empty}" if empty else None
