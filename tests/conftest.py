"""The same examples on every machine, no deadline that a busy one would miss, nobody's files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("claimscore", deadline=None, derandomize=True)
settings.load_profile("claimscore")


@pytest.fixture(autouse=True)
def _own_state() -> Iterator[None]:
    """What processes share (learnt limits) is one test's alone, its subprocesses included."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAIMSCORE_STATE_DIR", folder)
        yield
