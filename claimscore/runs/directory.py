"""A run directory: settings, finished parts, and the manifest that says which are finished.

    DIR/run.toml                               the settings that determine the results
    DIR/records/part-000000.parquet            one part a chunk of records
    DIR/<table>/part-000000-<step>.parquet     one part a chunk and step that writes the table
    DIR/.state/manifest.log                    the finished steps of chunks, a line an entry; synced
    DIR/.state/plan.json                       the steps that a finished run has, for `status`
    DIR/.lock                                  held by the one process that writes

Parts of many finished chunks are compacted into larger files, so the number of files stays small
however many records there are.

A part counts only when the manifest names it. So a kill at any moment leaves a step finished or
not, never half: it is done again and overwrites the files there.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import polars as pl

from claimscore.atomic import os_errors, write_text
from claimscore.errors import ConfigError
from claimscore.runs.compaction import Compactor
from claimscore.runs.damage import ADVICE
from claimscore.runs.folder import NOTE, RunFolder
from claimscore.runs.manifest import Manifest
from claimscore.runs.manifest_log import FileLog
from claimscore.runs.parts import (
    MOST_CHUNKS,
    ChunkFiles,
    DamagedPart,
    PartFiles,
    checked,
    empty,
    spans,
)
from claimscore.runs.scores_file import check_scores, write_csv, write_scores
from claimscore.runs.settings_file import (
    RUN_TOML,
    STATE,
    agreed,
    as_stored,
    read_settings,
    unusable,
    without,
    write_settings,
)
from claimscore.storage import is_remote
from claimscore.tables import TABLES

_PLAN = f"{STATE}/plan.json"

#: How often a reader looks at a folder in which files seem to be damaged.
_LOOKS = 3


class RunDirectory:
    """The one writer of a run directory; `RunDirectory.reader` gives a reader.

    A context manager: the lock is held from entering to leaving. Threads may write the parts of
    different steps at once; settings and results are for one thread. `path` is its
    path, and `state` a folder in it for files that concern the run alone.
    """

    def __init__(self, where: Path | str) -> None:
        """Raises `ConfigError` for an address of an object store."""
        if is_remote(where):
            raise ConfigError(f"{where}: a run directory is a folder of this machine; name a path")
        self.path = Path(where)
        self.state = self.path / STATE
        self._folder = RunFolder(self.path)
        self._files = PartFiles(self.path)
        self._is_open = False
        self._manifest: Manifest | None = None
        self._compactor: Compactor

    @classmethod
    def is_at(cls, where: Path | str) -> bool:
        """Whether there is a run directory."""
        return (cls(where).path / RUN_TOML).exists()

    @classmethod
    def reader(cls, where: Path | str) -> RunDirectory:
        """A view for `status` and `report`: takes no lock and changes nothing.

        It shows the steps that were finished when it was opened. `ConfigError` where files are
        damaged.
        """
        directory = cls(where)
        directory._folder.refuse_links()
        if read_settings(directory.path) is None:
            raise ConfigError(f"{directory.name}: not a run directory; there is no run.toml in it")
        manifest = directory._load()
        if manifest.is_missing and any(directory._files.names()):
            raise ConfigError(
                f"{directory.name} is damaged: its manifest is lost; run the same command again "
                "that began it (answers are in the cache)"
            )
        directory._refuse_damage()
        return directory

    def _refuse_damage(self) -> None:
        """`ConfigError` that names the damage; a writer at work may move files meanwhile."""
        for _ in range(_LOOKS):
            damaged = (f"{part.address}: {part.why}" for part in self.damaged())
            found = [*self.manifest.damaged, *damaged]
            if not found:
                return
            self._load()
        more = f" (and {len(found) - 1:,} more)" if len(found) > 1 else ""
        raise ConfigError(f"{found[0]}{more}; {ADVICE}")

    def __enter__(self) -> Self:
        self._folder.open()
        try:
            manifest = self._load()
            manifest.open_for_writing()
            self._folder.clean()
            self._files.remove_others(manifest.parts())
            self._compactor = Compactor(manifest, self._files)
            self._is_open = True
        except BaseException:
            self._is_open = False
            self._folder.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        try:
            made = (self.path / RUN_TOML).exists() or self.manifest.all_steps()
            if isinstance(error, ConfigError) and not made:
                self._folder.remove_traces()
        finally:
            self._folder.release()

    def remove(self) -> None:
        """Remove the run directory, for work whose result is elsewhere. After a kill in between,
        no step is finished, or all is as before."""
        self._for_writing()
        self._folder.remove()

    @property
    def name(self) -> str:
        """Its name for people: its path."""
        return str(self.path)

    @property
    def title(self) -> str:
        """The last part of its path."""
        return self.path.resolve().name

    @property
    def is_locked(self) -> bool:
        """Whether a process works in the run directory now."""
        return self._folder.is_locked

    # Settings

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of run.toml; empty before the first write. `ConfigError` where run.toml is
        damaged, or missing from finished work."""
        settings = read_settings(self.path)
        if settings is None and self._manifest is not None and self._manifest.all_steps():
            raise unusable(self.path, "missing")
        return settings or {}

    @property
    def n_chunks(self) -> int:
        """The number of chunks that the run's records make, by the settings."""
        settings = self.settings
        count, size = settings["records"].get("count"), settings.get("chunk_records")
        if isinstance(count, int) and isinstance(size, int) and 0 <= count <= size * MOST_CHUNKS:
            return -(-count // size) if count else 0
        raise unusable(self.path, "not what was written")

    def check_settings(
        self, settings: Mapping[str, object], called: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Write run.toml the first time; later refuse settings that differ from it.

        Lists and tables under the table `additive` may grow; their union is stored. `called` has
        the option of a setting, by its dotted name.
        """
        self._for_writing()
        wanted, stored = as_stored(settings), self.settings
        merged = agreed(stored, wanted, self.name, called) if stored else wanted
        if merged != stored:
            write_settings(self.path, merged)

    def forget_settings(self, names: Iterable[str]) -> None:
        """Take settings out of run.toml (dotted names): nothing was made with them yet."""
        self._for_writing()
        stored = self.settings
        remaining = without(stored, names)
        if remaining != stored:
            write_settings(self.path, remaining)

    def plan(self) -> dict[str, Any]:
        """What `write_plan` stored. `ConfigError` where there is nothing, or it is damaged."""
        plan = self._json(_PLAN)
        if plan is None:
            raise ConfigError(f"{self.path / _PLAN}: missing; {ADVICE}")
        return plan

    def write_plan(self, plan: Mapping[str, object]) -> None:
        """Store what the run is to do, for commands that only look."""
        self._for_writing()
        write_text(self.path / _PLAN, json.dumps(plan, indent=2) + "\n")

    def _json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file; None where there is no file."""
        path = self.path / name
        try:
            with os_errors(path):
                content: dict[str, Any] | None
                content = json.loads(path.read_bytes()) if path.exists() else None
        except (ValueError, RecursionError) as exc:
            raise ConfigError(f"{path}: damaged: {exc}; {ADVICE}") from exc
        return content

    # Finished steps

    @property
    def manifest(self) -> Manifest:
        """Which steps of which chunks are finished, and where their rows are."""
        if self._manifest is None:
            raise RuntimeError("the run directory is not open: use `with` or RunDirectory.reader")
        return self._manifest

    def steps_done(self, step: str) -> int:
        """For how many chunks the step is finished."""
        return len(self.manifest.chunks_with(step))

    def failures_by_kind(self) -> list[dict[str, Any]]:
        """How many failures there are of which stage and kind."""
        rows = self.scan("failures").group_by("stage", "kind").len("count")
        return rows.sort("stage", "kind").collect(engine="streaming").to_dicts()

    # Writing parts

    def chunk(self, number: int) -> ChunkFiles:
        """The tables of one chunk, for the worker at that chunk."""
        return ChunkFiles(
            number, lambda table: self.read(table, number), partial(self.write_parts, number)
        )

    def write_parts(self, chunk: int, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        """Write the tables that a step made of a chunk, then the line that makes the step count.

        A step that was finished before is replaced whole: it is invalidated first, so a kill in
        between leaves it undone, never half old and half new. An empty frame has no file.
        """
        self._for_writing()
        frames = checked(frames)
        self.forget(chunk, step)
        self._files.remove(self.manifest.add(self._files.write(chunk, step, frames)))

    def write_chunks(
        self, first: int, step: str, table: str, frames: Sequence[pl.DataFrame]
    ) -> None:
        """Write the rows of several chunks in a row, from `first` on, into one file; their step,
        which writes this table alone, is then finished for all of them."""
        self._for_writing()
        for chunk in range(first, first + len(frames)):
            self.forget(chunk, step)
        self._compactor.write(first, step, table, frames)

    def forget(self, chunk: int, step: str) -> None:
        """Make a finished step undone and remove its parts; nothing where it is not finished.

        Its rows in a compacted part are skipped from now on, and left out when that is compacted
        again.
        """
        manifest = self._for_writing()
        if manifest.has(chunk, step):
            self._files.remove(manifest.invalidate((step, chunk, chunk + 1)))

    def seal(self, *chunks: int) -> None:
        """Allow compaction: this call writes no more of these chunks, and reads them no more one
        by one. Threads may call it."""
        self._for_writing()
        self._compactor.seal(chunks)

    # Reading parts

    def read(self, table: str, *chunks: int) -> pl.DataFrame:
        """The rows of a table of these chunks, of each its steps in sorted order; empty where
        there are none. `DamagedPart` where a part is missing or damaged."""
        rows = self.manifest.ranges(table, chunks)
        if not rows:
            return self._no_rows(table)
        try:
            return self._files.read(table, rows)
        except DamagedPart:
            if self._is_open:
                raise
        # The manifest of a reader is a moment old: the writer may have compacted the parts.
        return self._files.read(table, self._load().ranges(table, chunks))

    def scan(self, table: str, step: str | None = None) -> pl.LazyFrame:
        """All finished rows of a table (or only a step's), without loading them: a step's rows in
        the order of the input; several steps take turns part by part."""
        return self._files.scan(table, self.manifest.all_ranges(table, step))

    def _no_rows(self, table: str) -> pl.DataFrame:
        """No row, with the table's columns; of the records those of the first chunk with rows."""
        if table in TABLES:
            return empty(table).collect()
        return self.scan(table).head(0).collect()

    # Damage

    def damaged(self, *, deep: bool = False) -> list[DamagedPart]:
        """The parts that count and are missing or have another size than they were written with.

        With `deep` also those with other bytes: all are read.
        """
        return self._files.damaged(sorted(self.manifest.parts()), deep=deep)

    def compare(self, chunks: Iterable[int]) -> None:
        """`DamagedPart` where a part with rows of these chunks is not what was written."""
        for part in self.manifest.parts(chunks):
            self._files.compare(part)

    def invalidate(self, steps: Mapping[str, Sequence[int]]) -> None:
        """Make steps of chunks undone, in the order given: their parts are damaged, or were made
        from damaged ones."""
        manifest = self._for_writing()
        invalid = [(step, *span) for step, chunks in steps.items() for span in spans(chunks)]
        if invalid:
            self._files.remove(manifest.invalidate(*invalid))
            self._compactor = Compactor(manifest, self._files)

    # Results

    def write_scores(self, frames: Iterable[pl.DataFrame]) -> None:
        """Replace scores.parquet by these rows; the bytes depend on the rows alone."""
        self._for_writing()
        write_scores(self.path, frames, self.state / "scores")

    def write_csv(self) -> None:
        """Write the scores as scores.csv beside scores.parquet, a row a record."""
        write_csv(self.path)

    def check_scores(self) -> None:
        """`ConfigError` where scores.parquet is not what was written."""
        check_scores(self.path)

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Replace summary.json; `ValueError` for a NaN in it."""
        self._for_writing()
        text = json.dumps(summary, indent=2, allow_nan=False)
        write_text(self.path / "summary.json", text + "\n")

    def summary(self) -> dict[str, Any]:
        """The summary that was written last; empty before the first time. `ConfigError` where it
        is damaged."""
        return self._json("summary.json") or {}

    # Progress for people

    def event(self, kind: str, **fields: object) -> None:
        """Append a line to events.jsonl with the time in UTC; for people, no command reads it."""
        self._refuse_reader()
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "kind": kind, **fields}, default=str)
        self._folder.add_event(line.encode() + b"\n")

    def write_note(self, note: Mapping[str, object]) -> None:
        """Leave the progress of the run for `status`; it is not synced, and a full disk does not
        stop the run here."""
        self._refuse_reader()
        self._folder.write_note(json.dumps({"at": time.time(), **note}).encode())

    def note(self) -> dict[str, Any] | None:
        """The last note, with `at`, the time it was written; None where there is none."""
        try:
            note: dict[str, Any] = json.loads((self.path / NOTE).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return note

    def _load(self) -> Manifest:
        try:
            n_chunks = self.n_chunks
        except (ConfigError, KeyError):  # not yet written, or an error of what uses it
            n_chunks = MOST_CHUNKS
        self._manifest = Manifest(FileLog(self.path), n_chunks)
        return self._manifest

    def _for_writing(self) -> Manifest:
        self._refuse_reader()
        self._folder.check()
        return self.manifest

    def _refuse_reader(self) -> None:
        if not self._is_open:
            raise RuntimeError("the run directory is not open for writing: use `with`")
