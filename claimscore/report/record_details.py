"""The records of a page: an index of all, and the details of each, a block for each hundred.

A reader filters, sorts and draws by the index. In a block the texts, which a search reads, lie
apart from matrices and conversations, which the page reads for one record.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.claim_checks import CHECKS
from claimscore.metrics.support import THRESHOLD, VERDICTS
from claimscore.report.matrices import (
    FACT_COMPONENTS,
    FACT_METRIC,
    BlockMatrices,
    FactMatrices,
    LabelMatrices,
    SupportRows,
)
from claimscore.report.record_texts import (
    MAX_COMPARED_CHARS,
    MAX_NOTE_CHARS,
    MAX_TEXT_CHARS,
    compared_texts,
    cut_off,
    plain,
    preview,
    side_of,
    sides_of,
)
from claimscore.report.report_tables import (
    TEXT_COLUMNS,
    DetailChunk,
    LLMCall,
    ReportTables,
)
from claimscore.tables import LLM_PROVENANCE, SIDE_COLUMNS

JSON = dict[str, Any]

BLOCK_RECORDS = 100
MAX_COMPONENTS_CHARS = 5_000

#: Longer prompts and answers are cut here; the run directory and the cache have the rest.
MAX_PROMPT_CHARS = 20_000

#: A column of texts can be filtered by where it has at most so many different ones.
MAX_LISTED_LEVELS = 50

#: All that there is of a record besides its texts when the page is full.
NO_ROOM: JSON = {
    **dict.fromkeys(("matrices", "support", "block_matrices", "components", "calls"), ()),
    "facts": None,
    "blocks": {},
    "left_out": True,
}

#: What records and claims with unsure verdicts are called.
UNSURE_TITLE = "unsure verdicts"

#: What a record may be filtered by: checks of its claims and verdicts on them, with their titles.
MARKS = {name: check.title for name, check in CHECKS.items()}
MARKS |= {name: name for name in (UNSURE_TITLE, *VERDICTS)}

#: The task whose rows a table has (`llm_answers` says it row by row), and the place of a row.
_TASKS = {
    "claims": ("decompose", "sentence_index"),
    "paraphrases": ("paraphrase", "sentence_index"),
    "negations": ("negate", "sentence_index"),
    "facts": ("facts", None),
    "llm_answers": (None, "index"),
    "support": ("verify", "claim_position"),
}


# The index


@dataclasses.dataclass
class RecordIndex:
    """One entry a record in every list, filled while the details are written.

    `values` are by metric; `down` says of each if its highest values are the first to look at.
    `heads` are the beginnings of the conversations with the model, each once; `claims` says if any
    record has some. `marks` are what its claims may be filtered by, bits in the order of `MARKS`;
    `verdicts` count them in the order of `VERDICTS`, by what is judged.
    """

    metrics: list[str]
    down: list[bool] = dataclasses.field(default_factory=list)
    ids: list[str] = dataclasses.field(default_factory=list)
    previews: list[str] = dataclasses.field(default_factory=list)
    values: list[list[float | None]] = dataclasses.field(default_factory=list)
    failures: list[int] = dataclasses.field(default_factory=list)
    heads: list[list[tuple[str, str]]] = dataclasses.field(default_factory=list)
    claims: bool = False
    marks: list[int] = dataclasses.field(default_factory=list)
    verdicts: list[dict[str, list[int]]] = dataclasses.field(default_factory=list)
    threshold: float = THRESHOLD

    def __post_init__(self) -> None:
        self.values = [[] for _ in self.metrics]
        self._columns: list[pl.DataFrame] = []
        self._head_numbers: dict[tuple[tuple[str, str], ...], int] = {}

    def head(self, messages: tuple[tuple[str, str], ...]) -> int:
        """The number of a conversation's beginning."""
        number = self._head_numbers.setdefault(messages, len(self.heads))
        if number == len(self.heads):
            self.heads.append(list(messages))
        return number

    def add_columns(self, records: pl.DataFrame) -> None:
        """Add the records' own columns: numbers to draw, and texts to group by."""
        columns = [
            series.alias(f"{name} (column)" if name in self.metrics else name)
            for name, series in _own_columns(records)
        ]
        self._columns.append(records.select("id", *columns))

    def to_json(self) -> JSON:
        """The index as the page's script reads it."""
        columns = pl.concat(self._columns or [pl.DataFrame({"id": []})], how="diagonal_relaxed")
        numbers: list[tuple[str, list[float | None]]] = []
        groups: list[tuple[str, JSON]] = []
        for series in columns.drop("id"):
            if series.dtype.is_numeric():
                values = [_number(value) for value in series.cast(pl.Float64).to_list()]
                if any(value is not None for value in values):
                    numbers.append((series.name, values))
                continue
            texts = series.cast(pl.String)
            levels = texts.drop_nulls().unique(maintain_order=True).to_list()
            if 1 < len(levels) <= MAX_LISTED_LEVELS:
                code = {level: place for place, level in enumerate(levels)}
                codes = [code.get(text) for text in texts]
                groups.append((series.name, {"levels": levels, "codes": codes}))
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "checks": [
                (1 << place, title)
                for place, title in enumerate(MARKS.values())
                if any(bits >> place & 1 for bits in self.marks)
            ],
            "verdict_names": VERDICTS,
            "numbers": numbers,
            "groups": sorted(groups, key=lambda item: item[0] != "system"),
            "block": BLOCK_RECORDS,
        }


