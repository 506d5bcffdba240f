"""From the input into the run directory; an input that was read before is not read again."""

from __future__ import annotations

from typing import BinaryIO

from claimscore.config import RunConfig
from claimscore.records import Dataset, Prepared, keep, prepare, recall
from claimscore.records.dataset import Required
from claimscore.rundir import RunDirectory


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
    for chunk, frame in enumerate(dataset.chunks(config.chunk_records)):
        if not directory.has(chunk, "records"):
            directory.write_parts(chunk, "records", {"records": frame})
    keep(dataset, required, directory.state)
