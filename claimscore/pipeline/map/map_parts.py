"""The unfinished work of a map, in a run directory beside its file.

records/      the input, read once, in chunks of rows whose types are settled
columns/      the columns that are added, row by row beside those of `records`
failures/     the rows without an answer
state.json    for people: `complete` is false, how many rows are done, how to go on
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import polars as pl
from polars.io.plugins import register_io_source

from claimscore.errors import ClaimscoreError
from claimscore.pipeline.map.input_table import TableSource
from claimscore.pipeline.map.map_files import CALLED, COLUMNS, NO_FAILURES, FinishedMap, MapFiles
from claimscore.pipeline.map.table_prompt import ERROR_COLUMN, STAGE, RowAnswers, TablePrompt
from claimscore.prompts import Prompt
from claimscore.runs import RunDirectory
from claimscore.types import JSON

#: Seconds between two versions of state.json.
STATE_INTERVAL_S = 1.0


class ChunkRows(NamedTuple):
    """The rows of a chunk: the input's columns, and those that were added, if any were."""

    given: pl.DataFrame
    added: pl.DataFrame | None

    def unanswered(self) -> Sequence[int]:
        """The positions of the rows without an answer."""
        if self.added is None:
            return range(self.given.height)
        return self.added[ERROR_COLUMN].is_not_null().arg_true().to_list()

    def with_answers(self, positions: Sequence[int], answers: pl.DataFrame) -> pl.DataFrame:
        """The added columns, with new ones at these positions."""
        if self.added is None:
            return answers
        order = list(range(self.added.height))
        for new, position in enumerate(positions, start=self.added.height):
            order[position] = new
        return pl.concat([self.added, answers])[order]


class MapParts:
    """Rows in, answers chunk by chunk, and the finished file in the end.

    `directory` is open for writing. A finished file stays the base of the next one: chunks with
    failures that are tried again are made anew here, and all others are read from the file.
    Threads may read and write different chunks at once.
    """

    def __init__(self, files: MapFiles, directory: RunDirectory) -> None:
        self._files = files
        self._directory = directory
        self._finished = files.finished()
        self._base = files.rows(directory.state) if self._finished is not None else None
        self._settings: JSON = {}
        self._left: set[int] = set()
        self._state_written = 0.0

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
        if self._finished is not None and self._base is not None:
            count, schema = self._finished.rows, self._base.schema(self._finished.columns)
            self._finished.refuse_others(settings(digest, count))
        elif directory.settings and directory.steps_done("records") == directory.n_chunks:
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
        """The chunks to be asked about, in order.

        Of a finished file these are chunks with failures: where the user wants them tried again,
        and where an earlier call has begun to.
        """
        directory, size, again = self._directory, self.chunk_rows, set[int]()
        if retry_failed:
            failed = directory.scan("failures").select(pl.col("id").cast(pl.Int64)).collect()
            again = {row // size for row in failed["id"]}
        undone = set(range(-(-self.n_rows // size)))
        if self._base is not None:
            retries = retry_failed or directory.steps_done(STAGE)
            undone = {row // size for row in self._base.failed_numbers()} if retries else set()
        self._left = again | {chunk for chunk in undone if not directory.manifest.has(chunk, STAGE)}
        return sorted(self._left)

    def nothing_new(self) -> FinishedMap | None:
        """The finished file where nothing is left to do and nothing was done since."""
        return None if self._left or self._directory.steps_done(STAGE) else self._finished

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

    def read(self, chunk: int) -> ChunkRows:
        """The rows of a chunk. `ConfigError` where a part is damaged."""
        directory = self._directory
        added = directory.read(COLUMNS, chunk) if directory.manifest.has(chunk, STAGE) else None
        if self._finished is None or self._base is None:
            return ChunkRows(directory.read("records", chunk), added)
        rows = self._base.slice(chunk * self.chunk_rows, self.chunk_rows)
        columns = self._finished.columns
        return ChunkRows(rows.select(columns), rows.drop(columns) if added is None else added)

    def write(self, chunk: int, answers: RowAnswers) -> None:
        """Make the answers of all rows of a chunk count."""
        frames = {COLUMNS: answers.columns, "failures": answers.failures}
        self._directory.write_parts(chunk, STAGE, frames)
        self._left.discard(chunk)
        if time.monotonic() - self._state_written >= STATE_INTERVAL_S:
            self._write_state()

    @contextlib.contextmanager
    def state_kept(self) -> Iterator[None]:
        """Keep state.json up to date while the block works, and when it is stopped."""
        self._write_state()
        try:
            yield
        except BaseException:
            with contextlib.suppress(ClaimscoreError):  # the reason to stop is the news
                self._write_state()
            raise

    def _write_state(self) -> None:
        """Say for people how far the work is."""
        self._state_written = time.monotonic()
        total, done = self.n_rows, self.n_done
        failed = self._directory.manifest.counts().get("failures", 0)
        state = {
            "complete": False,
            "out": str(self._files.where),
            "rows": {"total": total, "done": done, "failed": failed, "left": total - done},
            "settings": self._settings,
            "to_go_on": "run the same `claimscore map` command again",
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        text = json.dumps(state, indent=2) + "\n"
        self._directory.storage.write("state.json", text.encode())

    def write_files(self) -> FinishedMap:
        """Put the parts together. The bytes depend on rows and settings alone."""
        failures = self._directory.scan("failures")
        by_kind = failures.group_by("kind").len().sort("kind").collect()
        first = self.read(0).given
        failed, columns = dict(by_kind.iter_rows()), tuple(first.columns)
        finished = FinishedMap(self._files.where, self._settings, self.n_rows, failed, columns)
        # Frame by frame: a scan of so many files reads too far ahead.
        rows = register_io_source(
            lambda *_: (self._whole(chunk) for chunk in range(self._directory.n_chunks)),
            schema=self._whole(0).schema,
        )
        row = pl.col("id").cast(pl.Int64).alias("row")
        self._files.write(finished, rows, failures.select(row, *NO_FAILURES.columns[1:]))
        return finished

    def _whole(self, chunk: int) -> pl.DataFrame:
        given, added = self.read(chunk)
        assert added is not None, "every chunk is done"
        return pl.concat([given, added], how="horizontal")