def _own_columns(records: pl.DataFrame) -> Iterator[tuple[str, pl.Series]]:
    """Columns of numbers and of short texts; the numbers in a struct (`ratings`) by their names."""
    for series in records:
        if series.name in TEXT_COLUMNS:
            continue
        if isinstance(series.dtype, pl.Struct):
            for field in series.struct.fields:
                part = series.struct.field(field)
                if part.dtype.is_numeric():
                    yield f"{series.name}.{field}", part
        elif series.dtype.is_numeric() or isinstance(
            series.dtype, pl.String | pl.Boolean | pl.Categorical | pl.Enum
        ):
            yield series.name, series


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.7g}")


# The details


class DetailBlock(NamedTuple):
    """The details of some records: one entry a record in both lists."""

    texts: list[JSON]
    more: list[JSON]


def detail_blocks(tables: ReportTables, index: RecordIndex) -> Iterator[DetailBlock]:
    """Details of the first `max_details` records, `BLOCK_RECORDS` at a time.

    A record for which the page has no room any more has nothing besides its texts.
    `index` is complete when the iterator has ended.
    """
    texts: list[JSON] = []
    more: list[JSON] = []
    left, room = tables.max_details, tables.max_more_chars
    for chunk in tables.chunks() if left > 0 else ():
        chunk = chunk._replace(records=chunk.records.head(left))
        left -= chunk.records.height
        for one, other in _chunk_details(tables, index, chunk):
            texts.append(one)
            room -= len(json.dumps(other, ensure_ascii=False))
            more.append(other if room >= 0 else NO_ROOM)
        while len(texts) >= BLOCK_RECORDS:
            yield DetailBlock(texts[:BLOCK_RECORDS], more[:BLOCK_RECORDS])
            del texts[:BLOCK_RECORDS], more[:BLOCK_RECORDS]
        if left <= 0:
            break
    if texts:
        yield DetailBlock(texts, more)


