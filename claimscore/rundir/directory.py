"""A run directory: settings, finished parts, and the manifest that says which are finished.

    DIR/run.toml                               what determines the results
    DIR/records/part-000000.parquet            one part a chunk of records
    DIR/<table>/part-000000-<step>.parquet     one part a chunk and step that writes the table
    DIR/.state/manifest.jsonl                  one line a finished (chunk, step); synced
    DIR/.state/options.json                    how the run was called
    DIR/.lock                                  held by the one process that writes

A part counts only when the manifest names it. A kill at any moment therefore leaves
a step finished or not, never half: it is done again and writes over what is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import io
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import polars as pl

from claimscore.atomic import (
    atomic_path,
    os_errors,
    reason,
    remove_leftovers,
    write_bytes,
    write_text,
)
from claimscore.config import read_toml
from claimscore.errors import ConfigError
from claimscore.rundir.chunk_files import ChunkFiles
from claimscore.rundir.manifest import Manifest
from claimscore.rundir.settings import as_stored, merge, to_toml, without
from claimscore.tables import SCORES, TABLES

#: Tables that one step alone writes: their parts do not name it.
SINGLE_STEP_TABLES = frozenset({"records"})

SCORES_ROW_GROUP = 50_000

#: How often, and at which distance, a locked folder is tried before it counts as in use.
_LOCK_TRIES, _LOCK_WAIT_S = 5, 0.02

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_STEP_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
_OWN_NAMES = frozenset(
    (
        *TABLES,
        *("records", "columns"),
        "embeddings",  # a table of older runs
        *("run.toml", "events.jsonl", "scores.parquet", "summary.json", "report.html"),
    )
)
_TOML_HEADER = "# Written by claimscore: everything that determines the results of this run.\n"


class RunDirectory:
    """The one writer of a run directory; `RunDirectory.reader` gives a reader.

    A context manager: the lock is held from entering to leaving. Threads may write the
    parts of different steps at once; settings and results are for one thread.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock: int | None = None
        self._manifest_or_none: Manifest | None = None

    @classmethod
    def reader(cls, path: Path | str) -> RunDirectory:
        """A view for `status` and `report`: takes no lock and changes nothing.

        It shows what was finished when it was opened.
        """
        directory = cls(path)
        if not (directory.path / "run.toml").is_file():
            raise ConfigError(f"{path}: not a run directory; there is no run.toml in it")
        directory._load()
        return directory

    def __enter__(self) -> Self:
        with os_errors(self.path):
            _refuse_other_folder(self.path)
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.state.mkdir(mode=0o700, exist_ok=True)
        self._lock = _take_lock(self.path)
        try:
            self._load().truncate()
            self._clean()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, ConfigError) and not (self.path / "run.toml").exists():
            self._remove_traces()
        self._release()

    def _remove_traces(self) -> None:
        """A run that was refused before anything was made leaves no folder behind."""
        shutil.rmtree(self.state, ignore_errors=True)
        (self.path / ".lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: it was there before, or is not ours
            self.path.rmdir()

    @property
    def state(self) -> Path:
        """A folder for what must outlive the process and is nobody else's business."""
        return self.path / ".state"

    # Settings

    @property
    def settings(self) -> dict[str, Any]:
        """What run.toml says; empty where nothing was written yet."""
        path = self.path / "run.toml"
        return read_toml(path) if path.exists() else {}

    @property
    def is_locked(self) -> bool:
        """Whether a process works in the folder now."""
        return _is_locked(self.path)

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
        if not stored:
            merged = wanted
        else:
            merged, differences = merge(stored, wanted)
            if differences:
                shown = "; ".join(_as_called(difference, called) for difference in differences)
                raise ConfigError(
                    f"{self.path} was made with other settings: {shown}; "
                    "name another --out, or go back to the old settings"
                )
        if merged != stored:
            self._write_settings(merged)

    def forget_settings(self, names: Iterable[str]) -> None:
        """Take settings out of run.toml (dotted names): nothing was made with them yet."""
        self._for_writing()
        stored = self.settings
        remaining = without(stored, names)
        if remaining != stored:
            self._write_settings(remaining)

    def _write_settings(self, settings: Mapping[str, Any]) -> None:
        write_text(self.path / "run.toml", _TOML_HEADER + to_toml(settings))

    def options(self) -> dict[str, Any]:
        """What `write_options` stored: how the run was called, results or not."""
        path = self.state / "options.json"
        try:
            options: dict[str, Any] = json.loads(path.read_bytes())
        except OSError as exc:
            raise ConfigError(f"{path}: {reason(exc)}") from exc
        except ValueError as exc:
            raise ConfigError(f"{path}: damaged: {exc}; start the run again") from exc
        return options

    def write_options(self, options: Mapping[str, object]) -> None:
        """Store how the run was called, for commands that go on with it."""
        self._for_writing()
        write_text(self.state / "options.json", json.dumps(options, indent=2) + "\n")

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
        return _ChunkOfDirectory(self, number)

    def write_parts(self, chunk: int, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        """Write what a step made of a chunk, then the manifest line that makes it count.

        A step that was finished before is replaced whole: it is struck off first, so a kill
        in between leaves it undone, never half old and half new. An empty frame has no file.
        """
        manifest = self._for_writing()
        if not _STEP_NAME.fullmatch(step):
            raise ValueError(f"not a name for a step: {step!r}")
        checked = {table: self._checked(chunk, step, table, frames[table]) for table in frames}
        self.forget(chunk, step)
        for table, frame in checked.items():
            if frame.is_empty():
                self._remove_part(table, chunk, step)
            else:
                self._write_part(self._part(table, chunk, step), frame)
        manifest.finish(chunk, step, {table: frame.height for table, frame in checked.items()})

    def forget(self, chunk: int, step: str) -> None:
        """Make a finished step undone and remove its parts; nothing where it is not finished."""
        manifest = self._for_writing()
        parts = manifest.parts(chunk, step)
        if parts is None:
            return
        manifest.strike(chunk, step)
        for table, _ in parts:
            self._remove_part(table, chunk, step)

    def read(self, table: str, *chunks: int) -> pl.DataFrame:
        """The rows of a table of these chunks, of each its steps in sorted order; empty where
        there are none."""
        paths = [
            self._part(table, chunk, step)
            for chunk in chunks
            for step in self._manifest.writers(table, chunk)
        ]
        if not paths:
            return TABLES[table].empty() if table in TABLES else self.scan(table).clear().collect()
        try:
            return _scan_parts(table, paths).collect()
        except (OSError, pl.exceptions.PolarsError):
            return pl.concat([_read_part(table, path) for path in paths])

    def scan(self, table: str, step: str | None = None) -> pl.LazyFrame:
        """All finished rows of a table (or only a step's) in the input's order, without loading
        them."""
        paths = [
            self._part(table, chunk, by)
            for chunk, by in self._manifest.written(table)
            if step in (None, by)
        ]
        if paths:
            return _scan_parts(table, paths)
        return TABLES[table].empty().lazy() if table in TABLES else pl.LazyFrame()

    def _part(self, table: str, chunk: int, step: str) -> Path:
        suffix = "" if table in SINGLE_STEP_TABLES else f"-{step}"
        return self.path / table / f"part-{chunk:06d}{suffix}.parquet"

    def _checked(self, chunk: int, step: str, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        if not _NAME.fullmatch(table):
            raise ValueError(f"not a name for a table: {table!r}")
        if table in TABLES:
            schema = TABLES[table].schema
            if frame.schema != schema:
                raise ValueError(f"{table}: schema {frame.schema}, not {pl.Schema(schema)}")
            frame = frame.select(schema.keys())
        others = [name for name in self._manifest.writers(table, chunk) if name != step]
        if others and table in SINGLE_STEP_TABLES:
            raise ValueError(f"{table}: chunk {chunk} was written by step {others[0]}, not {step}")
        return frame

    def _write_part(self, path: Path, frame: pl.DataFrame) -> None:
        with os_errors(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="zstd")
        write_bytes(path, buffer.getbuffer())

    def _remove_part(self, table: str, chunk: int, step: str) -> None:
        path = self._part(table, chunk, step)
        with os_errors(path):
            path.unlink(missing_ok=True)

    # Results

    def write_scores(self, frames: Iterable[pl.DataFrame]) -> None:
        """Replace scores.parquet by these rows; the bytes depend on the rows alone.

        Rows are first regrouped into scratch parts of one fixed size, so how they were
        cut into frames leaves no trace and memory holds one part.
        """
        self._for_writing()
        target = self.path / "scores.parquet"
        scratch = self.state / "scores"
        with os_errors(scratch):
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(mode=0o700)
        try:
            parts = _regrouped(frames, scratch)
            with atomic_path(target) as temporary, polars_errors(target):
                pl.scan_parquet(parts, glob=False).sink_parquet(
                    temporary, compression="zstd", row_group_size=SCORES_ROW_GROUP
                )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Replace summary.json; a NaN in it is an error of the caller."""
        self._for_writing()
        text = json.dumps(summary, indent=2, allow_nan=False)
        write_text(self.path / "summary.json", text + "\n")

    def summary(self) -> dict[str, Any]:
        """What `write_summary` was given last; empty before the first time."""
        path = self.path / "summary.json"
        found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        return found

    def event(self, kind: str, **fields: object) -> None:
        """Append a line to events.jsonl with the time in UTC; for people, nothing reads it back."""
        self._for_writing()
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "kind": kind, **fields}, default=str)
        path = self.path / "events.jsonl"
        with os_errors(path), path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def write_note(self, note: Mapping[str, object]) -> None:
        """Leave word of how far the run is for whoever asks meanwhile; not synced, and a disk
        that is full does not stop the run here."""
        self._for_writing()
        path = self.state / "now.json"
        scratch = path.with_suffix(".tmp")
        with contextlib.suppress(OSError):
            scratch.write_text(json.dumps({"at": time.time(), **note}), encoding="utf-8")
            scratch.replace(path)

    def note(self) -> dict[str, Any] | None:
        """The last note, with `at`, the time it was written; None where there is none."""
        try:
            note: dict[str, Any] = json.loads((self.state / "now.json").read_bytes())
        except (OSError, ValueError):
            return None
        return note

    # Opening and closing

    @property
    def _manifest(self) -> Manifest:
        if self._manifest_or_none is None:
            raise RuntimeError("the run directory is not open: use `with` or RunDirectory.reader")
        return self._manifest_or_none

    def _load(self) -> Manifest:
        self._manifest_or_none = Manifest(self.state / "manifest.jsonl")
        return self._manifest_or_none

    def _for_writing(self) -> Manifest:
        if self._lock is None:
            raise RuntimeError("the run directory is not open for writing: use `with`")
        return self._manifest

    def _clean(self) -> None:
        """Remove what a kill left: temporary files, and the half of an event."""
        for folder in (self.path, self.state, *(self.path / name for name in _OWN_NAMES)):
            if folder.is_dir():
                remove_leftovers(folder)
        events = self.path / "events.jsonl"
        with os_errors(events):
            if not events.is_file() or not events.stat().st_size:
                return
            with events.open("rb+") as stream:
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":
                    stream.write(b"\n")

    def _release(self) -> None:
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None


@dataclasses.dataclass(frozen=True, slots=True)
class _ChunkOfDirectory:
    """A chunk of a run directory in the process that holds its lock."""

    directory: RunDirectory
    chunk: int

    def read(self, table: str) -> pl.DataFrame:
        return self.directory.read(table, self.chunk)

    def write(self, step: str, frames: Mapping[str, pl.DataFrame]) -> None:
        self.directory.write_parts(self.chunk, step, frames)


@contextlib.contextmanager
def damage_as_error(path: Path) -> Iterator[None]:
    """Files of a run directory that are not what a run writes, as one clear `ConfigError`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as exc:
        raise ConfigError(
            f"{path}: a file of this run directory is damaged ({type(exc).__name__}: "
            f"{_first_line(exc)}); name another --out and run again (answers are in the cache)"
        ) from exc


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0]


def _as_called(difference: str, called: Mapping[str, str]) -> str:
    name, colon, rest = difference.partition(":")
    return called.get(name, name) + colon + rest


def _refuse_other_folder(path: Path) -> None:
    """`--out ~` by mistake must not fill somebody's home with tables."""
    if not path.exists() or (path / "run.toml").exists():
        return
    foreign = [e.name for e in path.iterdir() if e.name[0] != "." and e.name not in _OWN_NAMES]
    if foreign:
        raise ConfigError(
            f"{path}: a folder with other files ({sorted(foreign)[0]}) and no run.toml; "
            "name a new or an empty folder"
        )


def _take_lock(path: Path) -> int:
    """Lock the folder; the lock ends with the process, however it ends."""
    lock = path / ".lock"
    with os_errors(lock):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock_patiently(descriptor)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as exc:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if exc.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise ConfigError(
                f"{path} is in use by process {holder or 'unknown'}; wait for it, or stop it"
            ) from None
    return descriptor


def _lock_patiently(descriptor: int) -> None:
    """Lock, or raise the system's error; who only looks (`is_locked`) is gone in a moment."""
    for _ in range(_LOCK_TRIES - 1):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOCK_WAIT_S)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path / ".lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def polars_errors(path: Path) -> Iterator[None]:
    """Polars wraps some of the system's refusals in errors of its own."""
    try:
        with os_errors(path):
            yield
    except pl.exceptions.ComputeError as exc:
        with os_errors(path):
            _raise_system_error(exc)
        raise ConfigError(f"{path}: {_why(exc)}") from exc


def _raise_system_error(exc: Exception) -> None:
    """The system's refusal that polars' error quotes, if it quotes one."""
    number = re.search(r"\(os error (\d+)\)", str(exc))
    if number:
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from exc


def _why(exc: Exception) -> str:
    try:
        _raise_system_error(exc)
    except OSError as system_error:
        return reason(system_error)
    return reason(exc) if isinstance(exc, OSError) else _first_line(exc)


def _scan_parts(table: str, paths: list[Path]) -> pl.LazyFrame:
    if table not in TABLES:
        return pl.scan_parquet(paths, glob=False)
    # A column that an older claimscore did not write is null, one of a newer is left out.
    return pl.scan_parquet(
        paths,
        glob=False,
        schema=TABLES[table].schema,
        missing_columns="insert",
        extra_columns="ignore",
    )


def _read_part(table: str, path: Path) -> pl.DataFrame:
    """One part; `ConfigError` that names it where it is missing or damaged."""
    try:
        return _scan_parts(table, [path]).collect()
    except (OSError, pl.exceptions.PolarsError) as exc:
        raise ConfigError(
            f"{path}: missing or damaged: {_why(exc)}; "
            "name another --out and run again (answers are in the cache)"
        ) from exc


def _regrouped(frames: Iterable[pl.DataFrame], scratch: Path) -> list[Path]:
    """Parts of exactly `SCORES_ROW_GROUP` rows (the last may have fewer, or none)."""
    paths: list[Path] = []
    waiting = [SCORES.empty()]
    height = 0

    def write(rows: pl.DataFrame) -> None:
        path = scratch / f"part-{len(paths):06d}.parquet"
        with polars_errors(path):
            rows.write_parquet(path, compression="lz4")
        paths.append(path)

    for frame in frames:
        waiting.append(frame.select(SCORES.schema.keys()))
        height += frame.height
        if height < SCORES_ROW_GROUP:
            continue
        pending = pl.concat(waiting)
        while pending.height >= SCORES_ROW_GROUP:
            write(pending.head(SCORES_ROW_GROUP))
            pending = pending.slice(SCORES_ROW_GROUP)
        waiting, height = [pending], pending.height
    if height or not paths:
        write(pl.concat(waiting))
    return paths
