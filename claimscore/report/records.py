"""The details of records: compact JSON, a block for each hundred, texts apart from the rest.

Texts are what a search reads; matrices and conversations are read for one record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.report.blocks import BlockMatrices
from claimscore.report.data import TEXT_COLUMNS, DetailChunk, ReportTables, finite
from claimscore.report.facts import METRIC, SHOWN, FactMatrices
from claimscore.report.index import BLOCK_RECORDS, RecordList
from claimscore.report.matrix import Matrices, Room
from claimscore.report.requests import RecordRequests, chunk_requests
from claimscore.report.texts import (
    MAX_NOTE_CHARS,
    compared_texts,
    cut,
    plain,
    preview,
    side_of,
    sides_of,
)

JSON = dict[str, Any]

MAX_COMPONENTS_CHARS = 20_000


class Block(NamedTuple):
    """The details of some records: one entry a record in both lists."""

    texts: list[JSON]
    more: list[JSON]


class Rooms(NamedTuple):
    """How much more of matrices and parts, and of conversations, the page may hold."""

    matrices: Room
    exchanges: Room


def detail_blocks(tables: ReportTables, listed: RecordList) -> Iterator[Block]:
    """Details of the first `max_details` records, `BLOCK_RECORDS` at a time.

    `listed` is complete when the iterator has ended.
    """
    texts: list[JSON] = []
    more: list[JSON] = []
    left = tables.max_details
    rooms = Rooms(Room(tables.max_matrix_chars), Room(tables.max_exchange_chars))
    for chunk in tables.chunks() if left > 0 else ():
        chunk = chunk._replace(records=chunk.records.head(left))
        left -= chunk.records.height
        for one, other in _chunk_details(tables, listed, chunk, rooms):
            texts.append(one)
            more.append(other)
        while len(texts) >= BLOCK_RECORDS:
            yield Block(texts[:BLOCK_RECORDS], more[:BLOCK_RECORDS])
            del texts[:BLOCK_RECORDS], more[:BLOCK_RECORDS]
        if left <= 0:
            break
    if texts:
        yield Block(texts, more)


def _chunk_details(
    tables: ReportTables, listed: RecordList, chunk: DetailChunk, rooms: Rooms
) -> Iterator[tuple[JSON, JSON]]:
    ids = chunk.records["id"].cast(pl.String)
    scores = _rows_by_id(finite(_lazy_rows(chunk.scores, tables.scores, ids)).collect())
    failures = _rows_by_id(_lazy_rows(chunk.failures, tables.failures, ids).collect())
    claims = _rows_by_id(chunk.claims)
    listed.claims = listed.claims or bool(claims)
    listed.add_columns(chunk.records)
    room = rooms.matrices
    matrices = Matrices(ids.to_list(), chunk.nli)
    facts = FactMatrices(chunk.facts, chunk.similarities)
    blocks = BlockMatrices(ids.to_list(), chunk.block_nli)
    requests = chunk_requests(tables.exchanges, chunk, listed, rooms.exchanges)
    for position, record in enumerate(chunk.records.iter_rows(named=True)):
        record_id = str(record["id"])
        scored = {row["metric"]: row for row in scores.get(record_id, [])}
        mine = [scored.get(name) for name in listed.metrics]
        failed = failures.get(record_id, [])
        components, no_room = _components_of(mine, listed.metrics, room)
        listed.ids.append(record_id)
        listed.failures.append(len(failed))
        for values, row in zip(listed.values, mine, strict=True):
            values.append(_rounded(row["value"]) if row else None)
        listed.previews.append(preview(record))
        claims_of = _claims_by_side(claims.get(record_id, []))
        facts_of = facts.of(record_id, room)
        asked = requests.get(record_id, RecordRequests())
        sides = [
            side_of(side, record, claims_of.get(side, []), components)
            | asked.of_claims(claims_of.get(side, []))
            for side in sides_of(record, claims_of)
        ]
        if facts_of and "missing" in facts_of:
            components = [
                _without(found, SHOWN) if name == METRIC else found
                for name, found in zip(listed.metrics, components, strict=True)
            ]
        block = blocks.of(position, record, room)
        yield (
            {
                "sides": sides,
                "texts": compared_texts(record),
                "reasons": [
                    (row["reason"] or "no reason given") if row and row["value"] is None else None
                    for row in mine
                ],
                "failures": [_failure(row) for row in failed],
                "other": [
                    [name, cut(plain(value), MAX_NOTE_CHARS)]
                    for name, value in record.items()
                    if name not in TEXT_COLUMNS and value is not None
                ],
            },
            {
                "matrices": matrices.of(position),
                "facts": facts_of,
                "block_matrices": block["matrices"],
                "blocks": block["blocks"],
                "components": components,
                "components_left_out": no_room,
                "calls": asked.calls,
                "calls_left_out": asked.left_out,
            },
        )


def _lazy_rows(
    mine: pl.DataFrame | None, of_run: pl.DataFrame | pl.LazyFrame, ids: pl.Series
) -> pl.LazyFrame:
    """The rows of some records: those of their chunk, else those among all."""
    found = of_run if mine is None else mine
    return found.lazy().filter(pl.col("id").is_in(ids.implode()))


def _components_of(
    rows: Sequence[JSON | None], metrics: Sequence[str], room: Room
) -> tuple[list[JSON | None], int]:
    """The parts of a record's scores, and of how many there was no room for them."""
    components = [_components(row["components"]) if row else None for row in rows]
    no_room = 0
    for place, (row, name) in enumerate(zip(rows, metrics, strict=True)):
        size = len(row["components"]) if row and components[place] else 0
        if name != METRIC and not room.take(size):  # the facts of FactSim take their own
            components[place] = None
            no_room += 1
    return components, no_room


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


def _failure(row: Mapping[str, Any]) -> list[Any]:
    return [
        row["stage"],
        row["side"],
        row["index"],
        row["kind"],
        cut(row["message"] or "", MAX_NOTE_CHARS),
        row["attempts"],
        cut(row["raw"], MAX_NOTE_CHARS) if row["raw"] else None,
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
