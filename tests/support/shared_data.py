"""Where tests find the published data that may not be shipped: `shared/` beside the repository."""

from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]


def shared(path: str) -> Path:
    """A file of `shared/`, beside the repository or inside it; without it the test is skipped."""
    for folder in (_REPOSITORY.parent / "shared", _REPOSITORY / "shared"):
        if (folder / path).exists():
            return folder / path
    pytest.skip(f"shared/{path} is not on this machine", allow_module_level=True)
