"""Small facts about this machine, kept in the user's state folder; deleting a file forgets them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from claimscore.atomic import write_text
from claimscore.errors import ClaimscoreError


def read_state(path: Path) -> dict[str, Any]:
    """The rows of a state file by name; none where it is not there or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def write_state(path: Path, rows: Mapping[str, Any]) -> None:
    """Add rows, or replace them; a folder that cannot be written is no error."""
    with contextlib.suppress(OSError, ClaimscoreError):
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {**read_state(path), **rows}
        write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")
