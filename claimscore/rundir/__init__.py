"""A run directory: settings, finished parts, and the manifest that says which are finished."""

from __future__ import annotations

from claimscore.rundir.directory import RunDirectory, damage_as_error

__all__ = ["RunDirectory", "damage_as_error"]
