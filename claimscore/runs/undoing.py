"""Invalidates the steps that damaged parts stood for; failures that are known stay known."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import polars as pl

from claimscore.runs.damage import DamagedPart
from claimscore.runs.index import Place, Span
from claimscore.runs.manifest import Manifest
from claimscore.runs.merging import Merging
from claimscore.runs.parts import PartFiles

#: Begins the names of steps that hold the failures of a step that is to be done again.
KEPT = "kept."


class Undoing:
    """Strikes steps off, and keeps their failures until they are finished again."""

    def __init__(self, manifest: Manifest, parts: PartFiles) -> None:
        self._manifest = manifest
        self._parts = parts

    def strike(
        self, steps: Mapping[str, Sequence[int]], keep: Collection[str], merging: Merging
    ) -> int:
        """Make steps of chunks undone, in the order given; of those in `keep` the failures that can
        be read stay. Returns for how many chunks some could not be read."""
        lost = sum(
            self._keep_failures(step, chunks, merging)
            for step, chunks in steps.items()
            if step in keep
        )
        spans = [(step, span) for step, chunks in steps.items() for span in _spans(chunks)]
        if spans:
            self._manifest.strike_all(spans)
        return lost

    def _keep_failures(self, step: str, chunks: Sequence[int], merging: Merging) -> int:
        """Write what failed once more; for how many chunks that is not known any more."""
        lost = 0
        for first, end in _spans(chunks):
            found: dict[int, pl.DataFrame] = {}
            for chunk in range(first, end):
                try:
                    rows = self._parts.read("failures", self._failures_of(step, chunk))
                except DamagedPart:
                    lost += 1
                    continue
                if rows.height:
                    found[chunk] = rows
            if found:
                frames = [found.get(chunk) for chunk in range(min(found), max(found) + 1)]
                merging.write(min(found), KEPT + step, "failures", frames)
        return lost

    def _failures_of(self, step: str, chunk: int) -> list[Place]:
        return [place for place in self._manifest.places("failures", [chunk]) if place.step == step]

    def drop_kept(self, chunk: int) -> None:
        """Forget failures that were kept of steps that are finished again."""
        steps = self._manifest.steps(chunk)
        for kept in [step for step in steps if step.startswith(KEPT)]:
            if _is_covered(kept.removeprefix(KEPT), steps):
                self._drop(chunk, kept)

    def _drop(self, chunk: int, kept: str) -> None:
        manifest = self._manifest
        files = manifest.files(kept, chunk, chunk + 1)
        manifest.strike(chunk, kept)
        self._parts.remove(chunk, kept, ["failures"])
        for file in files:
            if file not in manifest.files(kept, file.first, file.end):
                self._parts.remove_merged(kept, file, ["failures"])

    def drop_all_kept(self) -> None:
        """The same for all chunks: a kill may have come in between."""
        for kept in [step for step in self._manifest.all_steps() if step.startswith(KEPT)]:
            for chunk in self._manifest.members(kept):
                self.drop_kept(chunk)


def _spans(chunks: Sequence[int]) -> Iterator[Span]:
    """Chunks, as few ranges."""
    for _, group in itertools.groupby(enumerate(sorted(chunks)), lambda pair: pair[1] - pair[0]):
        numbers = [chunk for _, chunk in group]
        yield Span(numbers[0], numbers[-1] + 1)


def _is_covered(step: str, finished: Iterable[str]) -> bool:
    """Whether finished steps of the same work cover all sides of a step."""
    work, *sides = step.split("-")
    done = [other.split("-") for other in finished]
    of_work = [other for other in done if other[0] == work]
    return bool(of_work) and set(sides) <= {side for other in of_work for side in other[1:]}
