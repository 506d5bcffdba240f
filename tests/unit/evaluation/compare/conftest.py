"""Two versions of a prompt, for each test that asks."""

from __future__ import annotations

from tests.support.compared_versions import versions

__all__ = ["versions"]
