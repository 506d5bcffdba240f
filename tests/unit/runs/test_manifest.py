"""The manifest: what a kill leaves of its log, and any changes against a model."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from claimscore.runs.manifest import Manifest
from claimscore.runs.manifest_log import FileLog
from claimscore.runs.parts import MOST_CHUNKS, Checksum, PartSet, RowRange

#: Opens the log.
OpenLog = Callable[[], FileLog]

STEPS, TABLES, CHUNKS = ("facts", "decompose-a", "nli"), ("claims", "failures"), 12


def own(chunk: int, step: str, **rows: int) -> PartSet:
    """The set that a step writes for one chunk."""
    sums = {table: Checksum(10 * n, chunk) for table, n in rows.items() if n}
    return PartSet.of(step, chunk, chunk + 1, 0, {t: [n] for t, n in rows.items()}, sums)


def writer(log: OpenLog) -> Manifest:
    manifest = Manifest(log())
    manifest.open_for_writing()
    return manifest


def file_log(tmp_path: Path) -> OpenLog:
    (tmp_path / ".state").mkdir()
    return lambda: FileLog(tmp_path)


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_torn_last_line_is_ignored(tmp_path: Path, cut: int) -> None:
    log = file_log(tmp_path)
    manifest, path = writer(log), tmp_path / ".state" / "manifest.log"
    manifest.add(own(0, "a", claims=1))
    manifest.add(own(1, "a", claims=1))
    path.write_bytes(path.read_bytes()[:-cut])
    again = writer(log)
    assert (again.chunks_with("a"), again.damaged) == ([0], [])
    again.add(own(1, "a", claims=2))
    assert Manifest(log()).counts() == {"claims": 3}
    assert path.read_bytes().count(b"\n") == 2


def test_half_a_line_of_a_full_disk_is_written_over(tmp_path: Path) -> None:
    log = file_log(tmp_path)
    manifest = writer(log)
    manifest.add(own(0, "a", claims=1))
    with (tmp_path / ".state" / "manifest.log").open("a") as stream:
        stream.write('12345678 {"step":"a"')
    manifest.add(own(2, "a", claims=1))
    assert (Manifest(log()).chunks_with("a"), Manifest(log()).damaged) == ([0, 2], [])


def test_lines_about_what_is_not_there_take_no_memory(tmp_path: Path) -> None:
    log = file_log(tmp_path)
    writer(log).invalidate(("a", 0, MOST_CHUNKS), ("b", 0, MOST_CHUNKS))
    tracemalloc.start()
    manifest = Manifest(log())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (manifest.damaged, manifest.chunks_with("a"), peak < 1 << 20) == ([], [], True)


# Any changes

chunks = st.integers(0, CHUNKS - 1)


class ManifestAgainstRows(RuleBasedStateMachine):
    """The model keeps the rows of each finished step, and the content of every part."""

    @initialize()
    def open(self) -> None:
        self.patch, self.folder = pytest.MonkeyPatch(), tempfile.TemporaryDirectory()
        self.patch.setattr("os.fsync", lambda _: None)
        self.log = file_log(Path(self.folder.name))
        self.manifest = writer(self.log)
        self.rows: dict[tuple[int, str], dict[str, int]] = {}
        #: The chunk of each row, by table and key of the set.
        self.content: dict[tuple[object, ...], list[int]] = {}
        self.removed: set[tuple[object, ...]] = set()

    def teardown(self) -> None:
        if hasattr(self, "manifest"):
            self.patch.undo()
            self.folder.cleanup()

    def _add(self, parts: PartSet) -> None:
        superseded = self.manifest.add(parts)
        self.removed |= {old.key for old in superseded}
        self.removed.discard(parts.key)
        for table in parts.starts:
            heights = zip(range(parts.first, parts.end), parts.rows(table), strict=True)
            self.content[table, parts.key] = [chunk for chunk, n in heights for _ in range(n)]

    @rule(
        chunk=chunks,
        step=st.sampled_from(STEPS),
        rows=st.fixed_dictionaries({table: st.integers(0, 3) for table in TABLES}),
    )
    def finish(self, chunk: int, step: str, rows: dict[str, int]) -> None:
        self._add(own(chunk, step, **rows))
        self.rows[chunk, step] = rows

    @rule(first=chunks, size=st.integers(1, 4), step=st.sampled_from(STEPS))
    def invalidate(self, first: int, size: int, step: str) -> None:
        superseded = self.manifest.invalidate((step, first, first + size))
        self.removed |= {old.key for old in superseded}
        for chunk in range(first, first + size):
            self.rows.pop((chunk, step), None)

    @rule(step=st.sampled_from(STEPS), first=chunks, size=st.integers(2, 6))
    def compact(self, step: str, first: int, size: int) -> None:
        parts = self.manifest.compactable(step, first, first + size)
        if parts is not None:
            sums = {t: Checksum(1, 1) for t in parts.starts if parts.range(t, first, first + size)}
            self._add(dataclasses.replace(parts, checksums=sums))

    @rule(step=st.sampled_from(STEPS), first=chunks, size=st.integers(1, 4))
    def write_some(self, step: str, first: int, size: int) -> None:
        """One file for a few chunks, as records are written."""
        end = min(CHUNKS, first + size)
        parts = self.manifest.new_set(step, first, end, {"failures": [1] * (end - first)})
        self._add(dataclasses.replace(parts, checksums={"failures": Checksum(1, 1)}))
        self.rows |= {(chunk, step): {"failures": 1} for chunk in range(first, end)}

    @rule()
    def reopen(self) -> None:
        self.manifest = writer(self.log)

    @rule()
    def rewrite(self) -> None:
        self.manifest._log.rewrite(self.manifest._snapshot())

    def _at(self, rows: RowRange) -> list[int]:
        """The chunk of each row of a range; its part was not removed."""
        key = (rows.part.step, rows.part.first, rows.part.end, rows.part.generation)
        assert key not in self.removed
        return self.content[rows.part.table, key][rows.offset : rows.offset + rows.rows]

    @invariant()
    def says_the_same_as_the_model(self) -> None:
        if not hasattr(self, "manifest"):
            return
        total: Counter[str] = Counter()
        for rows in self.rows.values():
            total.update(rows)
        for view in (self.manifest, Manifest(self.log())):
            assert not view.damaged
            assert +view.counts() == +total
            for chunk in range(CHUNKS):
                assert view.steps(chunk) == {step for at, step in self.rows if at == chunk}
            for step, table in itertools.product(STEPS, TABLES):
                done = sorted(chunk for chunk, name in self.rows if name == step)
                assert view.chunks_with(step) == done
                wanted = [c for c in done for _ in range(self.rows[c, step].get(table, 0))]
                found = view.all_ranges(table, step)
                assert [chunk for rows in found for chunk in self._at(rows)] == wanted
            for table in TABLES:
                found = view.ranges(table, range(CHUNKS))
                assert [(r.chunk, r.part.step) for r in found] == [
                    (chunk, step)
                    for chunk, step in sorted(self.rows)
                    if self.rows[chunk, step].get(table)
                ]
                assert all(set(self._at(rows)) == {rows.chunk} for rows in found)


TestManifestAgainstRows = ManifestAgainstRows.TestCase
TestManifestAgainstRows.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
