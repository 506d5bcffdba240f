"""The manifest: what a kill leaves of its file, and any changes against a model."""

import itertools
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from claimscore.runs.manifest import MOST_CHUNKS, Manifest
from claimscore.runs.parts import Checksum, Part

STEPS, TABLES, CHUNKS = ("facts", "decompose-a", "nli"), ("claims", "failures"), 12


def finish(manifest: Manifest, chunk: int, step: str, **rows: int) -> None:
    sums = {table: Checksum(10 * n, 1) for table, n in rows.items() if n}
    manifest.add(chunk, step, [Part(t, chunk, step, rows[t], sums[t]) for t in sums])


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
    assert (again.chunks_with("a"), again.damaged) == ([0], "")
    finish(again, 1, "a", claims=2)
    assert Manifest(path).counts() == {"claims": 3}
    assert path.read_bytes().count(b"\n") == 2
    with path.open("a") as stream:
        stream.write('12345678 {"step":"a"')  # half a line of a full disk
    finish(again, 2, "a", claims=1)
    assert (Manifest(path).chunks_with("a"), Manifest(path).damaged) == ([0, 1, 2], "")


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
    """The model keeps the rows of each finished step."""

    @initialize()
    def open(self) -> None:
        self.patch, self.folder = pytest.MonkeyPatch(), tempfile.TemporaryDirectory()
        self.patch.setattr("os.fsync", lambda _: None)
        self.path = Path(self.folder.name) / "manifest.log"
        self.manifest = writer(self.path)
        self.rows: dict[tuple[int, str], dict[str, int]] = {}

    def teardown(self) -> None:
        if hasattr(self, "manifest"):
            self.patch.undo()
            self.folder.cleanup()

    @rule(
        chunk=chunks,
        step=st.sampled_from(STEPS),
        rows=st.fixed_dictionaries({table: st.integers(0, 3) for table in TABLES}),
    )
    def finish(self, chunk: int, step: str, rows: dict[str, int]) -> None:
        finish(self.manifest, chunk, step, **rows)
        self.rows[chunk, step] = rows

    @rule(undone=st.dictionaries(st.sampled_from([*STEPS, "none"]), st.sets(chunks)))
    def undo(self, undone: dict[str, set[int]]) -> None:
        gone = self.manifest.undo(undone)
        rows = [self.rows.pop((n, step), {}) for step in undone for n in undone[step]]
        assert sum(part.rows for part in gone) == sum(sum(some.values()) for some in rows)

    @rule()
    def reopen(self) -> None:
        self.manifest = writer(self.path)

    @rule()
    def damage(self) -> None:
        """After a line that is no entry nothing is finished."""
        with self.path.open("ab") as stream:
            stream.write(b"no entry\n")
        assert Manifest(self.path).damaged.endswith(": damaged")
        writer(self.path)
        self.manifest, self.rows = writer(self.path), {}

    @invariant()
    def says_the_same_as_the_model(self) -> None:
        if not hasattr(self, "manifest"):
            return
        total: Counter[str] = Counter()
        for rows in self.rows.values():
            total.update(rows)
        for view in (self.manifest, Manifest(self.path)):
            assert not view.damaged
            assert view.counts() == +total
            for chunk in range(CHUNKS):
                assert view.steps(chunk) == {step for at, step in self.rows if at == chunk}
            for step, table in itertools.product(STEPS, TABLES):
                done = sorted(chunk for chunk, name in self.rows if name == step)
                assert view.chunks_with(step) == done
                parts = view.parts(table, step)
                counts = [(c, n) for c in done if (n := self.rows[c, step][table])]
                assert [(part.chunk, part.rows) for part in parts] == counts
            for table, chunk in itertools.product(TABLES, range(CHUNKS)):
                assert [part.step for part in view.parts(table, chunk=chunk)] == [
                    step for step in sorted(STEPS) if self.rows.get((chunk, step), {}).get(table)
                ]


TestManifestAgainstRows = ManifestAgainstRows.TestCase
TestManifestAgainstRows.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
