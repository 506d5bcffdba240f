"""From the input into the run directory; an input that was read before is not read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import polars as pl

from claimscore.atomic import os_errors
from claimscore.config import RunConfig
from claimscore.records import Dataset, Prepared, keep, prepare, recall
from claimscore.records.dataset import SPOOLED, Required
from claimscore.rundir import RunDirectory

#: Chunks of records that are written into one file, if their texts are not longer than that.
CHUNKS_A_FILE, BYTES_A_FILE = 64, 64_000_000


def find_records(
    config: RunConfig, required: Required, directory: RunDirectory, stdin: BinaryIO | None
) -> Dataset | Prepared:
    """The records of the input, validated: now, or by an earlier call that copied all of them.

    Raises as `prepare` does.
    """
    known = recall(config.input, required, directory.state)
    if known is not None and _has_all(directory, known):
        return known
    return prepare(config.input, spool=directory.state, required=required, stdin=stdin)


def again(directory: RunDirectory) -> BinaryIO | None:
    """What standard input said; None where it was not read."""
    path = directory.state / SPOOLED
    with os_errors(path):
        return path.open("rb") if path.is_file() else None


def _has_all(directory: RunDirectory, known: Prepared) -> bool:
    """Whether the folder's records are these, and none is missing."""
    records = directory.settings.get("records", {})
    copied = directory.steps_done("records")
    return records.get("digest") == known.digest and copied == directory.n_chunks


def copy_records(
    dataset: Dataset | Prepared, config: RunConfig, required: Required, directory: RunDirectory
) -> None:
    """Write the chunks of records that the folder lacks; a complete one is left as it is."""
    if isinstance(dataset, Prepared):
        return
    first = 0
    for frames in _files(dataset.chunks(config.chunk_records)):
        missing = [not directory.has(first + n, "records") for n in range(len(frames))]
        if any(missing):
            directory.write_chunks(first, "records", "records", frames)
        first += len(frames)
    keep(dataset, required, directory.state)


def _files(chunks: Iterable[pl.DataFrame]) -> Iterator[list[pl.DataFrame]]:
    """The chunks that are written into one file: not one each, but no more than memory bears."""
    frames: list[pl.DataFrame] = []
    n_bytes = 0
    for chunk, frame in enumerate(chunks, start=1):
        frames.append(frame)
        n_bytes += int(frame.estimated_size())
        if chunk % CHUNKS_A_FILE == 0 or n_bytes > BYTES_A_FILE:
            yield frames
            frames, n_bytes = [], 0
    if frames:
        yield frames
