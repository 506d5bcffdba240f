"""A run directory: settings, finished parts, and the manifest that says which are finished."""

from __future__ import annotations

from claimscore.rundir.chunk_files import ChunkFiles
from claimscore.rundir.directory import RunDirectory, damage_as_error

__all__ = ["ChunkFiles", "RunDirectory", "damage_as_error"]
