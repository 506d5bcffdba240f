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
from claimscore.pipeline.mapping.store import is_unsent, named, work_path
from claimscore.rundir import RunDirectory, damage_as_error
from claimscore.storage import open_file
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
    directory = RunDirectory.reader(place)
    with damage_as_error(place):
        return _unfinished(place, directory)


def map_status_at(address: str) -> JSON | None:
    """The same of the file at the address of an object store: from the unfinished or unsent work
    for it on this machine, else from the file in the store; None where it is no map's."""
    if not address.endswith(".parquet"):
        return None
    place = work_path(address)
    try:
        with named(address, place):
            if parts_path(place).is_dir():
                return {**map_status(parts_path(place)), "out": address}
            if is_unsent(place):
                return {**_finished(place), "out": address, "complete": False}
    except (ConfigError, FileNotFoundError):
        if place.exists() or parts_path(place).exists():
            raise  # else it was sent just now
    folder, key = open_file(address)
    try:
        return _as_status(address, Finished.of_object(folder, key))
    except FileNotFoundError:
        if folder.writable and folder.exists(f"{key}/run.toml"):
            return None
        raise ConfigError(
            f"{address}: there is no such file, and no work for it on this machine; a map keeps "
            "its work on the machine that makes it, and sends the file at the end"
        ) from None


def _finished(path: Path) -> JSON:
    finished = Finished.read(path)
    if finished is None:
        raise ConfigError(f"{path}: there is no such file")
    return _as_status(str(path), finished)


def _as_status(out: str, finished: Finished) -> JSON:
    return {
        "out": out,
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
