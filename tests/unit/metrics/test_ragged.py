"""Metrics over a chunk's tables are the public functions of each record, whatever the table."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.metrics import caspr_from_labels, load_metric, summac_conv, summac_zs
from claimscore.metrics.base import ChunkTables, Score
from claimscore.metrics.fact_similarity import factsim_from_similarities
from claimscore.metrics.ragged import (
    Cells,
    Shapes,
    arrange,
)
from claimscore.metrics.summac.weights import as_weights
from claimscore.metrics.summac.zero_shot import SETTINGS
from tests.support.frames import tables
from tests.unit.metrics.summac.test_convolution import state

LONG = "a text of more than ten characters"
LABELS = ("entailment", "neutral", "contradiction")
FLAWS = ("none", "none", "none", "missing", "twice", "stray", "nan", "null", "failed")

Row = dict[str, Any]


class Record(NamedTuple):
    """Sizes of the two sides, the random numbers, and what is wrong."""

    n: int
    m: int
    seed: int
    flaw: str

    @property
    def whole(self) -> bool:
        return bool(self.n and self.m) and self.flaw == "none"

    def matrix(self, *layers: int) -> np.ndarray:
        rng = np.random.default_rng(self.seed)
        return rng.choice([0.0, 0.25, 0.5, 0.75, 1.0], (self.n, self.m, *layers)).astype(np.float32)


records = st.lists(
    st.builds(
        Record,
        st.integers(0, 4),
        st.integers(0, 4),
        st.integers(0, 999),
        st.sampled_from(FLAWS),
    ),
    min_size=1,
    max_size=6,
)


def spoil(record: Record, rows: list[Row], value: str, index: str) -> list[Row]:
    """The rows of a record with its flaw."""
    if not rows:
        return rows
    at = record.seed % len(rows)
    if record.flaw == "missing":
        return rows[:at] + rows[at + 1 :]
    if record.flaw == "twice":
        return [*rows, rows[at]]
    if record.flaw == "stray":
        return [*rows, rows[at] | {index: None}]
    if record.flaw in ("nan", "null"):
        rows[at] = rows[at] | {value: float("nan") if record.flaw == "nan" else None}
    return rows


def chunk(given: list[Record], stage: str, seed: int, **rows: list[Row]) -> ChunkTables:
    """The tables in an order of their own, with rows of a record that there is not."""
    for name, of_table in rows.items():
        rows[name] = of_table + [row | {"id": "another"} for row in of_table[:2]]
        random.Random(seed).shuffle(rows[name])
    failures = [
        {"id": str(k), "stage": stage, "message": "m"}
        for k, record in enumerate(given)
        if record.flaw == "failed"
    ]
    of_records = [{"id": str(k), "source": LONG, "summary": LONG} for k in range(len(given))]
    return tables(of_records, failures=failures, **rows)


def check(given: list[Record], scores: list[Score], expected: Any) -> None:
    """The function's value for whole records, for others null with a reason."""
    assert [score.id for score in scores] == [str(k) for k in range(len(given))]
    for record, score in zip(given, scores, strict=True):
        if record.whole:
            assert score.value == pytest.approx(expected(record), abs=1e-12)
            assert score.reason is None
        else:
            assert score.value is None
            assert score.reason


def grid_rows(
    k: int, matrix: np.ndarray, first: str, second: str, columns: tuple[str, ...], **more: Any
) -> list[Row]:
    return [
        {"id": str(k), first: i, second: j, **more}
        | dict(zip(columns, np.atleast_1d(matrix[i, j]).tolist(), strict=True))
        for i in range(matrix.shape[0])
        for j in range(matrix.shape[1])
    ]


def caspr_tables(given: list[Record], seed: int) -> ChunkTables:
    claims, nli = [], []
    for k, record in enumerate(given):
        for side, n in (("a", record.n), ("b", record.m)):
            claims += [{"id": str(k), "side": side, "claim_index": i} for i in range(n)]
        there, back = directions(record)
        rows = [
            *grid_rows(k, there, *INDICES, LABELS, premise_side="a", hypothesis_side="b"),
            *grid_rows(k, back, *INDICES, LABELS, premise_side="b", hypothesis_side="a"),
        ]
        nli += spoil(record, rows, "neutral", "premise_index")
    return chunk(given, "nli", seed, claims=claims, nli=nli)


