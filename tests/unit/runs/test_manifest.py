"""The manifest: what a kill leaves of its file, and any changes against a model."""

import dataclasses
import itertools
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from claimscore.runs import manifest as manifest_module
from claimscore.runs.manifest import MOST_CHUNKS, Manifest
from claimscore.runs.parts import Checksum, PartSet, RowRange

STEPS, TABLES, CHUNKS = ("facts", "decompose-a", "nli"), ("claims", "failures"), 12


def written(parts: PartSet) -> PartSet:
    """The set once its files are written."""
    sums = {table: Checksum(10 * sum(counts), 1) for table, counts in parts.rows.items()}
    return dataclasses.replace(parts, checksums={t: s for t, s in sums.items() if s.size})


def finish(manifest: Manifest, chunk: int, step: str, **rows: int) -> list[PartSet]:
    parts = manifest.new_set(step, chunk, chunk + 1, {table: [n] for table, n in rows.items()})
    return manifest.add(written(parts))


def writer(path: Path) -> Manifest:
    manifest = Manifest(path)
    manifest.open_for_writing()
    return manifest


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_torn_last_line_is_ignored(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "manifest.log"
    manifest = writer(path)
    finish(manifest, 0, "a", claims=1)
    finish(manifest, 1, "a", claims=1)
    path.write_bytes(path.read_bytes()[:-cut])
    again = writer(path)
    assert (again.chunks_with("a"), again.damaged) == ([0], [])
    finish(again, 1, "a", claims=2)
    assert Manifest(path).counts() == {"claims": 3}
    assert path.read_bytes().count(b"\n") == 2
    with path.open("a") as stream:
        stream.write('12345678 {"step":"a"')  # half a line of a full disk
    finish(again, 2, "a", claims=1)
    assert (Manifest(path).chunks_with("a"), Manifest(path).damaged) == ([0, 1, 2], [])


def test_a_far_chunk_takes_no_room(tmp_path: Path) -> None:
    """Lines of a stranger: a list up to the chunk would take 128 MB for each step."""
    path, far = tmp_path / "manifest.log", MOST_CHUNKS - 1
    tracemalloc.start()
    manifest = writer(path)
    for step in map(str, range(40)):
        finish(manifest, far, step)
    assert Manifest(path).steps(far) == manifest.steps(far) == {*map(str, range(40))}
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


# Any changes

chunks = st.integers(0, CHUNKS - 1)


class ManifestAgainstRows(RuleBasedStateMachine):
    """The model keeps the rows of each finished step, and the content of every part."""

    @initialize(lines=st.sampled_from([4, 4096]))
    def open(self, lines: int) -> None:
        """The file is shortened often, or never."""
        self.patch, self.folder = pytest.MonkeyPatch(), tempfile.TemporaryDirectory()
        self.patch.setattr("os.fsync", lambda _: None)
        self.patch.setattr(manifest_module, "_LINES", lines)
        self.patch.setattr(manifest_module, "_GROWTH", 1)
        self.path = Path(self.folder.name) / "manifest.log"
        self.manifest = writer(self.path)
        self.rows: dict[tuple[int, str], dict[str, int]] = {}
        #: The chunk of each row, by the name of the part.
        self.content: dict[str, list[int]] = {}

    def teardown(self) -> None:
        if hasattr(self, "manifest"):
            self.patch.undo()
            self.folder.cleanup()

    def _remove(self, superseded: list[PartSet]) -> None:
        for name in itertools.chain(*(old.names() for old in superseded)):
            del self.content[name]

    def _add(self, parts: PartSet) -> None:
        new = written(parts)
        for table in new.checksums:
            heights = zip(range(new.first, new.end), new.rows[table], strict=True)
            assert new.name(table) not in self.content
            self.content[new.name(table)] = [chunk for chunk, n in heights for _ in range(n)]
        self._remove(self.manifest.add(new))

    @rule(
        chunk=chunks,
        step=st.sampled_from(STEPS),
        rows=st.fixed_dictionaries({table: st.integers(0, 3) for table in TABLES}),
    )
    def finish(self, chunk: int, step: str, rows: dict[str, int]) -> None:
        counts = {table: [n] for table, n in rows.items()}
        self._add(self.manifest.new_set(step, chunk, chunk + 1, counts))
        self.rows[chunk, step] = rows

    @rule(undone=st.dictionaries(st.sampled_from([*STEPS, "none"]), st.lists(chunks)))
    def undo(self, undone: dict[str, list[int]]) -> None:
        self._remove(self.manifest.undo(undone))
        for step, numbers in undone.items():
            for chunk in numbers:
                self.rows.pop((chunk, step), None)

    @rule(step=st.sampled_from(STEPS), first=chunks, size=st.integers(2, 6))
    def compact(self, step: str, first: int, size: int) -> None:
        parts = self.manifest.compactable(step, first, first + size)
        if parts is not None:
            self._add(parts)

    @rule(step=st.sampled_from(STEPS), first=chunks, size=st.integers(1, 4))
    def write_some(self, step: str, first: int, size: int) -> None:
        """One file for a few chunks, as records are written."""
        end = min(CHUNKS, first + size)
        self._add(self.manifest.new_set(step, first, end, {"failures": [1] * (end - first)}))
        self.rows |= {(chunk, step): {"failures": 1} for chunk in range(first, end)}

    @rule()
    def reopen(self) -> None:
        self.manifest = writer(self.path)

    def _at(self, rows: RowRange) -> list[int]:
        """The chunk of each row of a range; its part was not removed."""
        return self.content[rows.parts.name(rows.table)][rows.offset : rows.offset + rows.rows]

    @invariant()
    def says_the_same_as_the_model(self) -> None:
        if not hasattr(self, "manifest"):
            return
        total: Counter[str] = Counter()
        for rows in self.rows.values():
            total.update(rows)
        for view in (self.manifest, Manifest(self.path)):
            assert not view.damaged
            assert +view.counts() == +total
            for chunk in range(CHUNKS):
                assert view.steps(chunk) == {step for at, step in self.rows if at == chunk}
            for step, table in itertools.product(STEPS, TABLES):
                done = sorted(chunk for chunk, name in self.rows if name == step)
                assert view.chunks_with(step) == done
                wanted = [c for c in done for _ in range(self.rows[c, step].get(table, 0))]
                ranges = view.ranges(table, step)
                assert [chunk for rows in ranges for chunk in self._at(rows)] == wanted
            for table, chunk in itertools.product(TABLES, range(CHUNKS)):
                ranges = view.ranges(table, None, chunk, chunk + 1)
                assert [rows.parts.step for rows in ranges] == [
                    step for step in sorted(STEPS) if self.rows.get((chunk, step), {}).get(table)
                ]
                assert all(set(self._at(rows)) == {chunk} for rows in ranges)


TestManifestAgainstRows = ManifestAgainstRows.TestCase
TestManifestAgainstRows.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
