"""The files of a map: `FILE.parquet`, its failures beside it, and its unfinished work.

    FILE.parquet             every row with its answer or its error; its metadata says what made it
    FILE.failures.parquet    the rows without an answer, where there are any
    FILE.parquet.parts/      a run directory of the tables `records`, `columns` and `failures`

They lie together, in a folder on a disk or in an object store. The settings stand in the file
itself, so it can be recognised wherever it is moved, and its bytes depend on the settings and the
rows alone.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from claimscore.atomic import remove_leftovers
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.budget.ledger import SPEND_FILE, read_ledger
from claimscore.pipeline.map.table_prompt import ERROR_COLUMN, STAGE
from claimscore.runs import RunDirectory, damage_as_error, polars_errors
from claimscore.runs.settings_file import agreed, as_stored
from claimscore.storage import Storage, is_remote, open_file, open_storage
from claimscore.types import JSON

#: The key of the settings in the Parquet metadata.
METADATA_KEY = "claimscore.map"

#: The table of the columns that are added, row by row beside those of `records`.
COLUMNS = "columns"

ROW_GROUP = 10_000

#: A Parquet file ends with the length of its footer in four bytes, and these four.
_MAGIC, _TAIL_BYTES = b"PAR1", 8

#: What users call the settings that can differ.
CALLED = {
    "records.digest": "the content of INPUT",
    "records.count": "the rows of INPUT",
    "prompt.name": "the name in --prompt",
    "prompt.digest": "--prompt",
    "llm.provider": "--llm",
    "llm.model": "--llm",
    "llm.namespace": "--base-url",
}

#: The failures file of a map in which nothing failed.
NO_FAILURES = pl.DataFrame(
    schema={
        "row": pl.Int64,
        "kind": pl.String,
        "message": pl.String,
        "attempts": pl.Int32,
        "request_key": pl.String,
        "raw": pl.String,
    }
)


@dataclasses.dataclass(frozen=True)
class FinishedMap:
    """The metadata of a finished file: how it was made, and how many rows failed."""

    where: Path | str
    settings: JSON
    rows: int
    failed: Mapping[str, int]
    columns: tuple[str, ...]

    def refuse_others(self, settings: Mapping[str, Any]) -> None:
        """`ConfigError` that shows the difference where the file was made with other settings."""
        agreed(self.settings, settings, str(self.where), CALLED)

    def metadata(self) -> dict[str, str]:
        """The metadata that the file carries, and `MapFiles.finished` reads."""
        facts = {
            "settings": self.settings,
            "rows": self.rows,
            "failed": dict(self.failed),
            "columns": list(self.columns),
        }
        return {METADATA_KEY: json.dumps(facts, sort_keys=True)}


class MapFiles:
    """The files of one map, by the path or the address of `FILE.parquet`.

    `where`, `failures` and `parts` are their paths or addresses, whether they are there or not.
    """

    def __init__(self, out: Path | str) -> None:
        if isinstance(out, str) and is_remote(out):
            self._folder: Storage
            self._folder, self._name = open_file(out)
        else:
            self._folder, self._name = open_storage(Path(out).parent), Path(out).name
        self._failures_name = f"{self._name.removesuffix('.parquet')}.failures.parquet"
        self.where = self._folder.address(self._name)
        self.failures = self._folder.address(self._failures_name)
        self.parts = self._folder.address(f"{self._name}.parts")

    @property
    def has_parts(self) -> bool:
        """Whether there is unfinished work, or a folder where it would lie."""
        if isinstance(self.parts, Path):
            return self.parts.exists()
        return self._folder.writable and RunDirectory.is_at(self.parts)

    @property
    def is_run(self) -> bool:
        """Whether a run directory has the name of the file."""
        return self._folder.writable and RunDirectory.is_at(self.where)

    def finished(self) -> FinishedMap | None:
        """The metadata of the finished file; only its end is read. None where there is no file.

        `ConfigError` where `claimscore map` did not write the file of that name.
        """
        return self._read_metadata(self._name)

    def check(self) -> None:
        """`ConfigError` where nothing can be written, or a file that `claimscore map` did not write
        has the name of the failures file."""
        if not self._folder.writable:
            raise ConfigError(f"--out {self.where}: a web server's files can only be read")
        self._read_metadata(self._failures_name)

    def _read_metadata(self, name: str) -> FinishedMap | None:
        where = self._folder.address(name)
        if isinstance(where, Path) and where.is_dir():
            raise ConfigError(f"{where}: it is a folder, not a file")
        try:
            with self._folder.open(name) as stream:
                metadata = pl.read_parquet_metadata(io.BytesIO(_footer(stream)))
            text = metadata[METADATA_KEY]
        except FileNotFoundError:
            return None
        except (KeyError, ValueError, pl.exceptions.PolarsError):
            raise ConfigError(
                f"{where} is there already and was not written by `claimscore map`; name another "
                "--out, or move it away"
            ) from None
        try:
            return _finished(where, json.loads(text))
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
            raise ConfigError(
                f"{where}: its metadata is not what `claimscore map` wrote; name another --out, or "
                "move it away"
            ) from None

    def rows(self, scratch: Path) -> FinishedRows:
        """The rows of the finished file; one in a store is copied to the folder `scratch` first."""
        where = self._folder.address(self._name)
        if isinstance(where, Path):
            return FinishedRows(where)
        copy = scratch / "finished.parquet"
        with self._folder.open(self._name) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        return FinishedRows(copy)

    def read_failures(self) -> pl.DataFrame:
        """The rows without an answer; none where there is no failures file."""
        if not self._folder.exists(self._failures_name):
            return NO_FAILURES
        with polars_errors(self.failures):
            return pl.read_parquet(self.failures, glob=False)

    def failure_examples(self) -> dict[str, str]:
        """The first message of each kind of failure."""
        rows = self.read_failures().group_by("kind", maintain_order=True)
        return dict(rows.agg(pl.col("message").first()).iter_rows())

    def write(self, finished: FinishedMap, rows: pl.LazyFrame, failures: pl.LazyFrame) -> None:
        """Replace both files, the failures first, each whole or not at all.

        The rows are never all in memory.
        """
        if finished.failed:
            self._write(self._failures_name, finished, failures)
        self._write(self._name, finished, rows)
        if not finished.failed:
            self._folder.delete(self._failures_name)

    def _write(self, name: str, finished: FinishedMap, rows: pl.LazyFrame) -> None:
        with self._folder.writing(name) as path, polars_errors(self._folder.address(name)):
            rows.sink_parquet(
                path,
                compression="zstd",
                row_group_size=ROW_GROUP,
                maintain_order=True,
                metadata=finished.metadata(),
            )

    def remove_leftovers(self) -> None:
        """Remove half-written files of a killed call: `.FILE.parquet.1a2b3c4d.tmp`."""
        if self._folder.local is None:
            return
        for name in (self._name, self._failures_name):
            remove_leftovers(self._folder.local, re.escape(name))


def _finished(where: Path | str, facts: JSON) -> FinishedMap:
    """From the metadata; `ValueError` or another error of Python for what no map wrote."""
    settings, failed, columns = facts["settings"], facts["failed"], facts["columns"]
    counts = [facts["rows"], *failed.values()]
    is_whole = (
        as_stored(settings) == settings
        and all(type(count) is int and count >= 0 for count in counts)
        and sum(failed.values()) <= facts["rows"]
        and isinstance(columns, list)
        and all(isinstance(column, str) for column in columns)
    )
    if not is_whole:
        raise ValueError("no metadata of a map")
    return FinishedMap(where, settings, facts["rows"], failed, tuple(columns))


class FinishedRows:
    """The rows of a finished file on this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._scan = pl.scan_parquet(path, glob=False)

    def schema(self, columns: Sequence[str]) -> dict[str, pl.DataType]:
        """The types of these columns."""
        with polars_errors(self._path):
            return dict(self._scan.select(columns).collect_schema())

    def slice(self, first: int, n: int) -> pl.DataFrame:
        """`n` rows from row `first` on, with all columns."""
        with polars_errors(self._path):
            return self._scan.slice(first, n).collect()

    def failed(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """These columns of the rows with an error, few rows at a time."""
        rows = self._scan.filter(pl.col(ERROR_COLUMN).is_not_null()).select(columns)
        with polars_errors(self._path):
            yield from rows.collect_batches(chunk_size=ROW_GROUP)


def _footer(stream: BinaryIO) -> bytes:
    """The end of a Parquet file, as a file with nothing before it; not one where it is none."""
    end = max(stream.seek(0, io.SEEK_END) - _TAIL_BYTES, 0)
    stream.seek(end)
    tail = stream.read()
    stream.seek(max(end - int.from_bytes(tail[:4], "little"), 0))
    return _MAGIC + stream.read()


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
        **_counts(finished.rows, finished.rows, _by_kind(finished)),
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
            "spent": read_ledger(directory.state / SPEND_FILE)[0].to_json(),
            "last_call": note,
            "complete": False,
        }
        settings, counts = directory.settings, directory.manifest.counts()
        if "records" not in settings:
            return {**begun, "rows": None, "failures": []}
        done, failures = counts.get(COLUMNS, 0), directory.failures_by_kind()
        if running and note is not None and note["rows"][1]:
            done = note["rows"][0]
        return {**begun, **_counts(settings["records"]["count"], done, failures)}


def _counts(total: int, done: int, failures: list[JSON]) -> JSON:
    failed = sum(failure["count"] for failure in failures)
    rows = {"total": total, "done": done, "failed": failed, "left": total - done}
    return {"rows": rows, "failures": failures}


def _by_kind(finished: FinishedMap) -> list[JSON]:
    kinds = sorted(finished.failed.items())
    return [{"stage": STAGE, "kind": kind, "count": count} for kind, count in kinds]
