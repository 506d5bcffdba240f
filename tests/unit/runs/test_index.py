"""The index of finished steps says the same as a plain dictionary, whatever came before."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from claimscore.runs.index import Merged, Part, PartIndex, Place

STEPS = ("facts", "decompose-a", "nli")
TABLES = ("claims", "failures")
CHUNKS = 12

steps = st.sampled_from(STEPS)
chunks = st.integers(0, CHUNKS - 1)
counts = st.fixed_dictionaries({table: st.integers(0, 3) for table in TABLES})


class IndexAgainstRows(RuleBasedStateMachine):
    """The model keeps, for each finished step, its rows and the content of every file."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PartIndex()
        self.rows: dict[tuple[int, str], dict[str, int]] = {}
        self.own: set[tuple[int, str]] = set()
        #: What a merged file holds of a table: the chunk of each row.
        self.content: dict[tuple[str, Merged, str], list[int]] = {}

    @rule(chunk=chunks, step=steps, rows=counts)
    def finish(self, chunk: int, step: str, rows: dict[str, int]) -> None:
        self.index.finish(chunk, step, rows)
        self.rows[chunk, step] = rows
        self.own.add((chunk, step))

    @rule(chunk=chunks, step=steps)
    def strike(self, chunk: int, step: str) -> None:
        self.index.strike(chunk, step)
        self.rows.pop((chunk, step), None)
        self.own.discard((chunk, step))

    @rule(step=steps, first=chunks, size=st.integers(1, 6))
    def merge(self, step: str, first: int, size: int) -> None:
        end = min(CHUNKS, first + size)
        members = [chunk for chunk in range(first, end) if (chunk, step) in self.rows]
        if not members:
            return
        file = self.index.new_file(step, first, end)
        rows: dict[str, list[int | None]] = {
            table: [
                self.rows[chunk, step][table] if chunk in members else None
                for chunk in range(first, end)
            ]
            for table in TABLES
        }
        self.index.merge(step, file, rows)
        for table in TABLES:
            self.content[step, file, table] = [
                chunk for chunk in members for _ in range(self.rows[chunk, step][table])
            ]
        self.own -= {(chunk, step) for chunk in members}

    @invariant()
    def same_steps_and_counts(self) -> None:
        total: Counter[str] = Counter()
        for chunk in range(CHUNKS):
            done = frozenset(step for at, step in self.rows if at == chunk)
            assert self.index.steps(chunk) == done
            for step in STEPS:
                parts = self.index.parts(chunk, step)
                assert (parts is not None) == (step in done)
                if parts is not None:
                    assert {p.table: p.rows for p in parts} == self.rows[chunk, step]
                    total.update(self.rows[chunk, step])
        assert +Counter(self.index.counts()) == +total
        for step in STEPS:
            assert self.index.steps_done(step) == sum(name == step for _, name in self.rows)

    @invariant()
    def places_hold_the_chunks_rows(self) -> None:
        for table in TABLES:
            seen = [
                self._rows_at(table, place) for place in self.index.places(table, range(CHUNKS))
            ]
            wanted = [
                [chunk] * self.rows[chunk, step][table]
                for chunk in range(CHUNKS)
                for step in sorted(STEPS)
                if self.rows.get((chunk, step), {}).get(table)
            ]
            assert seen == wanted

    @invariant()
    def all_places_have_every_row_once(self) -> None:
        for table in TABLES:
            for step in STEPS:
                rows = [
                    row
                    for place in self.index.all_places(table, step)
                    for row in self._rows_at(table, place)
                ]
                assert rows == [
                    chunk
                    for chunk in range(CHUNKS)
                    for _ in range(self.rows.get((chunk, step), {}).get(table, 0))
                ]

    @invariant()
    def its_entries_lead_to_it(self) -> None:
        again = PartIndex()
        for entry in self.index.entries():
            again.apply(entry)
        for chunk in range(CHUNKS):
            assert again.finished(chunk) == self.index.finished(chunk)
        assert +Counter(again.counts()) == +Counter(self.index.counts())
        assert again.all_steps() == self.index.all_steps()

    def _rows_at(self, table: str, place: Place) -> list[int]:
        if place.file is None:
            assert (place.chunk, place.step) in self.own
            return [place.chunk] * place.rows
        content = self.content[place.step, place.file, table]
        return content[place.offset : place.offset + place.rows]


TestIndexAgainstRows = IndexAgainstRows.TestCase
TestIndexAgainstRows.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)


@given(st.integers(0, 200))
def test_any_chunk_may_come_first(chunk: int) -> None:
    """The arrays grow to wherever the first finished chunk is."""
    index = PartIndex()
    index.finish(chunk, "nli", {"nli": 2})
    assert index.parts(chunk, "nli") == (Part("nli", 2),)
    assert index.steps(chunk + 1) == frozenset()
    assert [place.chunk for place in index.all_places("nli")] == [chunk]
