"""Servers of batches, and a machine whose runs they serve, in virtual time."""

from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from claimscore.pipeline.llm.batch_jobs import provider as provider_module
from tests.support.batch_server import BatchServer, FileServer, Machine, MessageServer


@pytest.fixture(autouse=True)
def the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The virtual one, of jobs too."""
    monkeypatch.setattr(provider_module, "time", SimpleNamespace(time=anyio.current_time))


@pytest.fixture(params=[FileServer, MessageServer], ids=["openai", "anthropic"])
def server(request: pytest.FixtureRequest) -> BatchServer:
    made: BatchServer = request.param()
    return made


@pytest.fixture
def machine(server: BatchServer, tmp_path: Path) -> Machine:
    return Machine(server, tmp_path / "batches")
