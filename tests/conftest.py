"""The same examples on every machine, and no deadline that a busy one would miss."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("claimscore", deadline=None, derandomize=True)
settings.load_profile("claimscore")
