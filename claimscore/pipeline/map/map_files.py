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
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.io.plugins import register_io_source

from claimscore.atomic import atomic_path, os_errors, remove_files, remove_leftovers
from claimscore.errors import ConfigError
from claimscore.object_stores import is_address
from claimscore.pipeline.llm.budget.ledger import SPEND_FILE, read_ledger
from claimscore.pipeline.map.input_table import TableSource
from claimscore.pipeline.map.table_prompt import STAGE, RowAnswers, TablePrompt
from claimscore.prompts import Prompt
from claimscore.runs import RunDirectory, damage_as_error, polars_errors
from claimscore.runs.settings_file import agreed, as_stored
from claimscore.types import JSON

if TYPE_CHECKING:
    from claimscore.pipeline.estimate.figures import TaskEstimate

#: The key of the settings in the Parquet metadata.
METADATA_KEY = "claimscore.map"

#: The table of the columns that are added, row by row beside those of `records`.
COLUMNS = "columns"

ROW_GROUP = 10_000

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

    def refuse_others(self, settings: Mapping[str, Any]) -> None:
        """`ConfigError` that shows the difference where the file was made with other settings."""
        agreed(self.settings, settings, str(self.where), CALLED)

    def refuse_paying_again(self, asked: TaskEstimate) -> None:
        """`ConfigError` where more rows would be sent than failed: their answers are lost."""
        n_failed = sum(n for kind, n in self.failed.items() if kind != "null_input")
        n_lost = asked.questions - asked.answered - n_failed
        if n_lost > 0:
            raise ConfigError(
                f"{self.where}: {n_lost:,} of its answers are not in the cache, and would be paid "
                "for again; import them (claimscore cache import), or name another --out"
            )

    def metadata(self) -> dict[str, str]:
        """The metadata that the file carries, and `MapFiles.finished` reads."""
        facts = {"settings": self.settings, "rows": self.rows, "failed": dict(self.failed)}
        return {METADATA_KEY: json.dumps(facts, sort_keys=True)}


