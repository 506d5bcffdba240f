"""From the tables of a run to what the report holds: numbers for the overview, and one
compact JSON block of details for each hundred records.

Nothing here knows HTML.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.report.blocks import BlockMatrices
from claimscore.report.facts import METRIC, SHOWN, FactMatrices
from claimscore.report.matrix import MAX_MATRIX_CHARS, Matrices, Room
from claimscore.tables import BLOCK_NLI, FACTS, SIDE_COLUMNS, SIMILARITIES

JSON = dict[str, Any]

#: Input columns that are not repeated among a record's "other columns".
TEXT_COLUMNS = frozenset({"id", *SIDE_COLUMNS.values(), "source", "sources", "references"})

BLOCK_RECORDS = 100
MAX_TEXT_CHARS = 20_000
MAX_COMPARED_CHARS = 5_000
MAX_NOTE_CHARS = 600
MAX_COMPONENTS_CHARS = 20_000
PREVIEW_CHARS = 90

#: A value this close to the end of a metric's range lies on it: single precision ends there.
ROUNDING = 1e-3


class DetailChunk(NamedTuple):
    """Some records (id and the input's columns), and their rows of other tables."""

    records: pl.DataFrame
    claims: pl.DataFrame
    nli: pl.DataFrame
    facts: pl.DataFrame = FACTS.empty()
    similarities: pl.DataFrame = SIMILARITIES.empty()
    block_nli: pl.DataFrame = BLOCK_NLI.empty()


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """What the run was. Only what stands here is shown: the report never asks the clock."""

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

    @property
    def is_baseline(self) -> bool:
        return self.llm.partition(":")[0].startswith("builtin")


@dataclasses.dataclass(frozen=True)
class MetricFacts:
    """What the scores table does not say about a metric."""

    name: str
    half_width: float | None = None
    description: str = ""
    higher_is: str = ""
    range: tuple[float, float] | None = None


@dataclasses.dataclass(frozen=True)
class ReportTables:
    """Everything that a report is made of.

    `scores` and `failures` may be lazy; they are only aggregated, or read for one block of
    records. `chunks` is called once and is read no further than `max_details` records.
    """

    run: RunFacts
    metrics: Sequence[MetricFacts]
    scores: pl.DataFrame | pl.LazyFrame
    failures: pl.DataFrame | pl.LazyFrame
    chunks: Callable[[], Iterable[DetailChunk]]
    max_details: int = 5_000
    max_matrix_chars: int = MAX_MATRIX_CHARS


class Histogram(NamedTuple):
    """Counts of equally wide bins from `low` to `high`; the last bin is closed."""

    low: float
    high: float
    counts: tuple[int, ...]


class MetricOverview(NamedTuple):
    """One row of the overview; `nulls` are (reason, records), most frequent first, where a
    reason is what stands before the colon: what comes after is of one record.
    """

    facts: MetricFacts
    n: int
    mean: float | None
    nulls: tuple[tuple[str, int], ...]
    signatures: tuple[str, ...]
    histogram: Histogram | None


class FailureGroup(NamedTuple):
    """How often a stage failed in one way, with the first message."""

    stage: str
    kind: str
    n: int
    n_records: int
    message: str


# Overview -------------------------------------------------------------------------------


def overview(tables: ReportTables) -> list[MetricOverview]:
    """Every metric that the run asked for or that has scores, in that order."""
    scores = _finite(tables.scores.lazy())
    present: list[str] = (
        scores.select(pl.col("metric").unique(maintain_order=True)).collect()["metric"].to_list()
    )
    known = {facts.name: facts for facts in tables.metrics}
    names = [*known, *(name for name in present if name not in known)]
    return [_metric(scores, known.get(name, MetricFacts(name))) for name in names]


def _finite(scores: pl.LazyFrame) -> pl.LazyFrame:
    """NaN and infinity are no scores: null, with that as the reason."""
    bad = pl.col("value").is_not_null() & ~pl.col("value").is_finite()
    return scores.with_columns(
        value=pl.when(bad).then(None).otherwise(pl.col("value")),
        reason=pl.when(bad).then(pl.lit("not a finite number")).otherwise(pl.col("reason")),
    )


def _metric(scores: pl.LazyFrame, facts: MetricFacts) -> MetricOverview:
    mine = scores.filter(pl.col("metric") == facts.name)
    value = pl.col("value")
    n, mean, low, high = (
        mine.select(n=value.count(), mean=value.mean(), low=value.min(), high=value.max())
        .collect()
        .row(0)
    )
    nulls = (
        mine.filter(value.is_null())
        .group_by(reason=pl.col("reason").fill_null("no reason given").str.split(":").list.first())
        .len("n")
        .sort(["n", "reason"], descending=[True, False])
        .collect()
        .rows()
    )
    signatures = (
        mine.select(pl.col("signature").drop_nulls().unique().sort()).collect()["signature"]
    ).to_list()
    histogram = _histogram(mine, facts, low, high) if n else None
    return MetricOverview(facts, n, mean, tuple(nulls), tuple(signatures), histogram)


def _histogram(mine: pl.LazyFrame, facts: MetricFacts, low: float, high: float) -> Histogram:
    """Twenty bins over the metric's range; over the data's where that is wider or unbounded."""
    bounds = facts.range or (-math.inf, math.inf)
    low = bounds[0] if abs(low - bounds[0]) < ROUNDING else low
    high = bounds[1] if abs(high - bounds[1]) < ROUNDING else high
    low = min(low, bounds[0]) if math.isfinite(bounds[0]) else low
    high = max(high, bounds[1]) if math.isfinite(bounds[1]) else high
    if (low, high) != bounds:
        step = _nice_step((high - low) or abs(high) or 1.0)
        low, high = math.floor(low / step) * step, math.ceil(high / step) * step
        high = high if high > low else low + step
    bins = 20
    position = ((pl.col("value") - low) / (high - low) * bins).floor().clip(0, bins - 1)
    found = (
        mine.filter(pl.col("value").is_not_null())
        .group_by(bin=position.cast(pl.Int32))
        .len("n")
        .collect()
    )
    counts = dict(found.rows())
    return Histogram(low, high, tuple(counts.get(index, 0) for index in range(bins)))


def _nice_step(span: float) -> float:
    """A tenth of the span or more, rounded up to 1, 2 or 5 times a power of ten."""
    raw = span / 10
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)


