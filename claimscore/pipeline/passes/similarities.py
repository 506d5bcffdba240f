"""Cosines of sentence embeddings: of facts with facts, of sentences, of whole texts.

Two kinds share everything but where their units come from: `fact_similarities` reads the facts
that an LLM wrote, `text_similarities` cuts the records' own texts and waits for nobody. The vectors
themselves are not kept: 1.5 KB a text, and no metric reads more than their cosines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.pipeline.encoders.protocols import Embedder, ModelInfo, RejectedItemsError
from claimscore.pipeline.passes.base import (
    ModelPass,
    PassInput,
    PassResult,
    failure_row,
    model_columns,
    truncated,
)
from claimscore.pipeline.passes.texts import failed_side
from claimscore.pipeline.tasks.base import side_texts
from claimscore.tables import FAILURES, SIMILARITIES
from claimscore.text import split_sentences

#: Rows of the table that are put together at a time: they grow with the square of the texts.
ROWS_AT_ONCE = 2**17


@dataclasses.dataclass(frozen=True, slots=True)
class _Item:
    """One text to embed: the `index`-th `unit` of a side."""

    id: str
    side: str
    unit: str
    index: int
    text: str


class _Side(NamedTuple):
    """What stands in `over`: a side, and what it is cut into."""

    side: str
    unit: str


def fact_text(subject: str, description: str) -> str:
    """What is embedded of a fact. The paper does not say how a tuple becomes a text."""
    return f"{subject} {description}"


def _facts(given: PassInput, of: _Side) -> Iterator[_Item]:
    rows = given.read("facts").filter(pl.col("side") == of.side)
    for record, index, subject, description in rows.select(
        "id", "index", "subject", "description"
    ).iter_rows():
        yield _Item(record, of.side, of.unit, index, fact_text(subject, description))


def _texts(given: PassInput, of: _Side) -> Iterator[_Item]:
    """The texts of a side by their place in the record, or their sentences one after another."""
    seen: dict[str, int] = {}
    for item in side_texts(given.records, (of.side,)):
        for text in split_sentences(item.text) if of.unit == "sentence" else [item.text]:
            index = seen.get(item.id, 0)
            seen[item.id] = index + 1
            if text.strip():
                yield _Item(item.id, of.side, of.unit, index, text)


def _similarities(
    given: PassInput, kind: str, units: Callable[[PassInput, _Side], Iterator[_Item]]
) -> PassResult:
    embedder: Embedder = given.model
    first, second = (_Side(*item.split(".")) for item in given.need.over)
    sides = tuple(dict.fromkeys((first, second)))
    items = [item for of in sides for item in units(given, of) if item.id not in given.broken]
    failures: list[dict[str, Any]] = []
    while True:
        try:
            vectors = embedder.embed(
                [item.text for item in items], on_batch=given.listen(len(items))
            )
        except RejectedItemsError as exc:
            # One text costs its own record, not the chunk: the others are computed again.
            rejected = {items[index].id for index in exc.indices}
            side = failed_side(given.need.sides)
            failures += [
                failure_row(kind, record, exc) | {"side": side} for record in sorted(rejected)
            ]
            items = [item for item in items if item.id not in rejected]
        else:
            break
    rows = {
        SIMILARITIES.name: _similarity_frame(
            given.records["id"],
            items,
            vectors,
            truncated(embedder, [item.text for item in items]),
            (first, second),
            embedder.info,
        ),
    }
    return PassResult(rows, FAILURES.frame(failures))


def cosines(rows: NDArray[np.floating[Any]], columns: NDArray[np.floating[Any]]) -> NDArray[Any]:
    """The cosine of every row ``[m, d]`` with every column ``[n, d]``: ``[m, n]`` in [-1, 1].

    With a zero vector, which has no direction, it is 0.
    """
    return np.clip(_unit(rows) @ _unit(columns).T, -1, 1)


def _unit(vectors: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


def _similarity_frame(
    ids: pl.Series,
    items: Sequence[_Item],
    vectors: NDArray[np.float32],
    cut: pl.Series,
    sides: tuple[_Side, _Side],
    info: ModelInfo,
) -> pl.DataFrame:
    """Record by record in the order of the input, the rows of the first side one after another."""
    places: dict[tuple[str, str, str], list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault((item.id, item.side, item.unit), []).append(place)
    index = np.array([item.index for item in items], dtype=np.int32)
    frames: list[pl.DataFrame] = []
    found = _Found([], [], [], [])
    for number, record in enumerate(ids):
        rows, columns = (places.get((record, *side), []) for side in sides)
        if rows and columns:
            of_rows, of_columns = np.repeat(rows, len(columns)), np.tile(columns, len(rows))
            found.records.append(np.full(len(of_rows), number))
            found.places.append((index[of_rows], index[of_columns]))
            found.values.append(cosines(vectors[rows], vectors[columns]).ravel())
            found.flags.append(cut[of_rows] | cut[of_columns])
        if sum(map(len, found.values)) >= ROWS_AT_ONCE:
            frames.append(_rows(ids, found, sides, info))
            found = _Found([], [], [], [])
    if found.values:
        frames.append(_rows(ids, found, sides, info))
    return pl.concat(frames) if frames else SIMILARITIES.empty()


class _Found(NamedTuple):
    """The cosines of some records, record by record: the record's number, row and column indices,
    the values, and whether one of the texts was cut."""

    records: list[NDArray[np.int64]]
    places: list[tuple[NDArray[np.int32], NDArray[np.int32]]]
    values: list[NDArray[np.floating[Any]]]
    flags: list[pl.Series]


def _rows(
    ids: pl.Series, found: _Found, sides: tuple[_Side, _Side], info: ModelInfo
) -> pl.DataFrame:
    frame = pl.DataFrame(
        {
            "id": ids[np.concatenate(found.records)],
            "row_index": np.concatenate([rows for rows, _ in found.places]),
            "column_index": np.concatenate([columns for _, columns in found.places]),
            "similarity": np.concatenate(found.values),
            "truncated": pl.concat(found.flags),
        }
    ).with_columns(
        unit=pl.lit(sides[0].unit),
        row_side=pl.lit(sides[0].side),
        column_side=pl.lit(sides[1].side),
        **model_columns(info),
    )
    return frame.select(pl.col(name).cast(dtype) for name, dtype in SIMILARITIES.schema.items())


def fact_pass(given: PassInput) -> PassResult:
    """Every fact of one side with every fact of the other: `over` is `source.fact` and so on."""
    return _similarities(given, "fact_similarities", _facts)


def text_pass(given: PassInput) -> PassResult:
    """The same for sentences or whole texts: `summary.text` with `references.text` and so on."""
    return _similarities(given, "text_similarities", _texts)


FACT_SIMILARITIES_PASS = ModelPass(
    "fact_similarities", "embedder", fact_pass, after=("facts",), unit="texts"
)
TEXT_SIMILARITIES_PASS = ModelPass("text_similarities", "embedder", text_pass, unit="texts")
