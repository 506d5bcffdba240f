"""A server of batches, and a machine whose runs it serves, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.batch_server import BatchServer, Machine
from tests.support.virtual_time import VIRTUAL_TIME, at_once


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL_TIME


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anyio.to_thread, "run_sync", at_once)


@pytest.fixture
def server() -> BatchServer:
    return BatchServer()


@pytest.fixture
def machine(server: BatchServer, tmp_path: Path) -> Machine:
    return Machine(server, tmp_path / "batches")
