"""Async tests run on asyncio, the only loop that the package uses."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
