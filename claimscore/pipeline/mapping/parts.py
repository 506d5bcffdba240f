"""FILE.parquet.parts/: the unfinished work of one map, a run directory of four tables.

    records/      the input, read once, in chunks of rows whose types are settled
    columns/      the columns that are added, row by row beside those of `records/`
    failures/     what could not be done
    kept/         answers of rows that are left alone while the others are tried again
    state.json    for people: `complete` is false, how many rows are done, how to go on

Going on reads the manifest, one line a chunk, and no finished row.
"""

from __future__ import annotations

import glob
import json
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl
from polars.io.plugins import register_io_source

from claimscore.atomic import os_errors, write_text
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.money import SPEND_FILE
from claimscore.pipeline.mapping.config import NO_FAILURES
from claimscore.pipeline.mapping.finished import CALLED, Finished, failures_path, write_result
from claimscore.pipeline.mapping.questions import ERROR_COLUMN, STAGE, Answers
from claimscore.pipeline.mapping.table import Table
from claimscore.rundir import RunDirectory
from claimscore.types import JSON

#: The table of the columns that are added.
ANSWERS = "columns"

#: Says for people how far it is.
STATE_FILE = "state.json"

#: Seconds between two versions of it.
STATE_INTERVAL_S = 1.0


def parts_path(out: Path) -> Path:
    """Where the unfinished work of a file lies."""
    return out.with_name(f"{out.name}.parts")


