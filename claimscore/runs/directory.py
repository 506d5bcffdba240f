"""A run directory: settings, finished parts, and the manifest that says which are finished.

    DIR/run.toml                               what determines the results
    DIR/records/part-000000.parquet            one part a chunk of records
    DIR/<table>/part-000000-<step>.parquet     one part a chunk and step that writes the table
    DIR/.state/manifest.jsonl                  one line a finished (chunk, step); synced
    DIR/.state/options.json                    how the run was called
    DIR/.lock                                  held by the one process that writes

Parts of many chunks that are done are merged into larger files (`merging`), so the number of files
stays small however many records there are.

A part counts only when the manifest names it. A kill at any moment therefore leaves
a step finished or not, never half: it is done again and writes over what is there.
"""

from __future__ import annotations

import datetime
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import polars as pl

from claimscore.errors import ConfigError
from claimscore.runs import settings_files
from claimscore.runs.chunk_files import ChunkFiles, Lies, WriterChunk, own, plain
from claimscore.runs.damage import ADVICE, DamagedPart
from claimscore.runs.home import NOTE, STATE, Home, LocalHome
from claimscore.runs.manifest import Manifest
from claimscore.runs.merging import Merging
from claimscore.runs.parts import (
    SINGLE_STEP_TABLES,
    PartFiles,
    checked,
    empty,
)
from claimscore.runs.scores import SCORES_FILE, check_sum, keep_sum, sink_scores
from claimscore.runs.settings import agreed, as_stored, without
from claimscore.runs.store_home import StoreHome
from claimscore.runs.undoing import Undoing
from claimscore.storage import Storage, is_remote
from claimscore.tables import TABLES

_OPTIONS = f"{STATE}/options.json"

#: How often a folder is looked at in which files seem to be damaged while it is written to.
_LOOKS = 4


