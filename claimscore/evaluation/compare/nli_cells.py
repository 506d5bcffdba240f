"""NLI labels of two runs: of the same pair of texts, and how often they agree."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from claimscore.blocks import blocks_on_side
from claimscore.evaluation.compare.claim_matching import BATCH
from claimscore.evaluation.compared_run import ComparedRun
from claimscore.pipeline.encoders.protocols import NLI_LABELS
from claimscore.runs import damage_as_error

#: The tables of NLI probabilities, and the columns that a cell of each is found by.
CELL_KEYS = {
    "nli": ("premise_side", "premise_index", "hypothesis_side", "hypothesis_index"),
    "block_nli": (
        *("premise_side", "premise_cut", "premise_index"),
        *("hypothesis_side", "hypothesis_cut", "hypothesis_index"),
    ),
}

#: The most probable label; of equals the first, as the metrics have it.
_LABEL = (
    pl.concat_list(NLI_LABELS)
    .list.arg_max()
    .replace_strict(dict(enumerate(NLI_LABELS)), return_dtype=pl.String)
)

#: The texts of a record by side and index.
SideTexts = Mapping[tuple[str, int], str]

#: For a side and a text of the second run, its words in the first.
Rewordings = Mapping[tuple[str, str], str]


class CellTexts(NamedTuple):
    """A pair of texts; the sides are those of the record (`a`, `source.sentence`)."""

    premise_side: str
    premise: str
    hypothesis_side: str
    hypothesis: str


class JudgedLabel(NamedTuple):
    """A label and the probabilities behind it, in the order of `NLI_LABELS`."""

    label: str
    probabilities: tuple[float, float, float]


Cells = Mapping[CellTexts, JudgedLabel]


class Flip(NamedTuple):
    """A pair of texts with another label in each run.

    Where a text was reworded, `cell` has the words of the first run and `cell_b` those of the
    second; else they are equal.
    """

    cell: CellTexts
    cell_b: CellTexts
    a: JudgedLabel
    b: JudgedLabel

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


def label_agreement(
    a: ComparedRun, b: ComparedRun, table: str, ids: pl.Series
) -> LabelAgreement | None:
    """Labels of the cells at the same places, in records whose texts are known to be the same.

    None where a run has no such table.
    """
    of_a, of_b = a.table(table), b.table(table)
    if of_a is None or of_b is None:
        return None
    keys = ["id", *CELL_KEYS[table]]
    records = 0
    counts: Counter[tuple[str, str]] = Counter()
    with damage_as_error(b.path):
        for start in range(0, ids.len(), BATCH):
            wanted = pl.col("id").is_in(ids.slice(start, BATCH).implode())
            left = of_a.filter(wanted).select(*keys, label_a=_LABEL)
            right = of_b.filter(wanted).select(*keys, label_b=_LABEL)
            rows = left.join(right, on=keys).group_by("id", "label_a", "label_b").len().collect()
            records += rows["id"].n_unique()
            for _, label_a, label_b, n in rows.iter_rows():
                counts[label_a, label_b] += n
    return LabelAgreement(table, records, counts.total(), dict(sorted(counts.items())))


def compared_cells(
    a: ComparedRun,
    b: ComparedRun,
    ids: pl.Series,
    claims: Sequence[pl.DataFrame],
    matches: pl.DataFrame,
    records: Sequence[Mapping[str, Mapping[str, Any]]],
) -> dict[str, list[RecordCells]]:
    """By record, the cells of every table that both runs have.

    `claims` are the units of both runs, `matches` how they were matched, `records` the rows of
    the records by id.
    """
    found: dict[str, list[RecordCells]] = {}
    for table in CELL_KEYS:
        if a.table(table) is None or b.table(table) is None:
            continue
        cells = []
        for run, units, rows in zip((a, b), claims, records, strict=True):
            if table == "nli":
                texts = _claim_texts(ids, units)
            else:
                sides = _block_sides(run)
                texts = {
                    record: {
                        (side, place): block
                        for side in sides
                        for place, block in enumerate(blocks_on_side(rows.get(record, {}), side))
                    }
                    for record in ids
                }
            cells.append(record_cells(run, table, texts))
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


def _block_sides(run: ComparedRun) -> list[str]:
    """Every side and cut of a run's block NLI."""
    rows = run.table("block_nli")
    assert rows is not None
    with damage_as_error(run.path):
        sides = [
            rows.select(side=pl.concat_str(f"{role}_side", f"{role}_cut", separator=".")).unique()
            for role in ("premise", "hypothesis")
        ]
        return pl.concat(sides).unique().collect()["side"].sort().to_list()


def record_cells(
    run: ComparedRun, table: str, texts: Mapping[str, SideTexts]
) -> dict[str, dict[CellTexts, JudgedLabel]]:
    """By record, the cells by their texts; those whose texts are not among `texts` are left out.

    A pair that a side has twice is one cell: the model says the same to the same texts.
    """
    rows = run.table(table)
    if rows is None:
        return {}
    ids = pl.Series("id", list(texts), dtype=pl.String)
    wanted = rows.filter(pl.col("id").is_in(ids.implode()))
    with damage_as_error(run.path):
        found = wanted.select("id", *CELL_KEYS[table], *NLI_LABELS, label=_LABEL).collect()
    cells: dict[str, dict[CellTexts, JudgedLabel]] = {}
    for row in found.iter_rows(named=True):
        words: list[str | None] = []
        for role in ("premise", "hypothesis"):
            cut = row.get(f"{role}_cut")
            side = row[f"{role}_side"] + ("" if cut is None else f".{cut}")
            words += [side, texts[row["id"]].get((side, row[f"{role}_index"]))]
        if None not in words:
            judged = JudgedLabel(row["label"], tuple(row[label] for label in NLI_LABELS))
            cells.setdefault(row["id"], {})[CellTexts(*words)] = judged  # type: ignore[arg-type]  # no None
    return cells


def compare_cells(
    table: str, a: Cells, b: Cells, rewordings: Rewordings | None = None
) -> RecordCells:
    """Cells of both runs by their texts, those of the second in the words of the first."""
    words = rewordings or {}
    in_b = {
        CellTexts(
            cell.premise_side,
            words.get((cell.premise_side, cell.premise), cell.premise),
            cell.hypothesis_side,
            words.get((cell.hypothesis_side, cell.hypothesis), cell.hypothesis),
        ): cell
        for cell in b
    }
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


def _labels(cells: Iterable[JudgedLabel]) -> dict[str, int]:
    counts = Counter(judged.label for judged in cells)
    return {label: counts[label] for label in NLI_LABELS if counts[label]}