class Parts:
    """The one writer of a file's unfinished work; a second one is refused.

    A context manager. Threads may write answers of different chunks at once.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.path = parts_path(out)
        self._directory = RunDirectory(self.path)
        self._state_written = 0.0

    def __enter__(self) -> Self:
        self._directory.__enter__()
        try:
            self._mend()
            self._remove_leftovers()
        except BaseException as exc:
            self._directory.__exit__(type(exc), exc, None)
            raise
        return self

    def _mend(self) -> None:
        """Forget what files stood for that are not what was written: it is made again."""
        directory = self._directory
        said = [directory.mend_settings(), *directory.damaged_lines]
        struck: dict[str, set[int]] = {}
        for part in directory.damaged(deep=True):
            struck.setdefault(part.place.step, set()).update(directory.chunks_of(part))
            said.append(f"{part.address}: {part.why}")
        directory.strike({step: sorted(chunks) for step, chunks in struck.items()})
        if any(said):
            directory.event("damaged", files=[line for line in said if line])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._directory.__exit__(kind, error, trace)

    def _remove_leftovers(self) -> None:
        """What a kill left of results half written and of parts half removed."""
        for path in (self.out, failures_path(self.out)):
            for leftover in _hidden(path, "tmp"):
                leftover.unlink(missing_ok=True)
        remove_old_parts(self.out)

    @property
    def scratch(self) -> Path:
        """A folder for copies that are of no use when the work is done."""
        return self._directory.state

    @property
    def spend_file(self) -> Path:
        """Where it stands what was spent on this work, in all calls."""
        return self._directory.state / SPEND_FILE

    def event(self, kind: str, **fields: object) -> None:
        """A line in events.jsonl."""
        self._directory.event(kind, **fields)

    def write_note(self, note: Mapping[str, object]) -> None:
        """How far it is, for `claimscore status` in another terminal."""
        self._directory.write_note(note)

    # Settings

    @property
    def records(self) -> JSON:
        """Digest and number of the rows that are here; empty where they are not yet."""
        records: JSON = self._directory.settings.get("records", {})
        return records

    @property
    def n_chunks(self) -> int:
        return self._directory.n_chunks

    @property
    def has_all_rows(self) -> bool:
        """Whether the input has been read to its end."""
        return bool(self.records) and self._directory.steps_done("records") == self.n_chunks

    @property
    def has_answers(self) -> bool:
        """Whether something was made with the settings that stand here."""
        return self._directory.steps_done(STAGE) > 0

    def refuse_other_rows(self, digest: str, name: str) -> None:
        """`ConfigError` where answers were made for another input."""
        if self.has_answers and self.records["digest"] != digest:
            raise ConfigError(
                f"{self.path} has answers for another input ({self.records['count']:,} rows); "
                f"the content of {name} is not what it was; name another --out, or go back to "
                "the old input"
            )

    def settle(self, settings: Mapping[str, Any]) -> None:
        """Keep the settings; refuse those that differ from what the answers were made with."""
        if not self.has_answers:
            self._directory.forget_settings(list(self._directory.settings))
        self._directory.check_settings(settings, CALLED)

    def drop_other_rows(self, digest: str, chunk_rows: int) -> None:
        """Forget rows that no answer was made for yet and that another input replaces."""
        settings = self._directory.settings
        if not self.records or self.has_answers:
            return
        if (self.records["digest"], settings["chunk_records"]) != (digest, chunk_rows):
            for chunk in range(self.n_chunks):
                for step in self._directory.steps(chunk):
                    self._directory.forget(chunk, step)
            self._directory.forget_settings(list(settings))

    # Rows in

    def take(self, table: Table, chunk_rows: int) -> None:
        """Keep the input's rows in chunks."""
        for chunk, frame in enumerate(table.chunks(chunk_rows)):
            if not self._directory.has(chunk, "records"):
                self._directory.write_parts(chunk, "records", {"records": frame})

    def take_again(self, finished: Finished, added: Iterable[str], chunk_rows: int) -> None:
        """Keep the rows of a finished file so that those with an error are asked again."""
        added = list(added)
        rows = pl.scan_parquet(finished.path, glob=False)
        for chunk in range(self.n_chunks):
            frame = rows.slice(chunk * chunk_rows, chunk_rows).collect()
            answers = frame.select(added)
            if answers[ERROR_COLUMN].null_count() == frame.height:
                self._directory.write_parts(chunk, STAGE, {ANSWERS: answers})
            else:
                self._directory.write_parts(chunk, "kept", {"kept": answers})
            self._directory.write_parts(chunk, "records", {"records": frame.drop(added)})

    def forget_failed(self) -> None:
        """Make the chunks with failures undone, except for their answers."""
        rows = self._directory.scan("failures").select(pl.col("id").cast(pl.Int64)).collect()
        size = int(self._directory.settings["chunk_records"])
        for chunk in (rows["id"] // size).unique().sort():
            kept = self._directory.read(ANSWERS, chunk)
            self._directory.write_parts(chunk, "kept", {"kept": kept})
            self._directory.forget(chunk, STAGE)

    # The work

    def todo(self) -> list[int]:
        """The chunks without answers, in order."""
        return [chunk for chunk in range(self.n_chunks) if not self._directory.has(chunk, STAGE)]

    @property
    def rows_done(self) -> int:
        return self._directory.counts().get(ANSWERS, 0)

    def read(self, chunk: int) -> pl.DataFrame:
        """The input's rows of a chunk."""
        return self._directory.read("records", chunk)

    def schema(self) -> dict[str, pl.DataType]:
        """The input's columns."""
        return dict(self.read(0).schema)

    def kept(self, chunk: int) -> pl.DataFrame | None:
        """Answers of an earlier time for the chunk's rows; those with an error are open again."""
        if not self._directory.has(chunk, "kept"):
            return None
        return self._directory.read("kept", chunk)

    def write(self, chunk: int, answers: Answers) -> None:
        """Make the answers of a chunk count."""
        frames = {ANSWERS: answers.columns, "failures": answers.failures}
        self._directory.write_parts(chunk, STAGE, frames)

    def write_state(self, *, now: bool = False) -> None:
        """Say for people how far it is, at most once a second unless `now`."""
        if not now and time.monotonic() - self._state_written < STATE_INTERVAL_S:
            return
        self._state_written = time.monotonic()
        counts = self._directory.counts()
        done = counts.get(ANSWERS, 0)
        state = {
            "complete": False,
            "out": str(self.out),
            "rows": {
                "total": self.records["count"],
                "done": done,
                "failed": counts.get("failures", 0),
                "left": self.records["count"] - done,
            },
            "settings": self._directory.settings,
            "to_go_on": "run the same `claimscore map` command again",
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_text(self.path / STATE_FILE, json.dumps(state, indent=2) + "\n")

    # The end

    def finish(self) -> Finished:
        """Put the parts together, then remove them. The bytes depend on rows and settings alone."""
        directory, settings = self._directory, self._directory.settings
        failures = directory.scan("failures")
        by_kind = failures.group_by("kind").len().sort("kind").collect()
        failed = dict(by_kind.iter_rows())
        columns = list(self.schema())
        said = {
            "settings": settings,
            "rows": settings["records"]["count"],
            "failed": failed,
            "columns": columns,
        }
        self._write_failures(failures, said)
        rows = register_io_source(self._rows, schema=self._whole(0).schema)
        write_result(rows, self.out, said)
        self.remove()
        return Finished(self.out, settings, said["rows"], failed, tuple(columns))

    def _rows(
        self,
        _columns: list[str] | None,
        _predicate: pl.Expr | None,
        _n_rows: int | None,
        _batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        """All rows, chunk by chunk: a scan of that many files reads too far ahead."""
        for chunk in range(self.n_chunks):
            yield self._whole(chunk)

    def _whole(self, chunk: int) -> pl.DataFrame:
        """The input's rows of a chunk and what was added to them."""
        answers = self._directory.read(ANSWERS, chunk)
        return pl.concat([self.read(chunk), answers], how="horizontal")

    def _write_failures(self, failures: pl.LazyFrame, said: Mapping[str, Any]) -> None:
        path = failures_path(self.out)
        if Finished.read(path) is not None and not said["failed"]:
            with os_errors(path):
                path.unlink()
        if said["failed"]:
            row = pl.col("id").cast(pl.Int64).alias("row")
            write_result(failures.select(row, *NO_FAILURES.columns[1:]), path, said)

    def remove(self) -> None:
        """Take the parts away: at one moment they are whole, at the next they are not there."""
        away = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.done")
        with os_errors(self.path):
            self.path.rename(away)
        shutil.rmtree(away, ignore_errors=True)


def remove_old_parts(out: Path) -> None:
    """What a kill left of parts whose result is there."""
    for leftover in _hidden(parts_path(out), "done"):
        shutil.rmtree(leftover, ignore_errors=True)


def _hidden(path: Path, ending: str) -> list[Path]:
    """Files such as `.FILE.parquet.1a2b3c4d.tmp` beside a file, of that file alone."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.{'?' * 8}.{ending}"))


def refuse_other_failures(out: Path) -> None:
    """`ConfigError` where the failures file would take the place of somebody else's."""
    Finished.read(failures_path(out))
