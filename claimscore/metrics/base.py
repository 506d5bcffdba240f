"""A metric: its needs, and a pure function from a chunk's tables to one score a record.

A score is a value, or None with a reason; never a stand-in number. What was missing is told in
the records' own words (`summary_a`), and what is particular to one record comes after a colon.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from claimscore.errors import ConfigError
from claimscore.tables import REFERENCES_SIDE, SIDE_COLUMNS, SOURCE_SIDE

#: The side of the tables that each column of the records becomes.
SIDES: dict[str, str] = {
    **{column: side for side, column in SIDE_COLUMNS.items()},
    "source": SOURCE_SIDE,
    "sources": SOURCE_SIDE,
    "references": REFERENCES_SIDE,
}


class TaskRequirement(NamedTuple):
    """An LLM task, asked about the texts of these sides."""

    task: str
    sides: tuple[str, ...]


class PassRequirement(NamedTuple):
    """A model pass: its kind (`claimscore.pipeline.passes`) and what it reads, in its order.

    An item of `over` is a side (`summary`), or a side and how its text is cut
    (`source.sentence`).
    """

    kind: str
    over: tuple[str, ...]

    @property
    def sides(self) -> tuple[str, ...]:
        return tuple(item.partition(".")[0] for item in self.over)

    @property
    def step(self) -> str:
        """The name of this work on one chunk in the run directory's manifest."""
        return "-".join((self.kind, *self.over))


@dataclasses.dataclass(frozen=True, slots=True)
class Requirements:
    """The needs of a metric: columns, LLM tasks, model passes."""

    columns: tuple[str, ...]
    tasks: tuple[TaskRequirement, ...] = ()
    passes: tuple[PassRequirement, ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages whose failure leaves a record without a score, in the order they run."""
        names = (*(need.task for need in self.tasks), *(need.kind for need in self.passes))
        return tuple(dict.fromkeys(names))

    @property
    def sides(self) -> frozenset[str]:
        return frozenset(SIDES[column] for column in self.columns if column in SIDES)


class ChunkTables:
    """The tables of one chunk of records, with the schemas of `claimscore.tables`.

    `tables["nli"]` reads that table once. `records` has `id` and the input's columns; its
    order is the order of the scores.
    """

    def __init__(self, read: Callable[[str], pl.DataFrame]) -> None:
        self._read = read
        self._frames: dict[str, pl.DataFrame] = {}

    def __getitem__(self, table: str) -> pl.DataFrame:
        if table not in self._frames:
            self._frames[table] = self._read(table)
        return self._frames[table]

    @property
    def records(self) -> pl.DataFrame:
        return self["records"]


class Score(NamedTuple):
    """One record's score; `reason` says why the value is None, `components` what it is made of."""

    id: str
    value: float | None
    reason: str | None
    components: dict[str, object]


def scored(record: str, value: float, components: dict[str, object]) -> Score:
    """The score of a record that has a value."""
    return Score(record, value, None, components)


def unscored(record: str, reason: str, components: dict[str, object] | None = None) -> Score:
    """The score of a record that has none, with the reason for people."""
    return Score(record, None, reason, components or {})


def nothing_to_check() -> None:
    """The check of a metric that needs nothing but its package."""


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric and all that has to be said about it.

    `score` returns one `Score` a record, in the order of the records. `signature_keys` are the
    facts of a run that the values depend on, `facts` those that the metric itself fixes.
    `check` raises `ConfigError` where this machine lacks what `score` reads (WordNet, a spaCy
    model); it is called before a run spends anything.
    """

    name: str
    version: str
    requires: Requirements
    score: Callable[[ChunkTables], list[Score]]
    signature_keys: tuple[str, ...]
    higher_is: str
    range: tuple[float, float]
    description: str
    reference: str
    facts: tuple[tuple[str, str], ...] = ()
    check: Callable[[], None] = nothing_to_check


@dataclasses.dataclass(frozen=True)
class MetricFamily:
    """A metric with options: for each its values, the default first; None where any text goes.

    `make` gets the name that the scores will have and a value for every option.
    """

    name: str
    options: Mapping[str, tuple[str, ...] | None]
    make: Callable[[str, Mapping[str, str]], Metric]

    def metric(self, given: Sequence[str] = ()) -> Metric:
        """The metric with `key=value` options; the name has those that are not the default.

        `ConfigError` for an option or a value that there is not.
        """
        chosen: dict[str, str] = {}
        for item in given:
            key, equals, value = item.partition("=")
            if not equals or key not in self.options or key in chosen:
                known = ", ".join(self.options)
                raise ConfigError(f"metric {self.name}: {item!r} is no option; options: {known}")
            values = self.options[key]
            if values is not None and value not in values:
                raise ConfigError(f"metric {self.name}: {key} is one of {', '.join(values)}")
            chosen[key] = value
        defaults = {key: values[0] if values else "" for key, values in self.options.items()}
        settings = {key: chosen.get(key, default) for key, default in defaults.items()}
        other = [f"{k}={v}" for k, v in settings.items() if v != defaults[k]]
        return self.make(":".join((self.name, *other)), settings)


def signature(metric: Metric, facts: Mapping[str, str]) -> str:
    """Everything that changes the values, in one line: `caspr|v1|llm:builtin-rules-1|nli:...`.

    A fact that the run does not have (no LLM where claims are sentences) is left out.
    """
    run_facts = [(key, facts[key]) for key in metric.signature_keys if key in facts]
    parts = [f"{key}:{value}" for key, value in (*metric.facts, *run_facts)]
    return "|".join([metric.name, metric.version, *parts])


def failure_reasons(tables: ChunkTables, needs: Requirements) -> dict[str, str]:
    """Why records cannot be scored: for each, the first failure of what the metric needs.

    A failure without a side counts for every metric that needs its stage.
    """
    stages, sides = needs.stages, needs.sides
    concerned = tables["failures"].filter(
        pl.col("stage").is_in(stages) & (pl.col("side").is_null() | pl.col("side").is_in(sides))
    )
    columns = concerned.select("id", "stage", "side", "index", "message").rows()
    rows = sorted(columns, key=lambda row: (stages.index(row[1]), row[2] or "", row[3] or 0))
    reasons: dict[str, str] = {}
    for record, stage, side, _, message in rows:
        place = f" for {SIDE_COLUMNS.get(side, side)}" if side else ""
        reasons.setdefault(record, f"{stage} failed{place}: {message}")
    return reasons


def source_texts(records: pl.DataFrame) -> list[list[str]]:
    """The texts of each record's source (`source`, a text or a list, or `sources`), blank ones
    left out."""
    columns = records.select(name for name in ("source", "sources") if name in records.columns)
    return [
        [
            text
            for value in row
            for text in ([value] if isinstance(value, str) else value or ())
            if (text or "").strip()
        ]
        for row in columns.iter_rows()
    ]


def no_text_reason(texts: Iterable[tuple[str, str | None]]) -> str | None:
    """The first column whose text is null or blank, as a reason; None where all have a text."""
    empty = next((column for column, text in texts if not (text or "").strip()), None)
    return f"no text in {empty}" if empty else None
