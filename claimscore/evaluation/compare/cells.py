"""NLI labels of two runs: of the same pair of texts, and how often they agree."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from claimscore.blocks import find_cut
from claimscore.errors import ConfigError
from claimscore.evaluation.compare.source import Source
from claimscore.evaluation.compare.units import BATCH
from claimscore.runs import damage_as_error
from claimscore.tables import SIDE_COLUMNS, SOURCE_SIDE

LABELS = ("entailment", "neutral", "contradiction")

#: The tables of NLI probabilities, and what a cell of each is found by.
KEYS = {
    "nli": ("premise_side", "premise_index", "hypothesis_side", "hypothesis_index"),
    "block_nli": (
        *("premise_side", "premise_cut", "premise_index"),
        *("hypothesis_side", "hypothesis_cut", "hypothesis_index"),
    ),
}


class Cell(NamedTuple):
    """A pair of texts; the sides are those of the record (`a`, `source.sentence`)."""

    premise_side: str
    premise: str
    hypothesis_side: str
    hypothesis: str


class Judged(NamedTuple):
    """A label and the probabilities behind it, in the order of `LABELS`."""

    label: str
    probabilities: tuple[float, float, float]


class Flip(NamedTuple):
    """A pair of texts with another label in each run.

    Where a text was reworded, `cell` has the words of the first run and `cell_b` those of the
    second; else they are equal.
    """

    cell: Cell
    cell_b: Cell
    a: Judged
    b: Judged

    @property
    def reworded(self) -> bool:
        return self.cell != self.cell_b


@dataclasses.dataclass(frozen=True, slots=True)
class RecordCells:
    """The NLI cells of one record in two runs; `only_a`, `only_b` count labels."""

    table: str
    shared: int
    flips: tuple[Flip, ...]
    only_a: Mapping[str, int]
    only_b: Mapping[str, int]


class LabelAgreement(NamedTuple):
    """Over the records whose compared texts are the same: cells by label of each run.

    `records` are those with cells in both.
    """

    table: str
    records: int
    cells: int
    counts: Mapping[tuple[str, str], int]

    @property
    def flipped(self) -> int:
        return sum(n for (a, b), n in self.counts.items() if a != b)

    @property
    def share_same(self) -> float | None:
        return 1 - self.flipped / self.cells if self.cells else None


def _label() -> pl.Expr:
    """The most probable label; of equals the first, as the metrics have it."""
    entailment, neutral, contradiction = map(pl.col, LABELS)
    return (
        pl.when((entailment >= neutral) & (entailment >= contradiction))
        .then(pl.lit(LABELS[0]))
        .when(neutral >= contradiction)
        .then(pl.lit(LABELS[1]))
        .otherwise(pl.lit(LABELS[2]))
    )


def label_agreement(a: Source, b: Source, table: str, ids: pl.Series) -> LabelAgreement | None:
    """Labels of the cells at the same places, in records whose texts are known to be the same.

    None where a run has no such table.
    """
    of_a, of_b = a.table(table), b.table(table)
    if of_a is None or of_b is None:
        return None
    keys = ["id", *KEYS[table]]
    records = 0
    counts: Counter[tuple[str, str]] = Counter()
    with damage_as_error(b.path):
        for start in range(0, ids.len(), BATCH):
            wanted = pl.col("id").is_in(ids.slice(start, BATCH).implode())
            left, right = (
                cells.filter(wanted).select(*keys, _label().alias(name))
                for cells, name in ((of_a, "label_a"), (of_b, "label_b"))
            )
            rows = left.join(right, on=keys).group_by("id", "label_a", "label_b").len().collect()
            records += rows["id"].n_unique()
            for _, label_a, label_b, n in rows.iter_rows():
                counts[label_a, label_b] += n
    return LabelAgreement(table, records, counts.total(), dict(sorted(counts.items())))


Texts = Mapping[tuple[str, int], str]


def record_cells(
    source: Source, table: str, texts: Mapping[str, Texts]
) -> dict[str, dict[Cell, Judged]]:
    """By record, the cells by their texts; those whose texts are not among `texts` are left out.

    A pair that a side has twice is one cell: the model says the same to the same texts.
    """
    rows = source.table(table)
    if rows is None:
        return {}
    ids = pl.Series("id", list(texts), dtype=pl.String)
    with damage_as_error(source.path):
        found = (
            rows.filter(pl.col("id").is_in(ids.implode()))
            .select("id", *KEYS[table], *LABELS, label=_label())
            .collect()
        )
    cells: dict[str, dict[Cell, Judged]] = {}
    for row in found.iter_rows(named=True):
        of_record = texts[row["id"]]
        sides = [_side(row, role) for role in ("premise", "hypothesis")]
        premise = of_record.get((sides[0], row["premise_index"]))
        hypothesis = of_record.get((sides[1], row["hypothesis_index"]))
        if premise is not None and hypothesis is not None:
            cell = Cell(sides[0], premise, sides[1], hypothesis)
            judged = Judged(row["label"], tuple(row[label] for label in LABELS))
            cells.setdefault(row["id"], {})[cell] = judged
    return cells


def _side(row: Mapping[str, str], role: str) -> str:
    cut = row.get(f"{role}_cut")
    return row[f"{role}_side"] if cut is None else f"{row[f'{role}_side']}.{cut}"


def block_texts(record: Mapping[str, object], sides: Sequence[str]) -> dict[tuple[str, int], str]:
    """The blocks of a record as `block_nli` numbers them; a side is `source.sentence`."""
    return {
        (side, index): block for side in sides for index, block in enumerate(_blocks(side, record))
    }


def _blocks(side: str, record: Mapping[str, object]) -> list[str]:
    name, _, cut_name = side.partition(".")
    try:
        cut = find_cut(cut_name)
    except ConfigError:
        return []
    texts = list(_texts(name, record))
    if name == SOURCE_SIDE:
        return cut.document_blocks(texts)
    return [block for text in texts for block in cut.blocks(text)]


def _texts(side: str, record: Mapping[str, object]) -> Iterator[str]:
    """The texts of a side, as the pass that cuts them reads them."""
    columns = (SOURCE_SIDE, "sources") if side == SOURCE_SIDE else (SIDE_COLUMNS.get(side, side),)
    for column in columns:
        value = record.get(column)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from value


def block_sides(source: Source) -> list[str]:
    """Every side and cut of a run's block NLI."""
    rows = source.table("block_nli")
    if rows is None:
        return []
    with damage_as_error(source.path):
        found = [
            rows.select(pl.concat_str(f"{role}_side", f"{role}_cut", separator=".").unique())
            for role in ("premise", "hypothesis")
        ]
        return sorted({side for part in found for side in part.collect().to_series().to_list()})


