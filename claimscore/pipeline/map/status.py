"""How far a map is, from its file or from the unfinished work beside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from claimscore.errors import ConfigError
from claimscore.pipeline.map.files import COLUMNS, FinishedMap, MapFiles
from claimscore.pipeline.map.questions import STAGE
from claimscore.pipeline.scoring import failures_by_kind
from claimscore.pipeline.spending import run_spent
from claimscore.rundir import RunDirectory, damage_as_error
from claimscore.storage import is_remote
from claimscore.types import JSON


def map_status(place: Path | str) -> JSON | None:
    """Rows done, failed and left, spending so far, and what a call at work is doing.

    `place` is the path or the address of the file, or of its parts; None where it is no map's.
    Raises `ConfigError` for a file that `claimscore map` did not write.
    """
    name = str(place).removesuffix(".parts")
    if not name.endswith(".parquet"):
        return None
    files = MapFiles(name)
    if files.has_parts:
        try:
            return _unfinished(files)
        except ConfigError:
            if files.has_parts:
                raise  # else the map has just finished
    if files.is_run:
        return None
    finished = files.finished()
    if finished is None:
        raise ConfigError(f"{name}: there is no such file, and no work on it beside it")
    return {
        "out": str(files.where),
        "rows": _rows(finished.rows, finished.rows, sum(finished.failed.values())),
        "failures": _by_kind(finished),
        "complete": True,
        "running": False,
    }


def _unfinished(files: MapFiles) -> JSON:
    directory = RunDirectory.reader(files.parts)
    with damage_as_error(files.parts):
        note, running = directory.note(), directory.is_locked
        begun: JSON = {
            "out": str(files.where if is_remote(files.where) else files.parts),
            "running": running,
            "spent": dataclasses.asdict(run_spent(directory)),
            "last_call": note,
            "complete": False,
        }
        settings, finished = directory.settings, files.finished()
        if "records" not in settings:
            return {**begun, "rows": None, "failures": []}
        total = settings["records"]["count"]
        if finished is not None:  # some of its failed rows are tried again
            return {
                **begun,
                "rows": _rows(total, total, sum(finished.failed.values())),
                "failures": _by_kind(finished),
            }
        counts = directory.counts()
        done = counts.get(COLUMNS, 0)
        if running and note is not None:
            done = max(done, note["rows"][0])
        return {
            **begun,
            "rows": _rows(total, done, counts.get("failures", 0)),
            "failures": failures_by_kind(directory),
        }


def _rows(total: int, done: int, failed: int) -> dict[str, int]:
    return {"total": total, "done": done, "failed": failed, "left": total - done}


def _by_kind(finished: FinishedMap) -> list[JSON]:
    kinds = sorted(finished.failed.items())
    return [{"stage": STAGE, "kind": kind, "count": count} for kind, count in kinds]