class MapFiles:
    """The files of one map, by the path or the address of `FILE.parquet`.

    `where`, `failures` and `parts` are their paths or addresses, whether they are there or not.
    """

    def __init__(self, out: Path | str) -> None:
        self.where = out if is_address(out) else Path(out)
        self.failures = _beside(self.where, ".failures.parquet")
        self.parts = _beside(self.where, ".parquet.parts")
        self._path, self._store = Path(out), None
        if is_address(self.where):
            from claimscore.runs.objects import Objects
            from claimscore.runs.remote import local_folder

            folder, _, name = self.where.rpartition("/")
            self._path, self._store = local_folder(self.where) / name, Objects(folder)
        self._failures_path = _beside(self._path, ".failures.parquet")

    @property
    def has_parts(self) -> bool:
        """Whether there is unfinished work, or a folder where it would lie."""
        return (
            self.parts.exists() if isinstance(self.parts, Path) else RunDirectory.is_at(self.parts)
        )

    @property
    def is_run(self) -> bool:
        """Whether a run directory has the name of the file."""
        return RunDirectory.is_at(self.where)

    def finished(self) -> FinishedMap | None:
        """The metadata of the finished file, which is brought to this machine; None where there is
        no file.

        `ConfigError` where `claimscore map` did not write the file of that name.
        """
        return self._read_metadata(self._path, self.where)

    def check(self) -> None:
        """`ConfigError` where a file that `claimscore map` did not write has the name of the
        failures file."""
        self._read_metadata(self._failures_path, self.failures)

    def _read_metadata(self, path: Path, where: Path | str) -> FinishedMap | None:
        if self._store is not None and not self._store.fetch(path.name, path):
            return None
        if path.is_dir():
            raise ConfigError(f"{where}: it is a folder, not a file")
        try:
            text = pl.read_parquet_metadata(path)[METADATA_KEY]
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

    def failure_examples(self) -> dict[str, str]:
        """The first message of each kind of failure; none where there is no failures file."""
        if not self._failures_path.exists():
            return {}
        with polars_errors(self.failures):
            rows = pl.read_parquet(self._failures_path, glob=False)
        kinds = rows.group_by("kind", maintain_order=True)
        return dict(kinds.agg(pl.col("message").first()).iter_rows())

    def write(self, finished: FinishedMap, rows: pl.LazyFrame, failures: pl.LazyFrame) -> None:
        """Replace both files, the failures first, each whole or not at all.

        The rows are never all in memory.
        """
        if finished.failed:
            self._write(self._failures_path, finished, failures)
        self._write(self._path, finished, rows)
        if not finished.failed:
            remove_files([self._failures_path])
            if self._store is not None:
                self._store.delete([self._failures_path.name])

    def _write(self, path: Path, finished: FinishedMap, rows: pl.LazyFrame) -> None:
        with os_errors(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_path(path) as new, polars_errors(path):
            rows.sink_parquet(
                new,
                compression="zstd",
                row_group_size=ROW_GROUP,
                maintain_order=True,
                metadata=finished.metadata(),
            )
        if self._store is not None:
            self._store.put(path.name, path)

    def remove_leftovers(self) -> None:
        """Remove half-written files of a killed call: `.FILE.parquet.1a2b3c4d.tmp`."""
        for path in (self._path, self._failures_path):
            if path.parent.exists():
                remove_leftovers(path.parent, re.escape(path.name))


def _beside(where: Path | str, ending: str) -> Any:
    """The path or the address with another ending than `.parquet`."""
    return type(where)(str(where).removesuffix(".parquet") + ending)


def _finished(where: Path | str, facts: JSON) -> FinishedMap:
    """From the metadata; `ValueError` or another error of Python for what no map wrote."""
    settings, failed = facts["settings"], facts["failed"]
    counts = [facts["rows"], *failed.values()]
    is_whole = (
        as_stored(settings) == settings
        and all(type(count) is int and count >= 0 for count in counts)
        and sum(failed.values()) <= facts["rows"]
    )
    if not is_whole:
        raise ValueError("no metadata of a map")
    return FinishedMap(where, settings, facts["rows"], failed)


class MapParts:
    """Rows in, answers chunk by chunk, and the finished file in the end.

    `directory` is open for writing. A chunk whose failed rows are tried again is done again whole,
    with the answers that are in the cache. A finished file stays until the next one takes its
    place. Threads may read and write different chunks at once.
    """

    def __init__(self, files: MapFiles, directory: RunDirectory) -> None:
        self._files = files
        self._directory = directory
        self._settings: JSON = {}
        self._left: Sequence[int] = ()

    def take(
        self, source: TableSource, settings: Callable[[str, int], JSON], prompt: Prompt
    ) -> TablePrompt:
        """Make sure that all rows are there, and that answers so far fit input and settings.

        `settings` are those that determine the file, by the digest and the number of the rows.
        `ConfigError` that shows the difference where answers were made with others.
        """
        directory, digest, table = self._directory, source.digest(), None
        if not directory.steps_done(STAGE):  # nothing was made with the settings that stand there
            directory.invalidate({"records": directory.manifest.chunks_with("records")})
            directory.forget_settings(list(directory.settings))
        if (finished := self._files.finished()) is not None:
            finished.refuse_others(settings(digest, finished.rows))
        if directory.settings and directory.steps_done("records") == directory.n_chunks:
            count = directory.settings["records"]["count"]
            schema = dict(directory.read("records", 0).schema)
        else:
            table = source.open()
            count, schema = table.n_rows, table.schema
        table_prompt = TablePrompt(prompt, schema, source.name)
        self._settings = settings(digest, count)
        directory.check_settings(self._settings, CALLED)
        for chunk, frame in enumerate(table.chunks(self.chunk_rows) if table is not None else ()):
            if not directory.manifest.has(chunk, "records"):
                directory.write_parts(chunk, "records", {"records": frame})
        return table_prompt

    def todo(self, *, retry_failed: bool) -> list[int]:
        """The chunks without answers, in order; where the user wants failed rows tried again, those
        with failures have none."""
        directory = self._directory
        if retry_failed:
            failed = directory.scan("failures").select(pl.col("id").cast(pl.Int64)).collect()
            chunks = {row // self.chunk_rows for row in failed["id"]}
            directory.invalidate({STAGE: chunks})
        left = [n for n in range(directory.n_chunks) if not directory.manifest.has(n, STAGE)]
        self._left = left
        return left

    @property
    def chunk_rows(self) -> int:
        """The rows of a chunk."""
        return int(self._settings["chunk_records"])

    @property
    def n_rows(self) -> int:
        """All rows of the input."""
        return int(self._settings["records"]["count"])

    @property
    def n_done(self) -> int:
        """The rows of the chunks that are not left."""
        size = self.chunk_rows
        return self.n_rows - sum(min(size, self.n_rows - chunk * size) for chunk in self._left)

    def read(self, chunk: int) -> pl.DataFrame:
        """The rows of a chunk as they came in. `ConfigError` where the part is damaged."""
        return self._directory.read("records", chunk)

    def write(self, chunk: int, answers: RowAnswers) -> None:
        """Make the answers of all rows of a chunk count."""
        frames = {COLUMNS: answers.columns, "failures": answers.failures}
        self._directory.write_parts(chunk, STAGE, frames)

    def write_files(self) -> FinishedMap:
        """Put the parts together. The bytes depend on rows and settings alone."""
        failures = self._directory.scan("failures")
        by_kind = failures.group_by("kind").len().sort("kind").collect()
        failed = dict(by_kind.iter_rows())
        finished = FinishedMap(self._files.where, self._settings, self.n_rows, failed)
        # Frame by frame: a scan of so many files reads too far ahead.
        rows = register_io_source(
            lambda *_: (self._whole(chunk) for chunk in range(self._directory.n_chunks)),
            schema=self._whole(0).schema,
        )
        row = pl.col("id").cast(pl.Int64).alias("row")
        self._files.write(finished, rows, failures.select(row, *NO_FAILURES.columns[1:]))
        return finished

    def _whole(self, chunk: int) -> pl.DataFrame:
        added = self._directory.read(COLUMNS, chunk)
        return pl.concat([self.read(chunk), added], how="horizontal")


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
    from claimscore.pipeline.status import named  # with the plans of runs, which a map has none of

    directory = RunDirectory.reader(files.parts)
    with damage_as_error(files.parts):
        note, running = directory.note(), directory.is_locked
        begun: JSON = {
            **named(files.where if is_address(files.where) else files.parts, directory),
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
