"""What the report of a run is made of: its facts, its metrics, and its tables, chunk by chunk."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.metrics.support import THRESHOLD
from claimscore.tables import (
    BLOCK_NLI,
    CLAIM_CHECKS,
    FACTS,
    FAILURES,
    LLM_ANSWERS,
    NEGATIONS,
    PARAPHRASES,
    SCORES,
    SIDE_COLUMNS,
    SIMILARITIES,
    SUPPORT,
)
from claimscore.types import Completion, Message

#: Input columns of texts, which no group is made of.
TEXT_COLUMNS = frozenset({"id", *SIDE_COLUMNS.values(), "source", "sources", "references"})

MAX_RECORDS = 5_000

#: A page holds so many characters of matrices, verdicts and conversations; then it says so.
MAX_MORE_CHARS = 60_000_000


class DetailChunk(NamedTuple):
    """Some records (id and the input's columns), and their rows of other tables."""

    records: pl.DataFrame
    claims: pl.DataFrame
    nli: pl.DataFrame
    facts: pl.DataFrame = FACTS.empty()
    similarities: pl.DataFrame = SIMILARITIES.empty()
    block_nli: pl.DataFrame = BLOCK_NLI.empty()
    support: pl.DataFrame = SUPPORT.empty()
    paraphrases: pl.DataFrame = PARAPHRASES.empty()
    negations: pl.DataFrame = NEGATIONS.empty()
    llm_answers: pl.DataFrame = LLM_ANSWERS.empty()
    claim_checks: pl.DataFrame = CLAIM_CHECKS.empty()
    scores: pl.DataFrame = SCORES.empty()
    failures: pl.DataFrame = FAILURES.empty()


class LLMCall(NamedTuple):
    """The call behind a request key: the conversation as it was sent, and the answer.

    None where it is not known any more.
    """

    messages: tuple[Message, ...] | None = None
    answer: Completion | None = None


#: Looks up the calls behind the rows of a chunk by their request keys, as far as they are known.
LLMCalls = Callable[[DetailChunk, frozenset[str]], Mapping[str, LLMCall]]


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """The facts of the run. Only these are shown: the report never asks the clock.

    `truncated` has for a metric the `rows` and `records` with texts longer than its models read,
    the `limits` of these in tokens, and the rows for which that is `unknown`;
    `claim_checks` are those of the summary.
    """

    title: str
    input: str
    n_records: int
    llm: str
    models: Mapping[str, str] = dataclasses.field(default_factory=dict)
    version: str = ""
    finished: str = ""
    counts: Mapping[str, object] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    notices: tuple[str, ...] = ()
    truncated: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    claim_checks: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ReportTables:
    """Everything that a report is made of.

    `metrics` and `failures` are those of `summary.json`. `scores` and `records` (id and the input's
    columns of the whole run, for groups) may be lazy; they are only aggregated. `chunks` is called
    once and is read no further than `max_details` records. The scores of a metric are one a record,
    in the order of the records; a metric with fewer is left out of the groups. `columns` are those
    whose texts were read. A claim is supported from `threshold` on.
    """

    run: RunFacts
    metrics: Mapping[str, Mapping[str, Any]]
    scores: pl.DataFrame | pl.LazyFrame
    failures: Sequence[Mapping[str, Any]]
    chunks: Callable[[], Iterable[DetailChunk]]
    records: pl.DataFrame | pl.LazyFrame | None = None
    columns: Collection[str] = TEXT_COLUMNS
    threshold: float = THRESHOLD
    llm_calls: LLMCalls | None = None
    max_details: int = MAX_RECORDS
    max_more_chars: int = MAX_MORE_CHARS


def values_of(tables: ReportTables, metric: str) -> pl.Series:
    """All values of a metric in the order of its scores: eight bytes each are in memory."""
    rows = tables.scores.lazy().filter(metric=metric).select("value").collect(engine="streaming")
    return rows.to_series().rechunk()
