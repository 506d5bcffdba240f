"""Prompt files of a user: ours with other values."""

import tomllib
from pathlib import Path

import tomli_w

from claimscore.prompts import Spec


def prompt_file(path: Path, spec: str, changes: str = "") -> Path:
    """Write our prompt `TASK=VERSION` to a file, with the keys and settings of `changes` (TOML).

    Its version is the name of the file, where `changes` says none.
    """
    content = tomllib.loads(Spec.parse(spec).path().read_text(encoding="utf-8"))
    given = tomllib.loads(changes)
    given["settings"] = content.get("settings", {}) | given.get("settings", {})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomli_w.dumps({**content, "version": path.stem, **given}), encoding="utf-8")
    return path