Rewordings = Mapping[tuple[str, str], str]


def compare_cells(
    table: str,
    a: Mapping[Cell, Judged],
    b: Mapping[Cell, Judged],
    rewordings: Rewordings | None = None,
) -> RecordCells:
    """Cells of both runs by their texts.

    `rewordings` has for a side and a text of the second run what it was in the first.
    """
    words = rewordings or {}
    in_b = {_in_words_of_a(cell, words): cell for cell in b}
    flips = [
        Flip(cell, in_b[cell], judged, b[in_b[cell]])
        for cell, judged in a.items()
        if cell in in_b and b[in_b[cell]].label != judged.label
    ]
    return RecordCells(
        table,
        sum(cell in in_b for cell in a),
        tuple(flips),
        _labels(judged for cell, judged in a.items() if cell not in in_b),
        _labels(b[cell] for words_of_a, cell in in_b.items() if words_of_a not in a),
    )


def _in_words_of_a(cell: Cell, words: Rewordings) -> Cell:
    return Cell(
        cell.premise_side,
        words.get((cell.premise_side, cell.premise), cell.premise),
        cell.hypothesis_side,
        words.get((cell.hypothesis_side, cell.hypothesis), cell.hypothesis),
    )


def _labels(cells: Iterator[Judged]) -> dict[str, int]:
    counts = Counter(judged.label for judged in cells)
    return {label: counts[label] for label in LABELS if counts[label]}
