"""Which claims and facts of one run the other has too, reworded, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from claimscore.evaluation.inputs import ComparedRun
from claimscore.runs import damage_as_error
from claimscore.tables import counted
from claimscore.text import normalised

#: The tables that hold claims and facts, and what one of them is called.
UNIT_TABLES = {"claims": "claim", "facts": "fact"}

#: What became of a claim of the baseline, or that it is new.
KINDS = ("same", "reworded", "gone", "new")

#: Texts that are less alike are two texts, not one that was reworded.
LEAST_ALIKE = 0.5

#: So many records are read at a time.
_BATCH = 20_000


class Change(NamedTuple):
    """One of `KINDS`, and the texts in both runs; None in the run that has none."""

    kind: str
    a: str | None
    b: str | None


class UnitChange(NamedTuple):
    """A change of a table, on one side of a record."""

    table: str
    id: str
    side: str
    change: Change


def changes(a: Sequence[str], b: Sequence[str]) -> list[Change]:
    """Each text of `a` in order, then the new ones of `b`; each is matched once at most.

    First equal texts are matched, then the most alike: Dice's coefficient of the sets of their
    letter trigrams without case and punctuation, twice the number that both have over the sum of
    the numbers that each has (Dice 1945; for n-grams of letters Adamson and Boreham 1974). Of
    equals come first those whose places are closer, then the earlier: the same from both sides.
    """
    places: dict[str, list[int]] = {}
    for place in reversed(range(len(b))):
        places.setdefault(b[place], []).append(place)
    matched = {place: places[text].pop() for place, text in enumerate(a) if places.get(text)}
    equal = set(matched)
    right = {place: _trigrams(b[place]) for left in places.values() for place in left}
    pairs = []
    for i, text in enumerate(a):
        one = _trigrams(text) if i not in matched else frozenset()
        for j, other in right.items() if one else ():
            alike = 2 * len(one & other) / (len(one) + len(other))
            if alike >= LEAST_ALIKE:
                pairs.append((-round(alike, 6), abs(i - j), i + j, i, j))
    for *_, i, j in sorted(pairs):
        if i not in matched and j in right:
            matched[i] = j
            del right[j]
    of_a = [
        Change("same" if i in equal else "reworded", text, b[matched[i]])
        if i in matched
        else Change("gone", text, None)
        for i, text in enumerate(a)
    ]
    return of_a + [Change("new", None, b[j]) for j in sorted(right)]


def _trigrams(text: str) -> frozenset[str]:
    padded = f" {normalised(text)} "
    return frozenset(padded[place : place + 3] for place in range(len(padded) - 2))


def unit_changes(a: ComparedRun, b: ComparedRun, ids: pl.Series) -> Iterator[UnitChange]:
    """The changes of these records, of every table that both runs have."""
    for table in UNIT_TABLES:
        if a.table(table) is None or b.table(table) is None:
            continue
        for start in range(0, ids.len(), _BATCH):
            one, other = (_texts(run, table, ids.slice(start, _BATCH)) for run in (a, b))
            for id, side in dict.fromkeys((*one, *other)):
                for change in changes(one.get((id, side), ()), other.get((id, side), ())):
                    yield UnitChange(table, id, side, change)


def change_counts(
    a: ComparedRun, b: ComparedRun, ids: pl.Series
) -> dict[tuple[str, str], Counter[str]]:
    """How many changes of each kind, by table and side."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for unit in unit_changes(a, b, ids):
        counts.setdefault((unit.table, unit.side), Counter())[unit.change.kind] += 1
    return counts


def _texts(run: ComparedRun, table: str, ids: pl.Series) -> dict[tuple[str, str], list[str]]:
    """The texts of each record and side in order."""
    rows = run.table(table)
    assert rows is not None
    text = pl.concat_str("subject", "description", separator=" ")
    rows = counted(rows) if table == "claims" else rows.sort("index", maintain_order=True)
    with damage_as_error(run.path):
        units = (
            rows.filter(pl.col("id").is_in(ids.implode()))
            .group_by("id", "side", maintain_order=True)
            .agg(pl.col("text") if table == "claims" else text)
            .collect()
        )
    return {(id, side): texts for id, side, texts in units.iter_rows()}