INDICES = ("premise_index", "hypothesis_index")


def directions(record: Record) -> tuple[np.ndarray, np.ndarray]:
    both = record.matrix(2, 3)
    return both[:, :, 0], both[:, :, 1].transpose(1, 0, 2)


@settings(deadline=None, max_examples=40)
@given(records, st.integers(0, 99))
def test_caspr_of_tables_is_the_function(given, seed):
    """Ties between probabilities included."""
    found = load_metric("caspr").score(caspr_tables(given, seed))
    check(given, found, lambda record: caspr_from_labels(*directions(record)))


def image_tables(given: list[Record], seed: int) -> ChunkTables:
    sides = {"premise_side": "source", "hypothesis_side": "summary"}
    cuts = {"premise_cut": "sentence", "hypothesis_cut": "sentence"}
    rows = []
    for k, record in enumerate(given):
        own = grid_rows(k, record.matrix(3), *INDICES, LABELS, **sides, **cuts)
        if record.flaw == "missing":
            # The others show that the first is lost; of one row or column they do not.
            rows += own[1:] if min(record.n, record.m) > 1 else []
        elif record.flaw != "failed":
            rows += spoil(record, own, "entailment", "hypothesis_index")
    return chunk(given, "block_nli", seed, block_nli=rows)


@settings(deadline=None, max_examples=25)
@given(records, st.integers(0, 99), st.sampled_from(SETTINGS))
def test_summac_zs_of_tables_is_the_function(given, seed, setting):
    """Every operator and variant."""
    op1, op2, variant = setting
    metric = load_metric(f"summac-zs:op1={op1}:op2={op2}:variant={variant}")
    check(
        given,
        metric.score(image_tables(given, seed)),
        lambda record: summac_zs(record.matrix(3), op1=op1, op2=op2, variant=variant),
    )


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    as_weights(state(46)).save(path, {"labels": "ec"})
    return load_metric(f"summac-conv:weights={path}"), path


@settings(deadline=None, max_examples=25)
@given(records, st.integers(0, 99))
def test_summac_conv_of_tables_is_the_function(conv, given, seed):
    """Histograms of several records do not mix."""
    metric, path = conv
    check(
        given,
        metric.score(image_tables(given, seed)),
        lambda record: summac_conv(record.matrix(3), path, labels="ec"),
    )


def fact_tables(given: list[Record], seed: int) -> ChunkTables:
    facts, cells = [], []
    more = {"unit": "fact", "row_side": "source", "column_side": "summary"}
    for k, record in enumerate(given):
        for side, n in (("source", record.n), ("summary", record.m)):
            facts += [
                {"id": str(k), "side": side, "index": i, "subject": side, "description": str(i)}
                for i in range(n)
            ]
        rows = grid_rows(
            k, record.matrix() * 2 - 1, "row_index", "column_index", ("similarity",), **more
        )
        cells += spoil(record, rows, "similarity", "row_index")
    return chunk(given, "facts", seed, facts=facts, similarities=cells)


@settings(deadline=None, max_examples=40)
@given(records, st.integers(0, 99))
def test_factsim_of_tables_is_the_function(given, seed):
    """Negative cosines included; the matches are those of the matrix."""
    found = load_metric("factsim").score(fact_tables(given, seed))
    check(given, found, lambda record: factsim_from_similarities(record.matrix() * 2 - 1).score)
    for record, score in zip(given, found, strict=True):
        if record.whole:
            matrix = record.matrix() * 2 - 1
            for side, places in (
                ("source", matrix.argmax(axis=1)),
                ("summary", matrix.argmax(axis=0)),
            ):
                matches = [item["match"].split()[1] for item in score.components[f"matches_{side}"]]
                assert matches == [str(place) for place in places]


# The arrays themselves


def test_a_cell_outside_its_matrix_makes_it_incomplete():
    """It takes no other cell's place, also not that of the next record."""
    frame = pl.DataFrame(
        {"id": ["x", "x", "y"], "row": [0, 1, 0], "column": [0, 0, 0], "v": [1.0, 2.0, 3.0]}
    )
    ones = np.ones(2, dtype=np.int64)
    found = arrange(Cells.read(pl.Series(["x", "y"]), frame), Shapes(ones, ones))
    assert found.complete.tolist() == [False, True]
    assert found.records.tolist() == [1]
    assert found.values.tolist() == [[3.0]]