def _chunk_details(
    tables: ReportTables, index: RecordIndex, chunk: DetailChunk
) -> Iterator[tuple[JSON, JSON]]:
    scores = _rows_by(chunk.scores.to_dicts())
    failures = _rows_by(chunk.failures.to_dicts())
    counted_first = chunk.claims.with_row_index("place").sort(
        pl.col("left_out").is_not_null(), maintain_order=True
    )
    claims, findings = (_rows_by(table.to_dicts()) for table in (counted_first, chunk.claim_checks))
    index.claims = index.claims or bool(claims)
    index.add_columns(chunk.records)
    matrices = LabelMatrices(chunk.nli)
    facts = FactMatrices(chunk.facts, chunk.similarities)
    blocks = BlockMatrices(chunk.block_nli)
    support = SupportRows(chunk.support)
    calls = _record_calls(tables, chunk, index)
    for record in chunk.records.iter_rows(named=True):
        record_id = str(record["id"])
        scored = {row["metric"]: row for row in scores.get(record_id, [])}
        mine = [scored.get(name) for name in index.metrics]
        failed = failures.get(record_id, [])
        components = [_components(row["components"]) if row else None for row in mine]
        index.ids.append(record_id)
        index.failures.append(len(failed))
        for values, row in zip(index.values, mine, strict=True):
            values.append(_rounded(row["value"]) if row else None)
        index.previews.append(preview(record, tables.columns))
        claims_of = _rows_by(claims.get(record_id, []), "side")
        findings_of = _rows_by(findings.get(record_id, []), "side")
        checks = {row["check"] for row in findings.get(record_id, [])}
        verdicts = support.of(record_id)
        if any(entry["unsure"] for entry in verdicts):
            checks.add(UNSURE_TITLE)
        index.verdicts.append(
            {f"{entry['side']} by the {entry['texts']}": entry.pop("counts") for entry in verdicts}
        )
        for counts in index.verdicts[-1].values():
            checks.update(name for name, n in zip(VERDICTS, counts, strict=True) if n)
        index.marks.append(sum(1 << n for n, mark in enumerate(MARKS) if mark in checks))
        facts_of = facts.of(record_id)
        asked = calls.get(record_id, _RecordCalls())
        sides = [
            side_of(side, record, claims_of.get(side, []), findings_of.get(side, ()))
            | asked.of_claims(claims_of.get(side, []))
            for side in sides_of(record, claims_of, tables.columns)
        ]
        _mark_unsure(sides, verdicts)
        unread = set(SIDE_COLUMNS.values()).difference(side["column"] for side in sides)
        shown = TEXT_COLUMNS - unread
        if facts_of and "missing" in facts_of:
            components = [
                one and {k: v for k, v in one.items() if k not in FACT_COMPONENTS}
                if name.partition(":")[0] == FACT_METRIC
                else one
                for name, one in zip(index.metrics, components, strict=True)
            ]
        block = blocks.of(record)
        most_chars = MAX_TEXT_CHARS if verdicts else MAX_COMPARED_CHARS  # evidence is shown there
        yield (
            {
                "sides": sides,
                "texts": compared_texts(record, most_chars),
                "reasons": [
                    (row["reason"] or "no reason given") if row and row["value"] is None else None
                    for row in mine
                ],
                "failures": [_failure(row) for row in failed],
                "other": [
                    [name, cut_off(plain(value), MAX_NOTE_CHARS)]
                    for name, value in record.items()
                    if name not in shown and value is not None
                ],
            },
            {
                "matrices": matrices.of(record_id),
                "facts": facts_of,
                "support": verdicts,
                "block_matrices": block["matrices"],
                "blocks": block["blocks"],
                "components": components,
                "calls": asked.calls,
            },
        )


def _mark_unsure(sides: Sequence[JSON], verdicts: Sequence[JSON]) -> None:
    """Put a mark beside each claim whose verdict is unsure."""
    unsure = {(entry["side"], claim) for entry in verdicts for claim in entry["unsure"]}
    for side in sides:
        for claim in sorted(claim for name, claim in unsure if name == side["side"]):
            side.setdefault("marks", {}).setdefault(claim, []).append("the verdict is unsure")


