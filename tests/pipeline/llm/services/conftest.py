"""Services whose limits lie in a folder of the test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr("claimscore.pipeline.llm.services.client._FIRST_PAUSE_S", 0.005)
