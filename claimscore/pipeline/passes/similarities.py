"""Cosines of sentence embeddings: of facts with facts, of sentences, of whole texts.

Two kinds share everything but where their units come from: `fact_similarities` reads the facts
that an LLM wrote, `text_similarities` cuts the records' own texts and depends on no task. The
vectors themselves are not kept: 1.5 KB a text, and no metric reads more than their cosines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.pipeline.encoders.protocols import Embedder
from claimscore.pipeline.passes.model_pass import (
    ModelPass,
    PassInput,
    PassResult,
    asked,
    failed_side,
    pass_result,
    truncated,
)
from claimscore.pipeline.tasks.base import side_texts
from claimscore.tables import SIMILARITIES
from claimscore.text import split_sentences


class UnitText(NamedTuple):
    """One text to embed: the `number`-th `unit` of a side."""

    id: str
    side: str
    unit: str
    number: int
    text: str


class SideUnit(NamedTuple):
    """An item of `over`: a side, and what it is cut into."""

    side: str
    unit: str


def fact_text(subject: str, description: str) -> str:
    """The text that is embedded for a fact. The paper does not say how a tuple becomes one."""
    return f"{subject} {description}"


def _facts(given: PassInput, of: SideUnit) -> Iterator[UnitText]:
    rows = given.read("facts").filter(pl.col("side") == of.side)
    for record, index, subject, description in rows.select(
        "id", "index", "subject", "description"
    ).iter_rows():
        yield UnitText(record, of.side, of.unit, index, fact_text(subject, description))


def _texts(given: PassInput, of: SideUnit) -> Iterator[UnitText]:
    """The texts of a side by their place in the record, or their sentences one after another."""
    seen: dict[str, int] = {}
    for item in side_texts(given.records, (of.side,)):
        for text in split_sentences(item.text) if of.unit == "sentence" else [item.text]:
            index = seen.get(item.id, 0)
            seen[item.id] = index + 1
            if text.strip():
                yield UnitText(item.id, of.side, of.unit, index, text)


def _similarities(
    given: PassInput, units: Callable[[PassInput, SideUnit], Iterator[UnitText]]
) -> PassResult:
    embedder: Embedder = given.model
    first, second = (SideUnit(*item.split(".")) for item in given.need.over)
    sides = tuple(dict.fromkeys((first, second)))
    every = [item for of in sides for item in units(given, of) if item.id not in given.broken]

    side = failed_side(given.need.sides)
    items, vectors, failures = asked(
        given, every, embedder.embed, lambda item: item.text, side=side
    )
    cut = truncated(embedder, [item.text for item in items])
    return pass_result(
        SIMILARITIES,
        _cosine_rows(given.records["id"], items, vectors, cut, (first, second)),
        failures,
        embedder.info,
        unit=pl.lit(first.unit),
        row_side=pl.lit(first.side),
        column_side=pl.lit(second.side),
    )


def cosines(rows: NDArray[np.floating[Any]], columns: NDArray[np.floating[Any]]) -> NDArray[Any]:
    """The cosine of every row ``[m, d]`` with every column ``[n, d]``: ``[m, n]`` in [-1, 1].

    With a zero vector, which has no direction, it is 0.
    """
    return np.clip(_unit(rows) @ _unit(columns).T, -1, 1)


def _unit(vectors: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


def _cosine_rows(
    ids: pl.Series,
    items: Sequence[UnitText],
    vectors: NDArray[np.float32],
    cut: pl.Series,
    sides: tuple[SideUnit, SideUnit],
) -> pl.DataFrame:
    """Record by record in the order of the input, the rows of the first side one after another."""
    places: dict[tuple[str, SideUnit], list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault((item.id, SideUnit(item.side, item.unit)), []).append(place)
    index = np.array([item.number for item in items], dtype=np.int32)
    columns = ("id", "row_index", "column_index", "similarity", "truncated")
    schema = pl.Schema({name: SIMILARITIES.schema[name] for name in columns})
    frames = [pl.DataFrame(schema=schema)]
    for record in ids:
        rows, others = (places.get((record, side), []) for side in sides)
        if rows and others:
            row, column = np.repeat(rows, len(others)), np.tile(others, len(rows))
            frame = {
                "row_index": index[row],
                "column_index": index[column],
                "similarity": cosines(vectors[rows], vectors[others]).ravel(),
                "truncated": cut[row] | cut[column],
            }
            found = pl.DataFrame(frame).with_columns(id=pl.lit(record))
            frames.append(found.select(columns).cast(schema))
    return pl.concat(frames)


#: Every fact of one side with every fact of the other: `over` is `source.fact` and so on.
FACT_SIMILARITIES_PASS = ModelPass(
    "fact_similarities",
    "embedder",
    partial(_similarities, units=_facts),
    after=("facts",),
    unit="texts",
)
#: The same for sentences or whole texts: `summary.text` with `references.text` and so on.
TEXT_SIMILARITIES_PASS = ModelPass(
    "text_similarities", "embedder", partial(_similarities, units=_texts), unit="texts"
)
