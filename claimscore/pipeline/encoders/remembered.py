"""Small facts that runs find out about models and devices: files in the user's state folder."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from claimscore.atomic import write_text
from claimscore.errors import ClaimscoreError


def read_facts(path: Path) -> dict[str, Any]:
    """What the file holds, by name; nothing where it is not there or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def keep_fact(path: Path, name: str, fact: dict[str, Any]) -> None:
    """Add a fact, or replace it; a folder that cannot be written is no error."""
    content = {**read_facts(path), name: fact}
    with contextlib.suppress(OSError, ClaimscoreError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")
