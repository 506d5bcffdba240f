"""Servers of batches, and a machine whose runs they serve, in virtual time."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from claimscore.pipeline.llm.batch_jobs import provider as provider_module
from tests.support.batch_server import BatchServer, FileServer, Machine, MessageServer
from tests.support.virtual_time import VIRTUAL_TIME, at_once


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL_TIME


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anyio.to_thread, "run_sync", at_once)
    clock = SimpleNamespace(time=anyio.current_time)
    monkeypatch.setattr(provider_module, "time", clock)


@pytest.fixture(params=[FileServer, MessageServer], ids=["openai", "anthropic"])
def server(request: pytest.FixtureRequest) -> BatchServer:
    made: BatchServer = request.param()
    return made


@pytest.fixture
def machine(server: BatchServer, tmp_path: Path) -> Machine:
    return Machine(server, tmp_path / "batches")
