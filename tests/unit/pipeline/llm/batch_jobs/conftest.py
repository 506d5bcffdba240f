"""A server of batches, and a machine whose runs it serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.batch_server import BatchServer, Machine


@pytest.fixture
def server() -> BatchServer:
    return BatchServer()


@pytest.fixture
def machine(server: BatchServer, tmp_path: Path) -> Machine:
    return Machine(server, tmp_path / "batches")
