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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.io.plugins import register_io_source

from claimscore.atomic import atomic_path, os_errors, remove_files, remove_leftovers
from claimscore.errors import ConfigError
from claimscore.object_stores import is_address
from claimscore.pipeline.llm.budget.ledger import SPEND_FILE, read_ledger
from claimscore.pipeline.map.input_table import METADATA_KEY, TableSource
from claimscore.pipeline.map.settings import Settings, wants_more
from claimscore.pipeline.map.table_prompt import STAGE, TablePrompt, chain
from claimscore.prompts import Prompt
from claimscore.runs import RunDirectory, damage_as_error, polars_errors
from claimscore.runs.remote import Objects, local_folder
from claimscore.runs.settings_file import agreed, as_stored
from claimscore.tables import FAILURES
from claimscore.types import JSON, Failure

if TYPE_CHECKING:
    from claimscore.pipeline.estimate.figures import TaskEstimate

#: The table of the columns that are added, row by row beside those of `records`; of all columns
#: where there is a row for each item of a list.
COLUMNS = "columns"

ROW_GROUP = 10_000

#: What users call the settings that can differ.
CALLED = {
    "records.digest": "the content of INPUT",
    "records.count": "the rows of INPUT",
    "records.more": "--limit",
    "prompt.name": "the name in --prompt",
    "prompt.digest": "--prompt",
    "llm.provider": "--llm",
    "llm.model": "--llm",
    "llm.namespace": "--base-url",
}

_FAILURES = {name: FAILURES.schema[name] for name in Failure.__slots__}
#: The failures file of a map in which nothing failed, and that of a chain.
NO_FAILURES = pl.DataFrame(schema={"row": pl.Int64, **_FAILURES})
NO_CHAIN_FAILURES = pl.DataFrame(
    schema={"row": pl.Int64, "prompt": pl.String, "item": pl.Int32, **_FAILURES}
)

#: What metadata of others raises.
_DAMAGE = KeyError, ValueError, TypeError, AttributeError, RecursionError

#: Failures of rows that no request was sent for.
UNASKED = ("null_input", "too_many_items")


