"""Which claim of one run is which claim of the other: equal, reworded, appeared or vanished.

Within one side of one record each claim is matched once at most: first those with the same text,
then those that differ in case, spaces or punctuation only, then the most alike of the others (the
best pair first, at least as alike as the threshold). What is left vanished, or appeared.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from claimscore.evaluation.compare.similarity import Alike, Group, Similarity

#: How a claim was matched, in the order in which it is tried; then what was not.
KINDS = ("same", "normalised", "changed", "vanished", "appeared")

#: Rows of both sides: the record, the side, the place among the side's claims, and the text.
UNIT_SCHEMA: dict[str, pl.DataType] = {
    "id": pl.String(),
    "side": pl.String(),
    "position": pl.Int64(),
    "text": pl.String(),
}
MATCH_SCHEMA: dict[str, pl.DataType] = {
    "id": pl.String(),
    "side": pl.String(),
    "kind": pl.String(),
    "a_position": pl.Int64(),
    "b_position": pl.Int64(),
    "a": pl.String(),
    "b": pl.String(),
    "similarity": pl.Float64(),
}

_GROUP = ("id", "side")


def match_units(a: pl.DataFrame, b: pl.DataFrame, similarity: Similarity) -> pl.DataFrame:
    """Rows of `MATCH_SCHEMA` from two frames of `UNIT_SCHEMA`, whatever their order.

    Every row of `a` and of `b` is in exactly one row; `a` and `b` exchanged give the same pairs.
    """
    same, a, b = _equal(a, b, "same", pl.col("text"))
    normalised, a, b = _equal(a, b, "normalised", _normalised(pl.col("text")))
    changed, a, b = _changed(a, b, similarity)
    parts = [same, normalised, changed, _alone(a, "a"), _alone(b, "b")]
    return pl.concat(parts).sort("id", "side", "a_position", "b_position", nulls_last=True)


def _normalised(text: pl.Expr) -> pl.Expr:
    """As `similarity.normalised`; null where nothing is left."""
    plain = text.str.to_lowercase().str.replace_all(r"[\W_]+", " ")
    plain = plain.str.strip_chars(" ")
    return pl.when(plain != "").then(plain)


_Step = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]


def _equal(a: pl.DataFrame, b: pl.DataFrame, kind: str, key: pl.Expr) -> _Step:
    """Pairs with the same key, the first with the first, and what is left of both sides."""
    keyed = [_numbered(frame.with_columns(key=key)) for frame in (a, b)]
    on = [*_GROUP, "key", "occurrence"]
    left, right = (frame.filter(pl.col("key").is_not_null()) for frame in keyed)
    pairs = left.join(right, on=on, suffix="_b").select(
        *_GROUP,
        pl.lit(kind).alias("kind"),
        pl.col("position").alias("a_position"),
        pl.col("position_b").alias("b_position"),
        pl.col("text").alias("a"),
        pl.col("text_b").alias("b"),
        pl.lit(1.0).alias("similarity"),
    )
    return (
        pairs,
        _rest(a, pairs["id", "side", "a_position"]),
        _rest(b, pairs["id", "side", "b_position"]),
    )


def _rest(units: pl.DataFrame, matched: pl.DataFrame) -> pl.DataFrame:
    """The units that are not among the matched: id, side, and a position under any name."""
    return units.join(matched, left_on=[*_GROUP, "position"], right_on=matched.columns, how="anti")


def _numbered(frame: pl.DataFrame) -> pl.DataFrame:
    """The how-manieth row with its key a row is, in the order of the positions."""
    return frame.sort(*_GROUP, "position").with_columns(
        occurrence=pl.int_range(pl.len()).over(*_GROUP, "key")
    )


def _changed(a: pl.DataFrame, b: pl.DataFrame, similarity: Similarity) -> _Step:
    """The most alike pairs of what has no equal, best first; and what is left of both sides."""
    a, b = a.sort(*_GROUP, "position"), b.sort(*_GROUP, "position")
    codes = pl.concat([a.select(_GROUP), b.select(_GROUP)]).select(
        pl.struct(_GROUP).rank("dense").cast(pl.Int64)
    )
    groups = codes.to_series().to_numpy()
    of_a = Group(a["text"].to_list(), groups[: a.height])
    of_b = Group(b["text"].to_list(), groups[a.height :])
    if a.height and b.height:
        found = similarity.alike(of_a, of_b)
        chosen = _best_first(found, a["position"].to_numpy(), b["position"].to_numpy())
    else:
        chosen = Alike(*(np.zeros(0, np.int64),) * 2, np.zeros(0))
    left, right = a[chosen.a], b[chosen.b]
    pairs = left.select(
        *_GROUP,
        pl.lit("changed").alias("kind"),
        pl.col("position").alias("a_position"),
        right["position"].alias("b_position"),
        pl.col("text").alias("a"),
        right["text"].alias("b"),
        pl.Series("similarity", chosen.similarity, dtype=pl.Float64),
    )
    return (
        pairs,
        _rest(a, pairs["id", "side", "a_position"]),
        _rest(b, pairs["id", "side", "b_position"]),
    )


def _best_first(found: Alike, places_a: np.ndarray, places_b: np.ndarray) -> Alike:
    """Of all alike pairs those that are taken, the most alike first, each text once.

    Of equals the pair whose places are closer, then the earlier: the same from both sides.
    """
    one, other = places_a[found.a], places_b[found.b]
    order = np.lexsort((one + other, np.abs(one - other), -np.round(found.similarity, 6)))
    used_a, used_b, taken = set[int](), set[int](), []
    pairs = zip(found.a[order].tolist(), found.b[order].tolist(), order.tolist(), strict=True)
    for row, column, place in pairs:
        if row not in used_a and column not in used_b:
            used_a.add(row)
            used_b.add(column)
            taken.append(place)
    places = np.sort(np.array(taken, dtype=np.int64))
    return Alike(found.a[places], found.b[places], found.similarity[places])


def _alone(units: pl.DataFrame, of: str) -> pl.DataFrame:
    """Units that have no counterpart, of one side."""
    names = {"position": f"{of}_position", "text": of}
    kind = "vanished" if of == "a" else "appeared"
    return pl.DataFrame(schema=MATCH_SCHEMA).vstack(
        units.rename(names)
        .with_columns(kind=pl.lit(kind))
        .with_columns(
            pl.lit(None, dtype).alias(name)
            for name, dtype in MATCH_SCHEMA.items()
            if name not in (*_GROUP, "kind", *names.values())
        )
        .select(MATCH_SCHEMA.keys())
    )
