"""The images of a chunk's records from the table `block_nli`, all at once, and why one is missing.

Nothing here loops over pairs in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from claimscore.blocks import SHORT_CHARACTERS, find_cut
from claimscore.metrics.base import ChunkTables, PassRequirement, Requirements, failure_reasons
from claimscore.metrics.ragged import Cells, Matrices, arrange
from claimscore.metrics.summac.convolution import Counts, histograms
from claimscore.metrics.summac.image import ROUNDING, Values

SOURCE, SUMMARY = "source", "summary"
PROBABILITIES = ("entailment", "neutral", "contradiction")


class Images(NamedTuple):
    """The complete images: `matrices` has a row a summary sentence, a column a document block.

    `places` says where a record's image is among them; of the other records that have rows
    `broken` says what is wrong with them.
    """

    matrices: Matrices
    places: dict[str, int]
    broken: dict[str, str]


def read_images(tables: ChunkTables, need: PassRequirement) -> Images:
    """The images that the pass of `need` made; those with rows missing or no numbers are broken."""
    ids = tables.records["id"]
    rows = tables["block_nli"].filter(*_made_by(need))
    cells = Cells.read(
        ids,
        rows.select(
            "id", *map(_probability, PROBABILITIES), row="hypothesis_index", column="premise_index"
        ),
    )
    shapes = cells.shapes(len(ids))
    matrices = arrange(cells, shapes)
    broken = {}
    for number in np.flatnonzero(~(matrices.complete & matrices.finite)).tolist():
        n_found, size = matrices.n_found[number], shapes.sizes[number]
        if matrices.complete[number]:
            broken[ids[number]] = "an NLI probability is not a number from 0 to 1"
        elif n_found < size:
            broken[ids[number]] = f"NLI rows are missing: {n_found} of {size}"
        else:
            broken[ids[number]] = "an NLI row is there twice"
    places = {record: place for place, record in enumerate(ids.gather(matrices.records))}
    return Images(matrices, places, broken)


def _probability(name: str) -> pl.Expr:
    """As `image.as_image` takes it; null where it is none."""
    value = pl.col(name).cast(pl.Float64)
    return pl.when(value.is_between(-ROUNDING, 1 + ROUNDING)).then(value.clip(0, 1)).alias(name)


def _made_by(need: PassRequirement) -> Iterator[pl.Expr]:
    for role, item in zip(("premise", "hypothesis"), need.over, strict=True):
        side, _, cut = item.partition(".")
        yield pl.col(f"{role}_side") == side
        yield pl.col(f"{role}_cut") == cut


def stack_histograms(images: Images, edges: Values, labels: str) -> Counts:
    """The histograms of the summary sentences of every complete image, one after another."""
    shapes = images.matrices.shapes
    n_sentences = int(shapes.n_rows.sum())
    sentences = np.repeat(np.arange(n_sentences), shapes.row_lengths)
    return histograms(images.matrices.values, sentences, n_sentences, edges, labels)


def missing_reasons(tables: ChunkTables, needs: Requirements, images: Images) -> dict[str, str]:
    """Why records have no complete image: the first of failure, no text, no block, no rows."""
    failed = failure_reasons(tables, needs)
    without = tables.records.filter(~pl.col("id").is_in(list(images.places)))
    return {
        row["id"]: images.broken.get(row["id"])
        or failed.get(row["id"])
        or _empty_side(row, needs.passes[0])
        or "no NLI rows"
        for row in without.iter_rows(named=True)
    }


def _empty_side(row: Mapping[str, Any], need: PassRequirement) -> str | None:
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