@dataclasses.dataclass(frozen=True)
class FinishedMap:
    """The metadata of a finished file: how it was made, from how many rows of the input, and how
    much failed, by kind; in a chain by prompt and kind ("judge: parse"), in so many rows."""

    where: Path | str
    settings: JSON
    rows: int
    failed: Mapping[str, int]
    failed_rows: int

    def refuse_others(self, settings: Settings, digest: str, limit: int | None) -> None:
        """`ConfigError` that shows the difference where the file was made with other settings, or
        of more rows."""
        n_rows = self.rows if limit is None else min(limit, self.rows)
        records = {**self.settings["records"], "digest": digest, "count": n_rows}
        agreed(self.settings, settings(records), str(self.where), CALLED)

    def refuse_paying_again(self, asked: Sequence[TaskEstimate]) -> None:
        """`ConfigError` where more of its rows would be sent than failed: answers are lost."""
        n_failed = sum(n for kind, n in self.failed.items() if not kind.endswith(UNASKED))
        n_lost = sum(one.questions - one.answered for one in asked) - n_failed
        if n_lost > 0:
            raise ConfigError(
                f"{self.where}: {n_lost:,} of its answers are not in the cache, and would be paid "
                "for again; import them (claimscore cache import), or name another --out"
            )

    def metadata(self) -> dict[str, str]:
        """The metadata that the file carries, and `MapFiles.finished` reads."""
        facts = {"settings": self.settings, "rows": self.rows, "failed": dict(self.failed)}
        if self.failed_rows != sum(self.failed.values()):
            facts["failed_rows"] = self.failed_rows
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
            folder, _, name = self.where.rpartition("/")
            self._path, self._store = local_folder(self.where) / name, Objects(folder)
        self._failures_path = _beside(self._path, ".failures.parquet")

    @property
    def has_parts(self) -> bool:
        """Whether there is unfinished work, or a folder where it would lie."""
        return (
            self.parts.exists() if isinstance(self.parts, Path) else RunDirectory.is_at(self.parts)
        )

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
        if not path.exists():
            return None
        try:
            return _finished(where, json.loads(pl.read_parquet_metadata(path)[METADATA_KEY]))
        except (*_DAMAGE, pl.exceptions.PolarsError):
            raise ConfigError(
                f"{where} is there already and was not written by `claimscore map`; name another "
                "--out, or move it away"
            ) from None

    def failure_examples(self) -> dict[str, str]:
        """The first message of each kind of failure, named as in `FinishedMap.failed`; none where
        there is no failures file."""
        if not self._failures_path.exists():
            return {}
        with polars_errors(self.failures):
            rows = pl.read_parquet(self._failures_path, glob=False)
        kind = pl.format("{}: {}", "prompt", "kind") if "prompt" in rows.columns else pl.col("kind")
        kinds = rows.group_by(kind.alias("kind"), maintain_order=True)
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
    failed_rows = facts.get("failed_rows", sum(failed.values()))
    is_whole = (
        as_stored(settings) == settings
        and isinstance(settings["records"], dict)
        and all(type(n) is int and n >= 0 for n in (facts["rows"], failed_rows, *failed.values()))
        and failed_rows <= facts["rows"]
    )
    if not is_whole:
        raise ValueError("no metadata of a map")
    return FinishedMap(where, settings, facts["rows"], failed, failed_rows)


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
        self._kept: list[str] = []
        self._holds_all = self._is_chain = False

    def take(
        self, source: TableSource, settings: Settings, prompts: Sequence[Prompt], limit: int | None
    ) -> list[TablePrompt]:
        """Make sure that all rows are there, and that answers so far fit input and settings.

        Where rows are wanted that an earlier call left out, all are taken again: their answers are
        in the cache. `ConfigError` that shows the difference where answers were made with other
        settings.
        """
        directory, digest, table = self._directory, source.digest(), None
        stored, is_begun = directory.settings.get("records", {}), directory.steps_done(STAGE) > 0
        if wants_more(stored, limit) and is_begun:
            directory.check_settings(settings({**stored, "digest": digest}), CALLED)
            is_begun = False
        if not is_begun:  # nothing that is to stay was made with the settings that stand there
            made = (STAGE, "records")
            directory.invalidate({name: directory.manifest.chunks_with(name) for name in made})
            directory.forget_settings(list(directory.settings))
        if (finished := self._files.finished()) is not None:
            finished.refuse_others(settings, digest, limit)
        if directory.settings and directory.steps_done("records") == directory.n_chunks:
            count = stored["count"] if limit is None else min(limit, stored["count"])
            records, schema = {**stored, "count": count}, dict(directory.read("records", 0).schema)
        else:
            whole = source.open()
            table, schema = whole.head(limit), whole.schema
            more = {"more": True} if table.n_rows < whole.n_rows else {}
            records = {"count": table.n_rows, **more}
        steps = chain(prompts, schema, source.name)
        self._is_chain = bool(steps[0].name)
        self._holds_all = any(step.prompt.explode and not step.gathers for step in steps)
        self._kept = [c for c in steps[-1].after if self._holds_all or c not in schema]
        self._settings = settings({**records, "digest": digest})
        directory.check_settings(self._settings, CALLED)
        for chunk, frame in enumerate(table.chunks(self.chunk_rows) if table is not None else ()):
            if not directory.manifest.has(chunk, "records"):
                directory.write_parts(chunk, "records", {"records": frame})
        return steps

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

    def write(self, chunk: int, rows: pl.DataFrame, failures: pl.DataFrame) -> None:
        """Make the answers of all rows of a chunk count, which the columns of `rows` have."""
        frames = {COLUMNS: rows.select(self._kept), "failures": failures}
        self._directory.write_parts(chunk, STAGE, frames)

    def write_files(self) -> FinishedMap:
        """Put the parts together. The bytes depend on rows and settings alone."""
        failures = self._directory.scan("failures")
        kind = pl.format("{}: {}", "stage", "kind") if self._is_chain else pl.col("kind")
        by_kind = failures.group_by(kind.alias("kind")).len().sort("kind").collect()
        failed, n_failed = dict(by_kind.iter_rows()), failed_rows(self._directory)
        finished = FinishedMap(self._files.where, self._settings, self.n_rows, failed, n_failed)
        # Frame by frame: a scan of so many files reads too far ahead.
        rows = register_io_source(
            lambda *_: (self._whole(chunk) for chunk in range(self._directory.n_chunks)),
            schema=self._whole(0).schema,
        )
        row = pl.col("id").cast(pl.Int64).alias("row")
        columns = NO_CHAIN_FAILURES if self._is_chain else NO_FAILURES
        failures = failures.rename({"stage": "prompt", "index": "item"})
        self._files.write(finished, rows, failures.select(row, *columns.columns[1:]))
        return finished

    def _whole(self, chunk: int) -> pl.DataFrame:
        added = self._directory.read(COLUMNS, chunk)
        if self._holds_all:
            return added
        return pl.concat([self.read(chunk), added], how="horizontal")


def failed_rows(directory: RunDirectory) -> int:
    """The rows of the input with a failure."""
    return int(directory.scan("failures").select(pl.col("id").n_unique()).collect().item())


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
    finished = files.finished()
    if finished is None:
        raise ConfigError(f"{name}: there is no such file, and no work on it beside it")
    return {
        "out": str(files.where),
        **_counts(finished.rows, finished.rows, finished.failed_rows),
        "failures": _by_kind(finished),
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
        settings = directory.settings
        if "records" not in settings:
            return {**begun, "rows": None, "failures": []}
        n_rows, size = settings["records"]["count"], settings["chunk_records"]
        chunks = directory.manifest.chunks_with(STAGE)
        done = sum(min(size, n_rows - size * chunk) for chunk in chunks)
        done = max(done, rows_noted(note, n_rows))
        begun["failures"] = directory.failures_by_kind()
        return {**begun, **_counts(n_rows, done, failed_rows(directory))}


def rows_noted(note: JSON | None, n_rows: int) -> int:
    """The rows of `n_rows` that were done when a call left its note: answers in the cache count."""
    return note["rows"][0] if note is not None and note["rows"][1] == n_rows else 0


def _counts(total: int, done: int, failed: int) -> JSON:
    return {"rows": {"total": total, "done": done, "failed": failed, "left": total - done}}


def _by_kind(finished: FinishedMap) -> list[JSON]:
    kinds = [(*name.rpartition(": ")[::2], n) for name, n in sorted(finished.failed.items())]
    return [{"stage": stage or STAGE, "kind": kind, "count": n} for stage, kind, n in kinds]