def _components(text: str | None) -> JSON | None:
    """A metric's components; None where there are none, they are too long, or no JSON object."""
    if not text or len(text) > MAX_COMPONENTS_CHARS:
        return None
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except ValueError:
        return None
    return value if isinstance(value, dict) and value else None


def _rows_by(rows: Iterable[JSON], column: str = "id") -> dict[str, list[JSON]]:
    """The rows by their value of a column, in order; without one they are under an empty text."""
    by_value: dict[str, list[JSON]] = {}
    for row in rows:
        by_value.setdefault(row[column] or "", []).append(row)
    return by_value


def _failure(row: Mapping[str, Any]) -> list[Any]:
    return [
        row["stage"],
        row["side"],
        row["index"],
        row["kind"],
        cut_off(row["message"] or "", MAX_NOTE_CHARS),
        row["attempts"],
        cut_off(row["raw"], MAX_NOTE_CHARS) if row["raw"] else None,
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


# The calls of the language model


@dataclasses.dataclass
class _RecordCalls:
    """The calls behind a record's rows, in the order of the tables: one entry a request."""

    calls: list[JSON] = dataclasses.field(default_factory=list)
    numbers: dict[str, int] = dataclasses.field(default_factory=dict)

    def of_claims(self, claims: list[JSON]) -> JSON:
        """For each claim the number of its call; nothing where none of them has one."""
        numbers = [self.numbers.get(row["request_key"] or "") for row in claims]
        return {"calls": numbers} if any(number is not None for number in numbers) else {}


def _record_calls(
    tables: ReportTables, chunk: DetailChunk, index: RecordIndex
) -> dict[str, _RecordCalls]:
    """The calls of a chunk's records, by id. Each conversation counts once a record."""
    ids = chunk.records["id"].cast(pl.String)
    rows = (
        pl.concat(_rows_with_requests(chunk))
        .filter(pl.col("id").is_in(ids.implode()) & pl.col("request_key").is_not_null())
        .unique(("id", "request_key"), keep="first", maintain_order=True)
    )
    keys = frozenset(rows["request_key"].to_list())
    known = tables.llm_calls(chunk, keys) if tables.llm_calls is not None and keys else {}
    calls: dict[str, _RecordCalls] = {}
    for row in rows.iter_rows(named=True):
        mine = calls.setdefault(row["id"], _RecordCalls())
        mine.numbers[row["request_key"]] = len(mine.calls)
        mine.calls.append(
            {
                "task": row["task"],
                "side": row["side"],
                "place": None if row["place"] is None else row["place"] + 1,
                "key": row["request_key"],
                "prompt": row["prompt"],
                "version": row["prompt_version"],
                "digest": row["prompt_digest"],
                "model": row["model"],
                **_conversation(known.get(row["request_key"], LLMCall()), index),
            }
        )
    return calls


def _rows_with_requests(chunk: DetailChunk) -> Iterator[pl.DataFrame]:
    """The rows of every table that a language model made, with the same columns."""
    for table, (task, place) in _TASKS.items():
        frame: pl.DataFrame = getattr(chunk, table)
        yield frame.select(
            "id",
            *([pl.lit(task).alias("task")] if task else ["task"]),
            "side",
            (pl.col(place) if place else pl.lit(None)).cast(pl.Int32).alias("place"),
            *LLM_PROVENANCE,
        )


def _conversation(call: LLMCall, index: RecordIndex) -> JSON:
    talk: JSON = {}
    if call.messages:
        *head, last = call.messages
        talk["head"] = index.head(tuple((role, content) for role, content in head))
        talk["user"] = last.content[:MAX_PROMPT_CHARS]
    if call.answer is None:
        return talk
    usage = call.answer.usage
    return talk | {
        "answer": call.answer.text[:MAX_PROMPT_CHARS],
        "finish": call.answer.finish_reason,
        "usage": [usage.prompt_tokens, usage.completion_tokens, usage.cached_prompt_tokens],
    }
