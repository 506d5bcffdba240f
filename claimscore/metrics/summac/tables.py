"""The images of a chunk's records from the table `block_nli`, all at once, and why one is missing.

Nothing here loops over pairs in Python: a hundred thousand records are a few group-bys.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from claimscore.blocks import SHORT_CHARACTERS, find_cut
from claimscore.metrics.base import ChunkTables, Needs, PassNeed, failure_reasons
from claimscore.metrics.summac.convolution import Counts, histograms
from claimscore.metrics.summac.image import Values

SOURCE, SUMMARY = "source", "summary"
PROBABILITIES = ("entailment", "neutral", "contradiction")


class Shape(NamedTuple):
    """How many blocks a record's document and summary have."""

    n_document: int
    n_summary: int


class Images(NamedTuple):
    """`rows`: id, hypothesis_index and the three probabilities (Float64) of complete images.

    `sentences` has a row for each summary sentence of theirs, `shapes` their sizes; of the other
    records that have rows `broken` says what is wrong with them.
    """

    rows: pl.DataFrame
    sentences: pl.DataFrame
    shapes: dict[str, Shape]
    broken: dict[str, str]


def read_images(tables: ChunkTables, need: PassNeed, **reduced: pl.Expr) -> Images:
    """The images that the pass of `need` made; those with rows missing or no numbers are broken.

    `reduced` are aggregates of the probabilities over the document, columns of `sentences`.
    """
    numbers = [pl.col(name).cast(pl.Float64) for name in PROBABILITIES]
    rows = tables["block_nli"].filter(*_made_by(need))
    rows = rows.select("id", "premise_index", "hypothesis_index", *numbers)
    sentences = rows.group_by("id", "hypothesis_index").agg(
        _n=pl.len(),
        _n_document=pl.col("premise_index").max() + 1,
        _finite=pl.all_horizontal(pl.col(name).is_finite().all() for name in PROBABILITIES),
        **reduced,
    )
    per_record = sentences.group_by("id").agg(
        pl.col("_n").sum(),
        pl.col("_n_document").max(),
        pl.col("hypothesis_index").max() + 1,
        pl.col("_finite").all(),
    )
    shapes: dict[str, Shape] = {}
    broken: dict[str, str] = {}
    for record, n, n_document, n_summary, finite in per_record.iter_rows():
        if n != n_document * n_summary:
            broken[record] = f"NLI rows are missing: {n} of {n_document * n_summary}"
        elif not finite:
            broken[record] = "an NLI probability is not a number"
        else:
            shapes[record] = Shape(n_document, n_summary)
    if broken:
        whole = ~pl.col("id").is_in(list(broken))
        rows, sentences = rows.filter(whole), sentences.filter(whole)
    return Images(rows, sentences.drop("_n", "_n_document", "_finite"), shapes, broken)


def _made_by(need: PassNeed) -> Iterator[pl.Expr]:
    for role, item in zip(("premise", "hypothesis"), need.over, strict=True):
        side, _, cut = item.partition(".")
        yield pl.col(f"{role}_side") == side
        yield pl.col(f"{role}_cut") == cut


class Histograms(NamedTuple):
    """`counts` of all summary sentences, and at which rows each record's stand."""

    counts: Counts
    sentences: dict[str, slice]


def stack_histograms(images: Images, edges: Values, labels: str) -> Histograms:
    """The histograms of every complete image, as `convolution.histograms` makes them."""
    ends = list(itertools.accumulate(shape.n_summary for shape in images.shapes.values()))
    places = zip(images.shapes.items(), ends, strict=True)
    sentences = {record: slice(end - shape.n_summary, end) for (record, shape), end in places}
    starts = pl.DataFrame(
        {"id": list(sentences), "start": [place.start for place in sentences.values()]},
        schema={"id": pl.String(), "start": pl.Int64()},
    )
    rows = images.rows.join(starts, on="id", how="left", maintain_order="left")
    numbers = (rows["start"] + rows["hypothesis_index"]).to_numpy()
    pairs = rows.select(PROBABILITIES).to_numpy()
    return Histograms(histograms(pairs, numbers, ends[-1] if ends else 0, edges, labels), sentences)


def missing_reasons(tables: ChunkTables, needs: Needs, images: Images) -> dict[str, str]:
    """Why records have no complete image: the first of failure, no text, no block, no rows."""
    failed = failure_reasons(tables, needs)
    without = tables.records.filter(~pl.col("id").is_in(list(images.shapes)))
    return {
        row["id"]: images.broken.get(row["id"])
        or failed.get(row["id"])
        or _empty_side(row, needs.passes[0])
        or "no NLI rows"
        for row in without.iter_rows(named=True)
    }


def _empty_side(row: Mapping[str, Any], need: PassNeed) -> str | None:
    """The first side without a text or without a block, as a reason."""
    cuts = dict(item.split(".") for item in need.over)
    texts = {SOURCE: _sources(row), SUMMARY: [row.get(SUMMARY) or ""]}
    for side, found in texts.items():
        if not any(text.strip() for text in found):
            return f"no text in {side}"
    for side, found in texts.items():
        cut = find_cut(cuts[side])
        if not cut.document_blocks(found):
            return f"no {cut.granularity} of more than {SHORT_CHARACTERS} characters in {side}"
    return None


def _sources(row: Mapping[str, Any]) -> list[str]:
    values = (row.get("source"), row.get("sources"))
    return [
        text
        for value in values
        if value is not None
        for text in ([value] if isinstance(value, str) else value)
        if text is not None
    ]