def failure_groups(tables: ReportTables) -> list[FailureGroup]:
    """Failures by stage and kind, most frequent first."""
    return [
        FailureGroup(stage, kind, n, n_records, _cut(message, MAX_NOTE_CHARS))
        for stage, kind, n, n_records, message in tables.failures.lazy()
        .group_by(
            stage=pl.col("stage").fill_null("unknown"),
            kind=pl.col("kind").fill_null("unknown"),
            maintain_order=True,
        )
        .agg(
            n=pl.len(),
            n_records=pl.col("id").n_unique(),
            message=pl.col("message").first().fill_null(""),
        )
        .sort(["n", "stage", "kind"], descending=[True, False, False])
        .collect()
        .rows()
    ]


# Records --------------------------------------------------------------------------------


@dataclasses.dataclass
class RecordList:
    """The list of records, filled while the details are written; `claims` says if any has some."""

    metrics: list[str]
    ids: list[str] = dataclasses.field(default_factory=list)
    previews: list[str] = dataclasses.field(default_factory=list)
    values: list[list[float | None]] = dataclasses.field(default_factory=list)
    failures: list[int] = dataclasses.field(default_factory=list)
    claims: bool = False

    def to_json(self) -> JSON:
        return {**dataclasses.asdict(self), "block": BLOCK_RECORDS}


