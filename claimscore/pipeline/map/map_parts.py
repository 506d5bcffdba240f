"""The unfinished work of a map, in a run directory beside its file.

records/      the input, read once, in chunks of rows whose types are settled
columns/      the columns that are added, row by row beside those of `records`
failures/     the rows without an answer
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import polars as pl
from polars.io.plugins import register_io_source

from claimscore.pipeline.map.input_table import TableSource
from claimscore.pipeline.map.map_files import (
    CALLED,
    COLUMNS,
    NO_FAILURES,
    FinishedMap,
    FinishedRows,
    MapFiles,
)
from claimscore.pipeline.map.table_prompt import ERROR_COLUMN, STAGE, RowAnswers, TablePrompt
from claimscore.prompts import Prompt
from claimscore.runs import RunDirectory
from claimscore.tables import FAILURES
from claimscore.types import JSON


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

    `directory` is open for writing. A finished file is taken apart into chunks again, so that those
    with failures can be tried once more; it stays until the next one takes its place. Threads may
    read and write different chunks at once.
    """

    def __init__(self, files: MapFiles, directory: RunDirectory) -> None:
        self._files = files
        self._directory = directory
        self._settings: JSON = {}
        self._left: set[int] = set()

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
        finished = self._files.finished()
        rows = self._files.rows(directory.state) if finished is not None else None
        if finished is not None and rows is not None:
            count, schema = finished.rows, rows.schema(finished.columns)
            finished.refuse_others(settings(digest, count))
        elif directory.settings and directory.steps_done("records") == directory.n_chunks:
            count = directory.settings["records"]["count"]
            schema = dict(directory.read("records", 0).schema)
        else:
            table = source.open()
            count, schema = table.n_rows, table.schema
        table_prompt = TablePrompt(prompt, schema, source.name)
        self._settings = settings(digest, count)
        directory.check_settings(self._settings, CALLED)
        if finished is not None and rows is not None:
            self._take_apart(finished, rows)
        for chunk, frame in enumerate(table.chunks(self.chunk_rows) if table is not None else ()):
            if not directory.manifest.has(chunk, "records"):
                directory.write_parts(chunk, "records", {"records": frame})
        return table_prompt

    def _take_apart(self, finished: FinishedMap, rows: FinishedRows) -> None:
        """Make the rows of a finished file parts, as far as there are no newer ones."""
        failures = self._files.read_failures()
        for chunk in range(self._directory.n_chunks):
            if self._directory.manifest.has(chunk, STAGE):
                continue
            first = chunk * self.chunk_rows
            frame = rows.slice(first, self.chunk_rows)
            given, added = frame.select(finished.columns), frame.drop(finished.columns)
            of_chunk = failures.filter(pl.col("row").is_between(first, first + frame.height - 1))
            named = [{"id": str(row["row"]), "stage": STAGE, **row} for row in of_chunk.to_dicts()]
            self._directory.write_parts(chunk, "records", {"records": given})
            self.write(chunk, RowAnswers(added, FAILURES.frame(named)))

    def todo(self, *, retry_failed: bool) -> list[int]:
        """The chunks to be asked about, in order: those without answers, and those with failures
        where the user wants them tried again."""
        directory, again = self._directory, set[int]()
        if retry_failed:
            failed = directory.scan("failures").select(pl.col("id").cast(pl.Int64)).collect()
            again = {row // self.chunk_rows for row in failed["id"]}
        chunks = range(directory.n_chunks)
        self._left = again | {chunk for chunk in chunks if not directory.manifest.has(chunk, STAGE)}
        return sorted(self._left)

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
        return ChunkRows(directory.read("records", chunk), added)

    def write(self, chunk: int, answers: RowAnswers) -> None:
        """Make the answers of all rows of a chunk count."""
        frames = {COLUMNS: answers.columns, "failures": answers.failures}
        self._directory.write_parts(chunk, STAGE, frames)

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
