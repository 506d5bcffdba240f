"""A run directory: settings, finished parts, and the manifest that says which are finished."""

from __future__ import annotations

from claimscore.rundir.directory import RunDirectory

__all__ = ["RunDirectory"]