def detail_blocks(tables: ReportTables, listed: RecordList) -> Iterator[list[JSON]]:
    """Details of the first `max_details` records, `BLOCK_RECORDS` at a time.

    `listed` is complete when the iterator has ended.
    """
    pending: list[JSON] = []
    left = tables.max_details
    room = Room(tables.max_matrix_chars)
    for chunk in tables.chunks() if left > 0 else ():
        chunk = chunk._replace(records=chunk.records.head(left))
        left -= chunk.records.height
        pending += _chunk_details(tables, listed, chunk, room)
        while len(pending) >= BLOCK_RECORDS:
            yield pending[:BLOCK_RECORDS]
            del pending[:BLOCK_RECORDS]
        if left <= 0:
            break
    if pending:
        yield pending


def _chunk_details(
    tables: ReportTables, listed: RecordList, chunk: DetailChunk, room: Room
) -> Iterator[JSON]:
    ids = chunk.records["id"].cast(pl.String)
    wanted = pl.col("id").is_in(ids.implode())
    scores = _rows_by_id(_finite(tables.scores.lazy()).filter(wanted).collect())
    failures = _rows_by_id(tables.failures.lazy().filter(wanted).collect())
    claims = _rows_by_id(chunk.claims)
    listed.claims = listed.claims or bool(claims)
    matrices = Matrices(ids.to_list(), chunk.nli)
    facts = FactMatrices(chunk.facts, chunk.similarities)
    blocks = BlockMatrices(ids.to_list(), chunk.block_nli)
    for position, record in enumerate(chunk.records.iter_rows(named=True)):
        record_id = str(record["id"])
        scored = {row["metric"]: row for row in scores.get(record_id, [])}
        mine = [scored.get(name) for name in listed.metrics]
        failed = failures.get(record_id, [])
        components = [_components(row["components"]) if row else None for row in mine]
        no_room = 0
        for place, (row, name) in enumerate(zip(mine, listed.metrics, strict=True)):
            size = len(row["components"]) if row and components[place] else 0
            if name != METRIC and not room.take(size):  # the facts of FactSim take their own
                components[place] = None
                no_room += 1
        listed.ids.append(record_id)
        listed.failures.append(len(failed))
        listed.values.append([_rounded(row["value"]) if row else None for row in mine])
        listed.previews.append(_preview(record))
        claims_of = _claims_by_side(claims.get(record_id, []))
        facts_of = facts.of(record_id, room)
        if facts_of and "missing" in facts_of:
            components = [
                _without(found, SHOWN) if name == METRIC else found
                for name, found in zip(listed.metrics, components, strict=True)
            ]
        yield {
            "sides": [
                _side(side, record, claims_of.get(side, []), components)
                for side in _sides(record, claims_of)
            ],
            "texts": _texts(record),
            "matrices": matrices.of(position),
            "facts": facts_of,
            **_blocks_of(blocks.of(position, record, room)),
            "reasons": [
                (row["reason"] or "no reason given") if row and row["value"] is None else None
                for row in mine
            ],
            "components": components,
            "components_left_out": no_room,
            "failures": [_failure(row) for row in failed],
            "other": [
                [name, _cut(_plain(value), MAX_NOTE_CHARS)]
                for name, value in record.items()
                if name not in TEXT_COLUMNS and value is not None
            ],
        }


def _rows_by_id(frame: pl.DataFrame) -> dict[str, list[JSON]]:
    found: dict[str, list[JSON]] = {}
    for row in frame.iter_rows(named=True):
        found.setdefault(row["id"], []).append(row)
    return found


def _claims_by_side(rows: list[JSON]) -> dict[str, list[JSON]]:
    found: dict[str, list[JSON]] = {}
    for row in rows:
        found.setdefault(row["side"] or "", []).append(row)
    return found


def _sides(record: JSON, claims: Mapping[str, object]) -> list[str]:
    known = [
        side
        for side, column in SIDE_COLUMNS.items()
        if record.get(column) is not None or side in claims
    ]
    return known + sorted(side for side in claims if side not in SIDE_COLUMNS)


