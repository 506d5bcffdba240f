"""No test, fixture or subprocess of a session touches the user's folders."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from claimscore.config import user_cache_dir, user_state_dir

EXAMPLES = Path(__file__).parents[2] / "examples"

FOLDERS = """
import huggingface_hub.constants as hub, torch.hub
from claimscore.config import user_cache_dir, user_state_dir
print(user_cache_dir(), user_state_dir(), hub.HF_HUB_CACHE, torch.hub.get_dir())
"""


@pytest.fixture(scope="session")
def of_the_session() -> list[Path]:
    """What a fixture sees that lives longer than one test."""
    return [user_cache_dir(), user_state_dir()]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the folders that each test has of its own."""
    for name in ("CLAIMSCORE_CACHE_DIR", "CLAIMSCORE_STATE_DIR"):
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("bare")
def test_every_default_folder_is_the_sessions(of_the_session: list[Path]) -> None:
    users = Path(pwd.getpwuid(os.getuid()).pw_dir)
    home = Path(os.environ["HOME"])
    assert home != users
    said = subprocess.run(
        [sys.executable, "-c", FOLDERS], capture_output=True, text=True, check=True
    )
    folders = [*of_the_session, user_cache_dir(), user_state_dir(), *map(Path, said.stdout.split())]
    assert len(folders) == 8
    assert [folder for folder in folders if not folder.is_relative_to(home)] == []
