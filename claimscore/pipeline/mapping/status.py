"""How far a map is, from its file or from the unfinished work beside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from claimscore.errors import ConfigError
from claimscore.pipeline.llm.money import SPEND_FILE, spent_so_far
from claimscore.pipeline.mapping.finished import Finished
from claimscore.pipeline.mapping.parts import ANSWERS, STATE_FILE, parts_path
from claimscore.pipeline.mapping.questions import STAGE
from claimscore.rundir import RunDirectory, damage_as_error
from claimscore.types import JSON


def map_place(path: Path) -> Path | None:
    """The parts or the finished file that `path` stands for; None where it is no map's.

    FILE.parquet stands for FILE.parquet.parts while there is work in it.
    """
    if path.is_dir():
        is_maps = path.suffix == ".parts" or (path / STATE_FILE).exists()
        return path if is_maps else None
    if parts_path(path).is_dir():
        return parts_path(path)
    return path if path.is_file() else None


def map_status(place: Path) -> JSON:
    """Rows done, failed and left, spending so far, and what a call at work is doing.

    Raises `ConfigError` where `place` is not what `claimscore map` writes.
    """
    if place.is_file():
        return _finished(place)
    try:
        directory = RunDirectory.reader(place)
    except ConfigError as exc:
        raise ConfigError(str(exc).replace("`claimscore run`", "`claimscore map`")) from exc
    with damage_as_error(place):
        return _unfinished(place, directory)


def _finished(path: Path) -> JSON:
    finished = Finished.read(path)
    if finished is None:
        raise ConfigError(f"{path}: there is no such file")
    return {
        "out": str(path),
        "rows": _rows(finished.rows, finished.rows, sum(finished.failed.values())),
        "failures": [_failure(kind, n) for kind, n in sorted(finished.failed.items())],
        "complete": True,
        "running": False,
    }


def _unfinished(place: Path, directory: RunDirectory) -> JSON:
    begun: JSON = {
        "out": str(place),
        "running": directory.is_locked,
        "spent": dataclasses.asdict(spent_so_far(directory.state / SPEND_FILE)),
        "last_call": directory.note(),
        "complete": False,
    }
    if "records" not in directory.settings:
        return {**begun, "rows": None, "failures": []}
    counts, note = directory.counts(), begun["last_call"]
    by_kind = directory.scan("failures").group_by("kind").len("count").sort("kind").collect()
    total = directory.settings["records"]["count"]
    done = counts.get(ANSWERS, 0)
    if begun["running"] and note is not None:
        done = max(done, note["rows"][0])
    return {
        **begun,
        "rows": _rows(total, done, counts.get("failures", 0)),
        "failures": [_failure(kind, n) for kind, n in by_kind.iter_rows()],
    }


def _rows(total: int, done: int, failed: int) -> dict[str, int]:
    return {"total": total, "done": done, "failed": failed, "left": total - done}


def _failure(kind: str, count: int) -> dict[str, Any]:
    return {"stage": STAGE, "kind": kind, "count": count}
