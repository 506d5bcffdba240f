"""A run directory: settings, finished parts, and the manifest that says which are finished.

`parts` knows the files of tables, `manifest` what counts and its `index` where that lies, `merging`
makes few files of many, `journal` keeps the manifest's lines, `home` what is done differently on
a disk and in an object store; `directory` puts them together for the one process that writes,
`chunk_files` for those that write parts for it.
"""

from __future__ import annotations

from claimscore.runs.chunk_files import ChunkFiles, Lies, WorkerChunk
from claimscore.runs.damage import (
    DamagedPart,
    again_where_merged,
    damage_as_error,
    polars_errors,
)
from claimscore.runs.directory import RunDirectory
from claimscore.runs.undoing import KEPT

__all__ = [
    "KEPT",
    "ChunkFiles",
    "DamagedPart",
    "Lies",
    "RunDirectory",
    "WorkerChunk",
    "again_where_merged",
    "damage_as_error",
    "polars_errors",
]
