"""Texts, claims and labels behind the records that moved."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.evaluation.compare.cells import (
    KEYS,
    RecordCells,
    block_sides,
    block_texts,
    compare_cells,
    record_cells,
)
from claimscore.evaluation.compare.differing import DataDifference
from claimscore.evaluation.compare.matching import match_units
from claimscore.evaluation.compare.scores import Move
from claimscore.evaluation.compare.similarity import Similarity
from claimscore.evaluation.compare.source import Source
from claimscore.evaluation.compare.units import TABLES, read_units


class RecordDetail(NamedTuple):
    """A record that moved: by which metrics, and what is behind it.

    `texts` are the columns of the record that differ, as text. `units` has rows of
    `matching.MATCH_SCHEMA` a table (claims, facts).
    """

    id: str
    moves: tuple[Move, ...]
    texts: tuple[str, ...]
    units: Mapping[str, pl.DataFrame]
    cells: tuple[RecordCells, ...]


def record_details(
    a: Source,
    b: Source,
    moves: Sequence[Sequence[Move]],
    data: Sequence[DataDifference],
    similarity: Similarity,
) -> Iterator[RecordDetail]:
    """The records of all metrics: those that moved most of each first, then the second of each."""
    by_id: dict[str, list[Move]] = {}
    for rank in itertools.zip_longest(*moves):
        for move in filter(None, rank):
            by_id.setdefault(move.id, [])
    for move in itertools.chain.from_iterable(moves):
        by_id[move.id].append(move)
    ids = pl.Series("id", list(by_id), dtype=pl.String)
    if ids.is_empty():
        return
    units = {table: (read_units(a, table, ids), read_units(b, table, ids)) for table in TABLES}
    matches = {
        table: match_units(one.drop("sentence"), other.drop("sentence"), similarity)
        for table, (one, other) in units.items()
    }
    records = [_records(source, ids) for source in (a, b)]
    cells = _record_cells(a, b, ids, units["claims"], matches["claims"], records)
    differing = [column.column for column in data if column.n_differ]
    for record, of_record in by_id.items():
        one, other = (rows.get(record, {}) for rows in records)
        yield RecordDetail(
            record,
            tuple(of_record),
            tuple(column for column in differing if one.get(column) != other.get(column)),
            {
                table: rows.filter(pl.col("id") == record)
                for table, rows in matches.items()
                if rows.height
            },
            tuple(cells.get(record, ())),
        )


def _records(source: Source, ids: pl.Series) -> dict[str, dict[str, Any]]:
    rows = source.table("records")
    if rows is None:
        return {}
    found = rows.filter(pl.col("id").is_in(ids.implode())).collect()
    return {row["id"]: row for row in found.iter_rows(named=True)}


def _record_cells(
    a: Source,
    b: Source,
    ids: pl.Series,
    claims: Sequence[pl.DataFrame],
    matches: pl.DataFrame,
    records: Sequence[Mapping[str, Mapping[str, Any]]],
) -> dict[str, list[RecordCells]]:
    """By record, the cells of every table that both runs have."""
    found: dict[str, list[RecordCells]] = {}
    for table in KEYS:
        if a.table(table) is None or b.table(table) is None:
            continue
        cells = []
        for source, units, rows in zip((a, b), claims, records, strict=True):
            if table == "nli":
                texts = _claim_texts(ids, units)
            else:
                sides = block_sides(source)
                texts = {record: block_texts(rows.get(record, {}), sides) for record in ids}
            cells.append(record_cells(source, table, texts))
        words = _rewordings(claims, matches) if table == "nli" else {}
        for record in ids:
            one, other = (of.get(record, {}) for of in cells)
            compared = compare_cells(table, one, other, words.get(record))
            if compared.shared or compared.only_a or compared.only_b:
                found.setdefault(record, []).append(compared)
    return found


def _claim_texts(ids: pl.Series, units: pl.DataFrame) -> dict[str, dict[tuple[str, int], str]]:
    texts: dict[str, dict[tuple[str, int], str]] = {record: {} for record in ids}
    for record, side, position, text in units.select("id", "side", "position", "text").iter_rows():
        texts[record][side, position] = text
    return texts


def _rewordings(
    claims: Sequence[pl.DataFrame], matches: pl.DataFrame
) -> dict[str, dict[tuple[str, str], str]]:
    """By record: side and text in `b` -> the text in `a`, where both have other words for it.

    A text that the other run has too, elsewhere among the claims, keeps its own cells.
    """
    known_a, known_b = (set(units.select("id", "side", "text").iter_rows()) for units in claims)
    words: dict[str, dict[tuple[str, str], str]] = {}
    pairs = matches.filter(pl.col("kind").is_in(["normalised", "changed"]))
    for record, side, one, other in pairs.select("id", "side", "a", "b").iter_rows():
        if (record, side, other) not in known_a and (record, side, one) not in known_b:
            words.setdefault(record, {})[side, other] = one
    return words
