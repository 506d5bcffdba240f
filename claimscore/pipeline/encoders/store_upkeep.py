"""Looking after stored results of models: what is in a folder, and what nobody uses any more."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from claimscore.pipeline.encoders.row_format import FACTS, KEYS, VALUES, row_count
from claimscore.types import JSON


class StoredModel(NamedTuple):
    """The stored results of one model: rows, bytes on disk, and when some were last added (seconds
    since 1970)."""

    folder: Path
    facts: JSON
    rows: int
    n_bytes: int
    last_added: float

    def to_json(self) -> JSON:
        """What `claimscore cache stats --json` says of it."""
        return {
            "folder": self.folder.name,
            **self.facts,
            "rows": self.rows,
            "bytes": self.n_bytes,
        }

    def text(self) -> str:
        """The same for people."""
        facts = {"kind": "?", "model": "?", "dtype": "?", **self.facts}
        named = f"{facts['kind']} {facts['model']}, {facts['dtype']}"
        return f"{self.rows:,} stored results of {named} ({self.n_bytes / 1e6:,.1f} MB)"


def stored_models(folder: Path) -> list[StoredModel]:
    """Every model with results in the folder, damaged ones that were set aside too."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        keys, values = path / KEYS, path / VALUES
        if not (keys.is_file() and values.is_file()):
            continue
        try:
            facts = json.loads((path / FACTS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            facts = {}
        size = keys.stat().st_size + values.stat().st_size
        found.append(
            StoredModel(
                path,
                facts if isinstance(facts, dict) else {},
                row_count(keys),
                size,
                max(keys.stat().st_mtime, values.stat().st_mtime),
            )
        )
    return found


def prune_models(folder: Path, older_than_s: float, *, dry_run: bool) -> list[StoredModel]:
    """Remove the results of models to which none was added for so long; return which."""
    before = time.time() - older_than_s
    old = [model for model in stored_models(folder) if model.last_added < before]
    for model in [] if dry_run else old:
        gone = model.folder.with_name(f".{model.folder.name}.gone")
        shutil.rmtree(gone, ignore_errors=True)
        model.folder.rename(gone)  # at once: a run in progress begins a new one
        shutil.rmtree(gone, ignore_errors=True)
    return old
