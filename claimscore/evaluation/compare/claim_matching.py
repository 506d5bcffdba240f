"""Which claim of one run is which claim of the other: equal, reworded, appeared or vanished.

Within one side of one record each claim (or fact) is matched once at most: first those with the
same text, then those that differ in case, spaces or punctuation only, then the most alike of the
others (the best pair first, at least as alike as the threshold). The others vanished, or appeared.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.evaluation.compared_run import ComparedRun
from claimscore.pipeline.encoders.protocols import Embedder, RejectedItemsError
from claimscore.runs import damage_as_error
from claimscore.text import GAPS, normalised

Numbers = NDArray[np.int64]

#: The tables that hold units, and what one of them is called.
UNIT_TABLES = {"claims": "claim", "facts": "fact"}

#: How a claim was matched, in the order in which it is tried; then those that were not.
KINDS = ("same", "normalised", "changed", "vanished", "appeared")

#: Rows of both sides: the record, the side, the place among the side's claims, and the text.
UNIT_SCHEMA: dict[str, pl.DataType] = {
    "id": pl.String(),
    "side": pl.String(),
    "position": pl.Int64(),
    "text": pl.String(),
}
MATCH_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("id", "side", "kind"), pl.String()),
    **dict.fromkeys(("a_position", "b_position"), pl.Int64()),
    **dict.fromkeys(("a", "b"), pl.String()),
    "similarity": pl.Float64(),
}

#: So many records are matched at a time, and so many with other units are named.
BATCH, NAMED = 20_000, 100

#: Pairs whose similarity is lower are two texts, not one that was reworded.
TRIGRAM_THRESHOLD = 0.5
COSINE_THRESHOLD = 0.75

_SIDE = ["id", "side"]


# How alike two texts are


class TrigramSimilarity:
    """Dice's coefficient of the sets of letter trigrams of two texts, 0 to 1.

    Twice the number of trigrams that both have over the sum of the numbers that each has (Dice
    1945; for n-grams of letters Adamson and Boreham 1974). Case, punctuation and spaces count as
    in `normalised`.
    """

    name = "letter trigrams (Dice)"  # what the number is, for people

    def __init__(self, threshold: float = TRIGRAM_THRESHOLD) -> None:
        self.threshold = threshold

    def of_pairs(
        self, a: Sequence[str], b: Sequence[str], rows: Numbers, columns: Numbers
    ) -> NDArray[np.float64]:
        """The similarity of each pair `a[row]`, `b[column]`."""
        found = (
            _dice(_trigrams(a[row]), _trigrams(b[column]))
            for row, column in zip(rows, columns, strict=True)
        )
        return np.fromiter(found, np.float64, rows.size)


@functools.lru_cache(maxsize=5_000)  # pairs of one side of one record follow each other
def _trigrams(text: str) -> frozenset[str]:
    padded = f" {normalised(text)} "
    return frozenset(padded[place : place + 3] for place in range(len(padded) - 2))


def _dice(a: frozenset[str], b: frozenset[str]) -> float:
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0


class EmbeddingSimilarity:
    """The cosine of two texts' vectors by a sentence encoder; 0 for a text without a vector."""

    _PAIRS = 200_000  # multiplied at a time

    def __init__(
        self,
        embedder: Embedder,
        threshold: float = COSINE_THRESHOLD,
        on_texts: Callable[[int, int], None] | None = None,
    ) -> None:
        self.threshold = threshold
        self.name = f"cosine of vectors by {embedder.info.model}"
        self._embedder = embedder
        self._on_texts = on_texts

    def of_pairs(
        self, a: Sequence[str], b: Sequence[str], rows: Numbers, columns: Numbers
    ) -> NDArray[np.float64]:
        """As `TrigramSimilarity.of_pairs`."""
        texts = [text.strip() for text in (*a, *b)]
        columns = columns + len(a)
        needed = np.unique(np.concatenate([rows, columns])).tolist()
        vectors = self._vectors([texts[place] for place in needed])
        found = np.zeros(rows.size)
        if not vectors:
            return found
        without = np.zeros_like(next(iter(vectors.values())))
        matrix = np.stack([vectors.get(text, without) for text in texts])
        for start in range(0, rows.size, self._PAIRS):
            part = slice(start, start + self._PAIRS)
            found[part] = np.einsum("ij,ij->i", matrix[rows[part]], matrix[columns[part]])
        return found.clip(-1.0, 1.0)

    def _vectors(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The vector, of length 1, of each distinct text that has one."""
        wanted = [text for text in dict.fromkeys(texts) if text]
        while wanted:
            try:
                vectors = self._embedder.embed(wanted, on_batch=self._listen(len(wanted)))
            except RejectedItemsError as exc:
                rejected = set(exc.indices)
                wanted = [text for place, text in enumerate(wanted) if place not in rejected]
                continue
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            unit = vectors / np.where(lengths == 0, 1.0, lengths)
            return dict(zip(wanted, unit, strict=True))
        return {}

    def _listen(self, total: int) -> Callable[[int], None] | None:
        tell = self._on_texts
        return None if tell is None else lambda done: tell(done, total)


Similarity = TrigramSimilarity | EmbeddingSimilarity


# Matching


def match_units(a: pl.DataFrame, b: pl.DataFrame, similarity: Similarity) -> pl.DataFrame:
    """Rows of `MATCH_SCHEMA` from two frames of `UNIT_SCHEMA`, whatever their order.

    Every row of `a` and of `b` is in exactly one row; `a` and `b` exchanged give the same pairs.
    """
    text = pl.col("text")
    plain = text.str.to_lowercase().str.replace_all(GAPS, " ").str.strip_chars(" ")
    keys = {"same": text, "normalised": pl.when(plain != "").then(plain), "changed": None}
    parts = []
    for kind, key in keys.items():
        pairs = _alike(a, b, similarity) if key is None else _equal(a, b, key)
        pairs = pairs.with_columns(kind=pl.lit(kind)).select(MATCH_SCHEMA.keys())
        parts.append(pairs)
        a, b = (
            units.join(pairs, left_on=[*_SIDE, "position"], right_on=[*_SIDE, place], how="anti")
            for units, place in ((a, "a_position"), (b, "b_position"))
        )
    for units, name, kind in ((a, "a", "vanished"), (b, "b", "appeared")):
        alone = units.rename({"position": f"{name}_position", "text": name})
        parts.append(alone.with_columns(kind=pl.lit(kind)))
    empty = pl.DataFrame(schema=MATCH_SCHEMA)
    found = pl.concat([empty, *parts], how="diagonal")
    return found.sort("id", "side", "a_position", "b_position", nulls_last=True)


def _equal(a: pl.DataFrame, b: pl.DataFrame, key: pl.Expr) -> pl.DataFrame:
    """Pairs with the same key that is not null, the first with the first."""
    left, right = (
        units.with_columns(key=key)
        .drop_nulls("key")
        .sort(*_SIDE, "position")
        .with_columns(occurrence=pl.int_range(pl.len()).over(*_SIDE, "key"))
        .rename({"position": f"{name}_position", "text": name})
        for units, name in ((a, "a"), (b, "b"))
    )
    pairs = left.join(right, on=[*_SIDE, "key", "occurrence"])
    return pairs.with_columns(similarity=pl.lit(1.0))


def _alike(a: pl.DataFrame, b: pl.DataFrame, similarity: Similarity) -> pl.DataFrame:
    """Of the pairs on one side of a record the most alike, best first, each text once.

    Of equals the pair whose places are closer, then the earlier: the same from both sides.
    """
    one, other = (
        units.sort(*_SIDE, "position")
        .rename({"position": f"{name}_position", "text": name})
        .with_row_index(f"{name}_row")
        for name, units in (("a", a), ("b", b))
    )
    pairs = one.drop("a").join(other.drop("b"), on=_SIDE, maintain_order="left_right")
    rows = (pairs[name].to_numpy().astype(np.int64) for name in ("a_row", "b_row"))
    alike = similarity.of_pairs(one["a"].to_list(), other["b"].to_list(), *rows)
    at_a, at_b = pl.col("a_position"), pl.col("b_position")
    best = (
        pairs.with_columns(similarity=alike)
        .filter(pl.col("similarity") >= similarity.threshold)
        .sort(-pl.col("similarity").round(6), (at_a - at_b).abs(), at_a + at_b, maintain_order=True)
    )
    used_a, used_b, taken = set[int](), set[int](), []
    for place, (row, column) in enumerate(best.select("a_row", "b_row").iter_rows()):
        if row not in used_a and column not in used_b:
            used_a.add(row)
            used_b.add(column)
            taken.append(place)
    texts_a, texts_b = one.select("a_row", "a"), other.select("b_row", "b")
    return best[taken].join(texts_a, on="a_row").join(texts_b, on="b_row")


# The units of two runs


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


def read_units(run: ComparedRun, table: str, ids: pl.Series) -> pl.DataFrame:
    """Id, side, position, text and sentence of the units of some records, in order.

    A position is the place among the units of one side of a record, as in the table `nli`.
    """
    rows = run.table(table)
    if rows is None:
        names = {**dict.fromkeys((*_SIDE, "text"), pl.String), "sentence": pl.Int32}
        rows = pl.LazyFrame(schema=names)
    elif table == "claims":
        rows = rows.select(*_SIDE, "text", sentence="sentence_index")
    else:
        rows = rows.sort("index", maintain_order=True).select(
            *_SIDE,
            text=pl.concat_str("subject", "description", separator=" "),
            sentence=pl.lit(None, pl.Int32),
        )
    with damage_as_error(run.path):
        return (
            rows.filter(pl.col("id").is_in(ids.implode()))
            .with_columns(position=pl.int_range(pl.len(), dtype=pl.Int64).over(_SIDE))
            .select(*_SIDE, "position", "text", "sentence")
            .collect()
        )


def agreements(
    a: ComparedRun, b: ComparedRun, table: str, ids: pl.Series, similarity: Similarity
) -> Iterator[Agreement]:
    """One a side, sides in the order of the runs; none where a run has no such table."""
    if a.table(table) is None or b.table(table) is None:
        return
    counts: dict[str, Counter[str]] = {}
    others: dict[str, list[str]] = {}
    for start in range(0, ids.len(), BATCH):
        some = ids.slice(start, BATCH)
        units_a, units_b = (read_units(run, table, some) for run in (a, b))
        for record, side in _count(units_a, units_b, similarity, counts).iter_rows():
            others.setdefault(side, []).append(record)
    for side, found in counts.items():
        sentences = [found["sentences_a"], found["sentences_b"]]
        known = table == "claims" and any(sentences)
        counted = ("records", "records_a", "records_b", "units_a", "units_b", "identical", *KINDS)
        yield Agreement(
            table=table,
            side=side,
            sentences_a=sentences[0] if known else None,
            sentences_b=sentences[1] if known else None,
            others=tuple(others.get(side, ())[:NAMED]),
            **{name: found[name] for name in counted},
        )


def _count(
    a: pl.DataFrame, b: pl.DataFrame, similarity: Similarity, counts: dict[str, Counter[str]]
) -> pl.DataFrame:
    """Add the counts of some records to those of their sides.

    Returns id and side of the records with other units.
    """

    def add(name: str, rows: pl.DataFrame) -> None:
        for side, n in rows.group_by("side").len().iter_rows():
            counts[side][name] += n

    of_a = a.select(_SIDE).unique(maintain_order=True)
    both = of_a.join(b.select(_SIDE).unique(), on=_SIDE, maintain_order="left")
    for name, units in (("a", a), ("b", b)):
        for side in units["side"].unique(maintain_order=True):
            counts.setdefault(side, Counter())
        add(f"records_{name}", units.select(_SIDE).unique().join(both, on=_SIDE, how="anti"))
    a, b = (units.join(both, on=_SIDE, how="semi", maintain_order="left") for units in (a, b))
    for name, units in (("a", a), ("b", b)):
        add(f"units_{name}", units)
        known = units.drop_nulls("sentence")
        add(f"sentences_{name}", known.select(*_SIDE, "sentence").unique())
    add("records", both)
    same = identical(a, b)
    add("identical", same)
    matches = match_units(a.drop("sentence"), b.drop("sentence"), similarity)
    for kind in KINDS:
        add(kind, matches.filter(pl.col("kind") == kind))
    return both.join(same, on=_SIDE, how="anti", maintain_order="left")


def identical(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Id and side of the records whose units are the same texts in the same order."""
    one, other = (
        units.group_by(_SIDE, maintain_order=True).agg(pl.col("text").alias(name))
        for name, units in (("a", a), ("b", b))
    )
    return one.join(other, on=_SIDE).filter(pl.col("a") == pl.col("b")).select(_SIDE)
