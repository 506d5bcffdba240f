"""A run directory: settings, finished parts, and the manifest that says which are finished.

    DIR/run.toml                               the settings that determine the results
    DIR/<table>/part-000000-<step>.parquet     one part a chunk and step that writes the table
    DIR/.state/manifest.log                    the finished steps of chunks, a line an entry; synced
    DIR/.state/plan.json                       the steps that a finished run has, for `status`
    DIR/.lock                                  held by the one process that writes

A part counts only when the manifest names it. So a kill at any moment leaves a step finished or
not, never half.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import polars as pl

from claimscore.atomic import os_errors, remove_files, write_text
from claimscore.csv_text import csv_text
from claimscore.errors import ClaimscoreError, ConfigError
from claimscore.file_lock import is_locked
from claimscore.object_stores import check_store, is_address
from claimscore.runs.folder import EVENTS, LOCK, MANIFEST, NOTE, PLAN, SUMMARY, RunFolder
from claimscore.runs.manifest import MOST_CHUNKS, Manifest
from claimscore.runs.parts import (
    ADVICE,
    SCORES_FILE,
    DamagedPart,
    damage_of,
    empty,
    read_part,
    remove_others,
    scan_parts,
    scan_scores,
    write_part,
    write_scores,
)
from claimscore.runs.remote import SEND_S, Objects, RemoteCopy, fetch, local_folder
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
from claimscore.tables import TABLES, wide_scores


class RunDirectory:
    """The one writer of a run directory; `RunDirectory.reader` gives a reader.

    A context manager: the lock is held from entering to leaving. Threads may write the parts of
    different steps at once; settings and results are for one thread. `path` is its path, and
    `state` a folder in it for files that concern the run alone.
    """

    def __init__(
        self,
        where: Path | str,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`where` is a path, or an address of an object store: then `path` is a folder of this
        machine, and `remote` its copy there, while this is open. `tell` hears of both."""
        self.remote: RemoteCopy | None = None
        self._address = str(where).rstrip("/") if is_address(where) else None
        self._tell = tell
        self.path = Path(where)
        if self._address is not None:
            check_store(self._address)
            self.path = local_folder(self._address)
        self.state = self.path / STATE
        self._folder = RunFolder(self.path)
        self._is_open = self._is_removed = False
        self._opened = contextlib.ExitStack()
        self._manifest: Manifest | None = None

    @classmethod
    def is_at(cls, where: Path | str) -> bool:
        """Whether there is a run directory."""
        return (cls(where)._fetched().path / RUN_TOML).exists()

    def _fetched(self) -> Self:
        """This, for reading: what lies at an address is brought here first."""
        if self._address is not None:
            fetch(self._address)
        return self

    @classmethod
    def reader(cls, where: Path | str) -> RunDirectory:
        """A view for `status` and `report`: takes no lock and changes nothing.

        It shows the steps that were finished when it was opened. `ConfigError` where files are
        damaged.
        """
        directory = cls(where)._fetched()
        directory._folder.refuse_links()
        if read_settings(directory.path) is None:
            raise ConfigError(f"{directory.name}: not a run directory; there is no run.toml in it")
        if damaged := directory._load().damaged:
            raise ConfigError(f"{damaged}; {ADVICE}")
        for part in directory.damaged():
            raise part
        return directory

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._folder.release)
            self._folder.open()
            if self._address is not None:
                self.remote = stack.enter_context(RemoteCopy(self._address, self._tell))
                sends = f"{self._address} gets a copy every {SEND_S:.0f} seconds"
                self._tell(f"working in {self.path}; {sends}")
            read_settings(self.path)  # a run of another version is refused before it is changed
            self._load().open_for_writing()
            self._folder.clean()
            remove_others(self.path, {part.name for part in self.manifest.parts()})
            self._is_open = True
            stack.push(self._end)
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._is_open = False
        self._opened.__exit__(*error)

    def _end(self, _: object, error: BaseException | None, __: object) -> None:
        """Leave nothing of a run that was refused before it made anything. `StoppedEarly` where the
        folder was moved away, which other errors may come from."""
        if isinstance(error, ConfigError) and not self._is_removed:
            self._folder.check()
        made = (self.path / RUN_TOML).exists() or self.manifest.all_steps()
        if isinstance(error, ConfigError) and not made:
            if self.remote is not None:
                with contextlib.suppress(ClaimscoreError):
                    self.remote.remove()
            self._folder.remove_traces()

    def remove(self) -> None:
        """Remove the run directory, for work whose result is elsewhere. After a kill in between,
        no step is finished, or all is as before."""
        self._for_writing()
        if self.remote is not None:
            self.remote.remove()
        self._folder.remove()
        self._is_removed = True

    def publish(self, name: str) -> Path | str:
        """Send a file that a reader has written to the address, where there is one; where it is."""
        if self._address is None:
            return self.path / name
        Objects(self._address).put(name, self.path / name)
        return f"{self._address}/{name}"

    @property
    def name(self) -> str:
        """Its name for people: its path or address."""
        return self._address or str(self.path)

    @property
    def title(self) -> str:
        """The last part of its path or address."""
        return self._address.rpartition("/")[2] if self._address else self.path.resolve().name

    @property
    def is_locked(self) -> bool:
        """Whether a process works in the run directory now."""
        if self._address is not None and RemoteCopy(self._address).is_elsewhere:
            return True
        return is_locked(self.path / LOCK)

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
        write_settings(self.path, agreed(stored, wanted, self.name, called) if stored else wanted)

    def replace_settings(self, settings: Mapping[str, Any]) -> None:
        """Write other settings into run.toml: nothing was made with those that go."""
        self._for_writing()
        write_settings(self.path, settings)

    def forget_settings(self, names: Iterable[str]) -> None:
        """Take settings out of run.toml (dotted names): nothing was made with them yet."""
        if stored := self.settings:
            self.replace_settings(without(stored, names))

    def plan(self) -> dict[str, Any]:
        """What `write_plan` stored. `ConfigError` where there is nothing, or it is damaged."""
        plan = self._read_json(PLAN)
        if plan is None:
            raise ConfigError(f"{self.path / PLAN}: missing; {ADVICE}")
        return plan

    def write_plan(self, plan: Mapping[str, object]) -> None:
        """Store what the run is to do, for commands that only look."""
        self._write_json(PLAN, plan)

    def _read_json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file; None where there is no file."""
        path = self.path / name
        try:
            with os_errors(path):
                value: dict[str, Any] | None
                value = json.loads(path.read_bytes()) if path.exists() else None
        except (ValueError, RecursionError) as exc:
            raise ConfigError(f"{path}: damaged: {exc}; {ADVICE}") from exc
        return value

    def _write_json(self, name: str, value: Mapping[str, object]) -> None:
        self._for_writing()
        write_text(self.path / name, json.dumps(value, indent=2, allow_nan=False) + "\n")

    # Finished steps

    def check_read(self) -> None:
        """`ConfigError` where the run has not read its records yet."""
        if not self.manifest.has(0, "records"):
            raise ConfigError(f"{self.name}: its records are not read yet; run it first")

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

    def write_parts(self, chunk: int, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        """Write the tables that a step made of a chunk, then the line that makes the step count. An
        empty frame has no file."""
        manifest = self._for_writing()
        filled = {table: rows for table, rows in frames.items() if rows.height}
        parts = [write_part(self.path, name, chunk, step, rows) for name, rows in filled.items()]
        manifest.add(chunk, step, parts)

    def invalidate(self, steps: Mapping[str, Collection[int]]) -> None:
        """Make steps of chunks undone, and remove their parts."""
        gone = self._for_writing().undo(steps)
        remove_files(self.path / part.name for part in gone)

    # Reading parts

    def read(self, table: str, *chunks: int) -> pl.DataFrame:
        """The rows of a table of these chunks, of each its steps in sorted order; empty where
        there are none. `DamagedPart` where a part is missing or damaged."""
        parts = [part for chunk in chunks for part in self.manifest.parts(table, chunk=chunk)]
        if parts:
            return pl.concat([read_part(self.path, part) for part in parts])
        return (empty(table) if table in TABLES else self.scan(table).head(0)).collect()

    def scan(self, table: str, step: str | None = None) -> pl.LazyFrame:
        """All finished rows of a table (or only a step's), without loading them: in the order of
        the input, of each chunk its steps in sorted order."""
        return scan_parts(self.path, table, self.manifest.parts(table, step))

    def damaged(self, *, deep: bool = False) -> list[DamagedPart]:
        """The parts that count and are missing or have another size than they were written with.

        With `deep` also those with other bytes: all are read.
        """
        damages = (damage_of(self.path, part, deep=deep) for part in self.manifest.parts())
        return [damage for damage in damages if damage is not None]

    # Results

    def write_scores(self, frames: Iterable[pl.DataFrame]) -> None:
        """Replace scores.parquet by these rows; the bytes depend on the rows alone."""
        self._for_writing()
        write_scores(self.path, frames, self.state / "scores")

    def write_csv(self) -> None:
        """Write the scores as scores.csv beside scores.parquet, a row a record."""
        rows = pl.read_parquet(self.path / SCORES_FILE)
        write_text(self.path / "scores.csv", csv_text(wide_scores(rows)))
        self.publish("scores.csv")

    def scores(self) -> pl.LazyFrame | None:
        """The rows of scores.parquet, None where there is none; `ConfigError` where they are not
        what was written."""
        return scan_scores(self.path)

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Replace summary.json; `ValueError` for a NaN in it."""
        self._write_json(SUMMARY, summary)

    def summary(self) -> dict[str, Any]:
        """The summary that was written last; empty before the first time. `ConfigError` where it
        is damaged."""
        return self._read_json(SUMMARY) or {}

    # Progress for people

    def event(self, kind: str, **fields: object) -> None:
        """Append a line to events.jsonl with the time in UTC; for people, no command reads it."""
        self._refuse_reader()
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "kind": kind, **fields}, default=str)
        path = self.path / EVENTS
        with os_errors(path), contextlib.suppress(FileNotFoundError), path.open("a") as stream:
            stream.write(f"{line}\n")

    def write_note(self, note: Mapping[str, object]) -> None:
        """Leave the progress of the run for `status`; it is not synced, and a full disk does not
        stop the run here."""
        self._refuse_reader()
        with contextlib.suppress(OSError):
            new = (self.path / NOTE).with_suffix(".tmp")
            new.write_text(json.dumps({"at": time.time(), **note}))
            new.replace(self.path / NOTE)

    def note(self) -> dict[str, Any] | None:
        """The last note, with `at`, the time it was written; None where there is none."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            note: dict[str, Any] = json.loads((self.path / NOTE).read_bytes())
            return note
        return None

    def _load(self) -> Manifest:
        self._manifest = manifest = Manifest(self.path / MANIFEST)
        if manifest.is_missing and (self.path / RUN_TOML).exists():
            manifest.damaged = f"{self.path / MANIFEST}: missing"
        return manifest

    def _for_writing(self) -> Manifest:
        self._refuse_reader()
        self._folder.check()
        if self.remote is not None:
            self.remote.check()
        return self.manifest

    def _refuse_reader(self) -> None:
        if not self._is_open:
            raise RuntimeError("the run directory is not open for writing: use `with`")
