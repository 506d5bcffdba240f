"""What a run directory has already, chunk by chunk."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from claimscore.config import RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.chunks import ChunkTodo, find_todo
from claimscore.pipeline.plan import Plan, PlannedPass, PlannedTask
from claimscore.records import Dataset
from claimscore.rundir import KEPT, RunDirectory, damage_as_error
from claimscore.tables import Table


class Finished:
    """What an existing run directory has of each chunk; nothing where there is none."""

    def __init__(
        self,
        directory: RunDirectory | None = None,
        todo: Iterable[ChunkTodo] = (),
    ) -> None:
        self._directory = directory
        self._todo = {item.chunk: item for item in todo}
        steps = directory.all_steps() if directory is not None else ()
        self._has_kept = any(step.startswith(KEPT) for step in steps)

    @classmethod
    def found(
        cls, config: RunConfig, out: Path | str | None, dataset: Dataset, plan: Plan
    ) -> Finished:
        if out is None or not RunDirectory.is_at(out):
            return cls()
        directory = RunDirectory.reader(out)
        with damage_as_error(out):
            if not directory.all_steps():
                return cls()
            if directory.settings["records"]["digest"] != dataset.digest:
                raise ConfigError(f"{out} was made from other records; name another --out")
            todo = find_todo(plan, directory, directory.n_chunks, retry_failed=False)
        return cls(directory, todo)

    def sides_left(self, chunk: int, planned: PlannedTask, *, retry_failed: bool) -> PlannedTask:
        """The task for the sides that are not finished; for all where failures are retried."""
        if self._is_new(chunk, retry_failed):
            return planned
        for left in self._todo[chunk].tasks if chunk in self._todo else ():
            if left.task.name == planned.task.name:
                return left
        return dataclasses.replace(planned, sides=())

    def passes_left(
        self, chunk: int, passes: tuple[PlannedPass, ...], *, retry_failed: bool
    ) -> tuple[PlannedPass, ...]:
        """The passes that are not finished; all where failures are retried."""
        if self._is_new(chunk, retry_failed):
            return passes
        return self._todo[chunk].passes if chunk in self._todo else ()

    def _is_new(self, chunk: int, retry_failed: bool) -> bool:
        if self._directory is None:
            return True
        return retry_failed and self._directory.read("failures", chunk).height > 0

    def failed_before(self, chunk: int) -> frozenset[str]:
        """The request keys that failed before in steps that are to be made again: they are not
        asked."""
        if self._directory is None or not self._has_kept:
            return frozenset()
        return frozenset(self._directory.read("failures", chunk)["request_key"].drop_nulls())

    def rows(self, chunk: int, table: Table) -> pl.DataFrame:
        """The rows of a table that are there."""
        return table.empty() if self._directory is None else self._directory.read(table.name, chunk)