class RunDirectory:
    """The one writer of a run directory; `RunDirectory.reader` gives a reader.

    A context manager: the lock is held from entering to leaving. Threads may write the
    parts of different steps at once; settings and results are for one thread.
    """

    def __init__(self, where: Path | str, tell: Callable[[str], None] = lambda _: None) -> None:
        """`where` is a path or the address of an object store; `tell` hears what people who wait
        for the lock should know."""
        self._home = _home(where, tell)
        self._parts = PartFiles(self._home.storage)
        self._is_open = False
        self._manifest_or_none: Manifest | None = None
        self._merging_or_none: Merging | None = None

    @classmethod
    def is_at(cls, where: Path | str) -> bool:
        """Whether there is a run directory."""
        return settings_files.are_there(cls(where).storage)

    @classmethod
    def reader(cls, where: Path | str) -> RunDirectory:
        """A view for `status` and `report`: takes no lock and changes nothing.

        It shows what was finished when it was opened. `ConfigError` where files are damaged.
        """
        directory = cls(where)
        if settings_files.read(directory.storage).settings is None:
            raise ConfigError(f"{directory.name}: not a run directory; there is no run.toml in it")
        directory._load()
        directory._refuse_damage()
        return directory

    def _refuse_damage(self) -> None:
        """`ConfigError` that names what is damaged; a writer at work may move files meanwhile."""
        seen: list[str] = []
        for _ in range(_LOOKS):
            found = [
                *self.damaged_lines,
                *(f"{part.address}: {part.why}" for part in self.damaged()),
            ]
            if not found:
                return
            if found == seen:
                break
            seen = found
            self._load()
        more = f" (and {len(seen) - 1:,} more)" if len(seen) > 1 else ""
        raise ConfigError(f"{seen[0]}{more}; {ADVICE}")

    def __enter__(self) -> Self:
        self._home.open()
        try:
            manifest = self._load()
            manifest.open_for_writing()
            self._home.clean()
            self._merging_or_none = Merging(manifest, self._parts)
            self._merging_or_none.clean()
            self._is_open = True
            self._undoing.drop_all_kept()
        except BaseException:
            self._is_open = False
            self._home.release()
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
            made = settings_files.are_there(self.storage) or self.all_steps()
            if isinstance(error, ConfigError) and not made:
                self._home.remove_traces()
        finally:
            self._home.release()

    def remove(self) -> None:
        """Take the run directory away, for work whose result lies elsewhere. After a kill in
        between, no step is finished, or all is as before."""
        self._for_writing()
        self._home.remove()

    @property
    def storage(self) -> Storage:
        """The files of the run directory."""
        return self._home.storage

    @property
    def name(self) -> str:
        """Its name for people: its path."""
        return self._home.storage.name

    @property
    def title(self) -> str:
        """The last part of its path or address."""
        local = self.storage.local
        return self.name.rpartition("/")[2] if local is None else local.resolve().name

    @property
    def path(self) -> Path:
        """Its path on a disk."""
        path = self.storage.local
        if path is None:
            raise RuntimeError(f"{self.name} is not on a disk")
        return path

    @property
    def state(self) -> Path:
        """A folder on this machine for what must outlive the process and is private to
        this run."""
        return self._home.state

    # Settings

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of run.toml, or of its copy where it is damaged; empty before the first
        write."""
        return settings_files.read(self.storage).settings or {}

    def mend_settings(self) -> str:
        """Write run.toml or its copy again where one of them is not what was written; says what
        was wrong with run.toml, empty where nothing was.

        `ConfigError` where there is work whose settings are lost.
        """
        self._for_writing()
        found = settings_files.read(self.storage)
        if found.settings is not None and not found.whole:
            settings_files.write(self.storage, found.settings)
        if found.settings is None and self.all_steps():
            raise ConfigError(
                f"{self.storage.address('run.toml')}: missing, and its copy too, so it is not "
                "known what this run was made with; name another --out and run again (answers are "
                "in the cache)"
            )
        return found.damage

    @property
    def is_locked(self) -> bool:
        """Whether a process works in the folder now."""
        return self._home.is_locked()

    @property
    def n_chunks(self) -> int:
        """How many chunks the run's records make, by the settings."""
        settings = self.settings
        return -(-int(settings["records"]["count"]) // int(settings["chunk_records"]))

    def check_settings(
        self, settings: Mapping[str, object], called: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Write run.toml the first time; later refuse settings that differ from it.

        Lists and tables under the table `additive` may grow; their union is stored. `called`
        is what users call a setting, by its dotted name.
        """
        self._for_writing()
        wanted, stored = as_stored(settings), self.settings
        merged = agreed(stored, wanted, self.name, called) if stored else wanted
        if merged != stored:
            settings_files.write(self.storage, merged)

    def forget_settings(self, names: Iterable[str]) -> None:
        """Take settings out of run.toml (dotted names): nothing was made with them yet."""
        self._for_writing()
        stored = self.settings
        remaining = without(stored, names)
        if remaining != stored:
            settings_files.write(self.storage, remaining)

    def options(self) -> dict[str, Any]:
        """The options that `write_options` stored: how the run was called, results or not."""
        path = self.storage.address(_OPTIONS)
        try:
            options: dict[str, Any] = json.loads(self.storage.read(_OPTIONS))
        except FileNotFoundError as exc:
            raise ConfigError(f"{path}: {exc.strerror}; {ADVICE}") from exc
        except ValueError as exc:
            raise ConfigError(f"{path}: damaged: {exc}; {ADVICE}") from exc
        return options

    def write_options(self, options: Mapping[str, object]) -> None:
        """Store how the run was called, for commands that go on with it."""
        self._for_writing()
        self.storage.write(_OPTIONS, (json.dumps(options, indent=2) + "\n").encode())

    # Parts

    def has(self, chunk: int, step: str) -> bool:
        """Whether the step is finished for this chunk."""
        return self._manifest.parts(chunk, step) is not None

    def steps(self, chunk: int) -> frozenset[str]:
        """The steps that are finished for this chunk."""
        return self._manifest.steps(chunk)

    def steps_done(self, step: str) -> int:
        """For how many chunks the step is finished."""
        return self._manifest.steps_done(step)

    def all_steps(self) -> frozenset[str]:
        """The steps that are finished for at least one chunk."""
        return self._manifest.all_steps()

    def counts(self) -> dict[str, int]:
        """Rows of each table over all finished steps."""
        return self._manifest.counts()

    def chunk_counts(self, chunk: int) -> Counter[str]:
        """Rows of each table that the finished steps of a chunk wrote."""
        return self._manifest.chunk_counts(chunk)

    def chunk(self, number: int) -> ChunkFiles:
        """The tables of one chunk, for who works on it."""
        return WriterChunk(self, number)

    def finished(self, chunk: int) -> dict[str, dict[str, Lies]]:
        """The finished steps of a chunk, each with where its rows lie by table, for a
        `WorkerChunk`."""
        return {
            step: {table: plain(place) for table, place in places.items()}
            for step, places in self._manifest.finished(chunk).items()
        }

    def write_parts(self, chunk: int, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        """Write what a step made of a chunk, then the manifest line that makes it count.

        A step that was finished before is replaced whole: it is struck off first, so a kill
        in between leaves it undone, never half old and half new. An empty frame has no file.
        """
        manifest = self._for_writing()
        for table in checked(step, frames):
            self._refuse_second_writer(table, chunk, step)
        self.forget(chunk, step)
        manifest.finish(chunk, step, *self._parts.write(chunk, step, frames))
        self._undoing.drop_kept(chunk)

    def finish_written(self, chunk: int, step: str, lies: Mapping[str, Lies]) -> None:
        """Make a step count whose parts another process has written (`WorkerChunk.written`).

        Nothing where they count already, or lie in a merged file by now.
        """
        manifest = self._for_writing()
        for table in lies:
            self._refuse_second_writer(table, chunk, step)
        written, known = own(lies), self.finished(chunk).get(step)
        if written is None or (known is not None and own(known) in (None, written)):
            return
        manifest.finish(chunk, step, *written)
        self._undoing.drop_kept(chunk)

    def write_chunks(
        self, first: int, step: str, table: str, frames: Sequence[pl.DataFrame]
    ) -> None:
        """Write the rows of several chunks in a row, from `first` on, into one file; their step,
        which writes this table alone, is then finished for all of them."""
        self._for_writing()
        for chunk in range(first, first + len(frames)):
            self._refuse_second_writer(table, chunk, step)
            self.forget(chunk, step)
        self._merging.write(first, step, table, frames)

    def forget(self, chunk: int, step: str) -> None:
        """Make a finished step undone and remove its parts; nothing where it is not finished.

        Rows in a merged file are passed over from now on, and left out when it is merged again.
        """
        manifest = self._for_writing()
        parts = manifest.parts(chunk, step)
        if parts is None:
            return
        manifest.strike(chunk, step)
        self._parts.remove(chunk, step, [table for table, _ in parts])

    # Damage

    @property
    def damaged_lines(self) -> list[str]:
        """The lines of the manifest that could not be read when it was opened: what they said is
        lost. A writer has taken these lines out."""
        return self._manifest.damaged

    def damaged(self, *, deep: bool = False) -> list[DamagedPart]:
        """The parts that count and are missing or have another size than they were written with.

        With `deep`, on a disk, also those with other bytes: all are read.
        """
        return [
            part
            for table in sorted(self.counts())
            for part in self._parts.damaged(table, self._manifest.all_places(table), deep=deep)
        ]

    def chunks_of(self, part: DamagedPart) -> list[int]:
        """The chunks whose rows lie in a part: what its step wrote for these is to be made again,
        in its other tables too."""
        return self._manifest.together_with(part.place)

    def chunks_with(self, step: str) -> list[int]:
        """The chunks for which a step is finished."""
        return self._manifest.members(step)

    def compare(self, chunks: Iterable[int]) -> None:
        """`DamagedPart` where a part with rows of these chunks is not what was written, as far as
        that is seen on a disk."""
        for chunk in chunks:
            for places in self._manifest.finished(chunk).values():
                for table, place in places.items():
                    if place.rows:
                        self._parts.compare(table, place)

    def strike(self, steps: Mapping[str, Sequence[int]], keep: Collection[str] = ()) -> int:
        """Make steps of chunks undone whose parts are damaged, or were made from such.

        Of the steps in `keep` the failures that can be read stay, as those of a step of their own
        (`KEPT`), until the step is finished again. Returns for how many chunks some could not be
        read. The steps are struck off in the order given.
        """
        manifest = self._for_writing()
        lost = self._undoing.strike(steps, keep, self._merging)
        if steps:
            self._merging_or_none = Merging(manifest, self._parts)
            self._merging.clean()
        return lost

    def settle(self, *chunks: int) -> None:
        """Nothing more will be written of these chunks, nor read of them one by one, in this
        call: their parts may be merged into larger files. Threads may call it."""
        self._for_writing()
        self._merging.settle(chunks)

    def read(self, table: str, *chunks: int) -> pl.DataFrame:
        """The rows of a table of these chunks, of each its steps in sorted order; empty where
        there are none."""
        places = self._manifest.places(table, chunks)
        if not places:
            return self._no_rows(table)
        try:
            return self._parts.read(table, places)
        except DamagedPart:
            if self._is_open:
                raise
        # A reader's manifest is that of a moment ago: the writer may have merged the parts.
        return self._parts.read(table, self._load().places(table, chunks))

    def scan(self, table: str, step: str | None = None) -> pl.LazyFrame:
        """All finished rows of a table (or only a step's), without loading them: a step's rows in
        the input's order; several steps take turns file by file."""
        return self._parts.scan(table, self._manifest.all_places(table, step))

    def _no_rows(self, table: str) -> pl.DataFrame:
        """No row, with the table's columns; of the records those of the first chunk with rows."""
        if table in TABLES:
            return empty(table).collect()
        return self.scan(table).head(0).collect()

    def _refuse_second_writer(self, table: str, chunk: int, step: str) -> None:
        others = [name for name in self._manifest.writers(table, chunk) if name != step]
        if others and table in SINGLE_STEP_TABLES:
            raise ValueError(f"{table}: chunk {chunk} was written by step {others[0]}, not {step}")

    # Results

    def write_scores(self, frames: Iterable[pl.DataFrame]) -> None:
        """Replace scores.parquet by these rows; the bytes depend on the rows alone."""
        self._for_writing()
        with self.writing(SCORES_FILE) as path:
            sink_scores(frames, path, self.state / "scores", self.storage.address(SCORES_FILE))
            keep_sum(self.storage, path)

    def check_scores(self) -> None:
        """`ConfigError` where scores.parquet is not what was written; of one in a store only its
        size is looked at."""
        check_sum(self.storage)

    def writing(self, name: str) -> AbstractContextManager[Path]:
        """A path on this machine; what is written there takes the file's place when the block
        ends, and nothing does when it raises."""
        return self._home.writing(name)

    def mirror(self, name: str, content: Callable[[], bytes | None]) -> None:
        """Keep a file of the state folder in the store too, for a call on another machine.

        `content` gives its bytes, None where they have not changed; a thread calls it every few
        seconds and when the run ends. Nothing to do on a disk, where the state folder is in the run
        directory.
        """
        self._for_writing()
        self._home.mirror(name, content)

    def write_through(self) -> None:
        """Return once the store holds all that `mirror` gives now. Raises as a write does."""
        self._for_writing()
        self._home.write_through()

    @property
    def machine(self) -> str:
        """A name of this machine that no other has; empty for a run on a disk."""
        return self._home.machine

    def mirrored(self, name: str) -> bytes | None:
        """The bytes that a machine mirrored last; None on a disk, or without any."""
        return self._home.mirrored(name)

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Replace summary.json; a NaN in it is an error of the caller."""
        self._for_writing()
        text = json.dumps(summary, indent=2, allow_nan=False)
        self.storage.write("summary.json", (text + "\n").encode())

    def summary(self) -> dict[str, Any]:
        """The summary that was written last; empty before the first time. `ConfigError` where it
        is damaged."""
        try:
            found: dict[str, Any] = json.loads(self.storage.read("summary.json"))
        except FileNotFoundError:
            return {}
        except ValueError as exc:
            address = self.storage.address("summary.json")
            raise ConfigError(f"{address}: damaged: {exc}; {ADVICE}") from exc
        return found

    def event(self, kind: str, **fields: object) -> None:
        """Append a line to events.jsonl with the time in UTC; for people, nothing reads it back."""
        self._refuse_reader()
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "kind": kind, **fields}, default=str)
        self._home.add_event(line.encode() + b"\n")

    def write_note(self, note: Mapping[str, object]) -> None:
        """Leave word of how far the run is for `status`; not synced, and a disk
        that is full does not stop the run here."""
        self._refuse_reader()
        self._home.write_note(json.dumps({"at": time.time(), **note}).encode())

    def note(self) -> dict[str, Any] | None:
        """The last note, with `at`, the time it was written; None where there is none."""
        try:
            note: dict[str, Any] = json.loads(self.storage.read(f"{STATE}/{NOTE}"))
        except (OSError, ValueError):
            return None
        return note

    @property
    def _manifest(self) -> Manifest:
        if self._manifest_or_none is None:
            raise RuntimeError("the run directory is not open: use `with` or RunDirectory.reader")
        return self._manifest_or_none

    @property
    def _undoing(self) -> Undoing:
        return Undoing(self._manifest, self._parts)

    @property
    def _merging(self) -> Merging:
        assert self._merging_or_none is not None, "open for writing"
        return self._merging_or_none

    def _load(self) -> Manifest:
        self._manifest_or_none = Manifest(self._home.journal())
        return self._manifest_or_none

    def _for_writing(self) -> Manifest:
        self._refuse_reader()
        self._home.check()
        return self._manifest

    def _refuse_reader(self) -> None:
        if not self._is_open:
            raise RuntimeError("the run directory is not open for writing: use `with`")


def _home(where: Path | str, tell: Callable[[str], None]) -> Home:
    return StoreHome(str(where), tell) if is_remote(where) else LocalHome(Path(where))
