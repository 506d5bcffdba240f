"""The claims and facts of a run, and how well those of two runs agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from claimscore.evaluation.compare.matching import KINDS, match_units
from claimscore.evaluation.compare.similarity import Similarity
from claimscore.evaluation.compare.source import Source
from claimscore.runs import damage_as_error

#: The tables that hold units, and what one of them is called.
TABLES = {"claims": "claim", "facts": "fact"}

#: So many records are matched at a time.
BATCH = 20_000

#: So many records with other units are named.
NAMED = 100


class Agreement(NamedTuple):
    """How the units of one side agree, over the records that have some in both runs.

    `records_a` and `records_b` have units in one run only, and are left out. `sentences_a` are
    the sentences that have units (None for facts, which are asked for by text), `identical` the
    records with the same units in the same order, `others` the first `NAMED` of those without.
    The last five count units by `KINDS`.
    """

    table: str
    side: str
    records: int
    records_a: int
    records_b: int
    units_a: int
    units_b: int
    sentences_a: int | None
    sentences_b: int | None
    identical: int
    others: tuple[str, ...]
    same: int
    normalised: int
    changed: int
    vanished: int
    appeared: int

    @property
    def per_sentence_a(self) -> float | None:
        return self.units_a / self.sentences_a if self.sentences_a else None

    @property
    def per_sentence_b(self) -> float | None:
        return self.units_b / self.sentences_b if self.sentences_b else None

    @property
    def share_same(self) -> float | None:
        """Of all units of both runs, those that the other has too, word for word."""
        return self._share(self.same)

    @property
    def share_matched(self) -> float | None:
        """Of all units of both runs, those that the other has too, reworded ones included."""
        return self._share(self.same + self.normalised + self.changed)

    def _share(self, pairs: int) -> float | None:
        total = self.units_a + self.units_b
        return 2 * pairs / total if total else None


def read_units(source: Source, table: str, ids: pl.Series) -> pl.DataFrame:
    """Id, side, position, text and sentence of the units of some records, in order.

    A position is the place among the units of one side of a record, as in the table `nli`.
    """
    rows = source.table(table)
    if rows is None:
        rows = pl.LazyFrame(schema=dict.fromkeys(("id", "side", "text"), pl.String)).with_columns(
            sentence=pl.lit(None, pl.Int32)
        )
    elif table == "claims":
        rows = rows.select("id", "side", "text", sentence="sentence_index")
    else:
        rows = rows.sort("index", maintain_order=True).select(
            "id",
            "side",
            text=pl.concat_str("subject", "description", separator=" "),
            sentence=pl.lit(None, pl.Int32),
        )
    with damage_as_error(source.path):
        return (
            rows.filter(pl.col("id").is_in(ids.implode()))
            .with_columns(position=pl.int_range(pl.len(), dtype=pl.Int64).over("id", "side"))
            .select("id", "side", "position", "text", "sentence")
            .collect()
        )


def agreements(
    a: Source, b: Source, table: str, ids: pl.Series, similarity: Similarity
) -> Iterator[Agreement]:
    """One a side, sides in the order of the runs; none where a run has no such table."""
    if a.table(table) is None or b.table(table) is None:
        return
    counts: dict[str, Counter[str]] = {}
    others: dict[str, list[str]] = {}
    for start in range(0, ids.len(), BATCH):
        some = ids.slice(start, BATCH)
        units_a, units_b = (read_units(source, table, some) for source in (a, b))
        for record, side in _count(units_a, units_b, similarity, counts).iter_rows():
            others.setdefault(side, []).append(record)
    has_sentences = table == "claims"
    for side, found in counts.items():
        sentences = [found[f"sentences_{of}"] if has_sentences else None for of in "ab"]
        if not any(sentences):
            sentences = [None, None]
        counted = ("records", "records_a", "records_b", "units_a", "units_b", "identical", *KINDS)
        yield Agreement(
            table=table,
            side=side,
            sentences_a=sentences[0],
            sentences_b=sentences[1],
            others=tuple(others.get(side, ())[:NAMED]),
            **{name: found[name] for name in counted},
        )


def _count(
    a: pl.DataFrame, b: pl.DataFrame, similarity: Similarity, counts: dict[str, Counter[str]]
) -> pl.DataFrame:
    """Add the counts of some records to those of their sides; id and side of those with other
    units."""
    keys = ["id", "side"]
    of_a = a.select(keys).unique(maintain_order=True)
    both = of_a.join(b.select(keys).unique(), on=keys, maintain_order="left")
    for name, units in (("a", a), ("b", b)):
        for side in units["side"].unique(maintain_order=True).to_list():
            counts.setdefault(side, Counter())
        alone = units.select(keys).unique().join(both, on=keys, how="anti")
        _add(counts, f"records_{name}", alone)
    a, b = (units.join(both, on=keys, how="semi", maintain_order="left") for units in (a, b))
    for name, units in (("a", a), ("b", b)):
        _add(counts, f"units_{name}", units)
        known = units.filter(pl.col("sentence").is_not_null())
        _add(counts, f"sentences_{name}", known.select(*keys, "sentence").unique())
    _add(counts, "records", both)
    same = identical(a, b)
    _add(counts, "identical", same)
    matches = match_units(a.drop("sentence"), b.drop("sentence"), similarity)
    for kind in KINDS:
        _add(counts, kind, matches.filter(pl.col("kind") == kind))
    return both.join(same, on=keys, how="anti", maintain_order="left")


def _add(counts: dict[str, Counter[str]], name: str, rows: pl.DataFrame) -> None:
    for side, n in rows.group_by("side").len().iter_rows():
        counts[side][name] += n


def identical(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Id and side of the records whose units are the same texts in the same order."""
    lists = [
        units.group_by("id", "side", maintain_order=True).agg("text").rename({"text": name})
        for name, units in (("a", a), ("b", b))
    ]
    return (
        lists[0]
        .join(lists[1], on=["id", "side"])
        .filter(pl.col("a") == pl.col("b"))[["id", "side"]]
    )