def _side(side: str, record: JSON, claims: list[JSON], components: list[JSON | None]) -> JSON:
    """One text, cut where its sentences are: `[text, [number of each claim, ...]]`."""
    column = SIDE_COLUMNS.get(side, side)
    text = _plain(record.get(column))
    found: JSON = {
        "side": side,
        "column": column,
        "claims": [_cut(row["text"] or "", MAX_NOTE_CHARS) for row in claims],
        "segments": _segments(text[:MAX_TEXT_CHARS], claims),
    }
    if len(text) > MAX_TEXT_CHARS:
        found["left_out"] = len(text) - MAX_TEXT_CHARS
    scores = claim_scores(components, side, len(claims))
    if scores is not None:
        found["scores"] = scores
    return found


def _segments(text: str, claims: list[JSON]) -> list[list[Any]]:
    """The text in order, each sentence with the claims made of it.

    Sentences are found in the text from left to right; what lies between them had no
    claims. A sentence that is not in the text is shown where its claims come.
    """
    sentences: list[tuple[str, list[int]]] = []
    last: tuple[object, object] | None = None
    for number, row in enumerate(claims):
        key = (row["sentence_index"], row["sentence"])
        if key != last:
            sentences.append((row["sentence"] or "", []))
            last = key
        sentences[-1][1].append(number)
    segments: list[list[Any]] = []
    cursor = 0
    for sentence, numbers in sentences:
        start = text.find(sentence, cursor) if sentence else -1
        if start >= 0:
            if text[cursor:start].strip():
                segments.append([text[cursor:start].strip(), []])
            cursor = start + len(sentence)
        segments.append([sentence, numbers])
    if text[cursor:].strip():
        segments.append([text[cursor:].strip(), []])
    return segments


def claim_scores(components: Sequence[JSON | None], side: str, n: int) -> list[float] | None:
    """The numbers that a metric gave each claim of a side, wherever it keeps them.

    Understood: `{"anything_a": [...]}` and `{"anything": {"a": [...]}}` with `n` numbers.
    """
    for parts in components:
        for key, value in (parts or {}).items():
            if isinstance(value, dict):
                value = value.get(side)
            elif not key.endswith(f"_{side}"):
                continue
            if n and isinstance(value, list) and len(value) == n and all(map(_is_number, value)):
                return value
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _components(text: str | None) -> JSON | None:
    """A metric's parts; None where there are none, they are too long, or no JSON object."""
    if not text or len(text) > MAX_COMPONENTS_CHARS:
        return None
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except ValueError:
        return None
    return value if isinstance(value, dict) and value else None


def _without(components: JSON | None, names: Sequence[str]) -> JSON | None:
    return components and {k: v for k, v in components.items() if k not in names}


def _blocks_of(found: JSON) -> JSON:
    return {"block_matrices": found["matrices"], "blocks": found["blocks"]}


def _texts(record: JSON) -> list[list[Any]]:
    """What a summary is compared with: `[column, [text, ...], characters left out]`."""
    found: list[list[Any]] = []
    for column in ("source", "sources", "references"):
        value = record.get(column)
        if value is None or value == []:
            continue
        texts = value if isinstance(value, list) else [value]
        shown, room = [], MAX_COMPARED_CHARS
        for text in map(_plain, texts):
            if room > 0:
                shown.append(text[:room])
            room -= len(text)
        found.append([column, shown, max(0, -room)])
    return found


def _failure(row: JSON) -> list[Any]:
    return [
        row["stage"],
        row["side"],
        row["index"],
        row["kind"],
        _cut(row["message"] or "", MAX_NOTE_CHARS),
        row["attempts"],
        _cut(row["raw"], MAX_NOTE_CHARS) if row["raw"] else None,
    ]


def _preview(record: JSON) -> str:
    text = next((record[name] for name in SIDE_COLUMNS.values() if record.get(name)), "")
    return _cut(" ".join(_plain(text)[:1000].split()), PREVIEW_CHARS)


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
