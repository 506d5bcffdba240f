"""A run directory: settings, finished parts, and the manifest that says which are finished.

From the bottom up: `parts` (the files of tables), `manifest` (which parts count), `folder` (the
lock) and `directory`, which puts them together for the one process that writes.
"""

from __future__ import annotations

from claimscore.runs.directory import RunDirectory
from claimscore.runs.parts import DamagedPart, damage_as_error, polars_errors
from claimscore.runs.settings_file import models_asked

__all__ = [
    "DamagedPart",
    "RunDirectory",
    "damage_as_error",
    "models_asked",
    "polars_errors",
]
