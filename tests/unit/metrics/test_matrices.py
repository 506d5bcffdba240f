"""One matrix a record out of a table of cells, whatever the order of its rows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.metrics.matrices import NO_CELLS, cells_by_record

sizes = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4)


def table(matrices: list[np.ndarray]) -> pl.DataFrame:
    rows = [
        (str(k), i, j, *matrix[i, j].tolist())
        for k, matrix in enumerate(matrices)
        for i, j in np.ndindex(matrix.shape[:2])
    ]
    return pl.DataFrame(rows, ["id", "row", "column", "x", "y"], orient="row")


@given(sizes, st.integers(0, 99))
def test_shuffled_rows_are_the_matrices(shapes, seed):
    rng = np.random.default_rng(seed)
    matrices = [rng.random((*shape, 2)) for shape in shapes]
    found = cells_by_record(table(matrices).sample(fraction=1, shuffle=True, seed=seed))
    for k, matrix in enumerate(matrices):
        assert found[str(k)].shape == matrix.shape[:2]
        assert (found[str(k)].matrix(matrix.shape[:2]) == matrix).all()


@pytest.mark.parametrize(
    ("change", "n_found"),
    [
        pytest.param(lambda rows: rows[1:], 5, id="missing"),
        pytest.param(lambda rows: [*rows, rows[0]], 6, id="twice"),
        pytest.param(lambda rows: [*rows[1:], rows[1]], 5, id="twice in place of another"),
        pytest.param(lambda rows: [*rows, ("x", None, 0, 0.5)], 6, id="no row"),
        pytest.param(lambda rows: [*rows[:-1], ("x", 2, -1, 0.5)], 5, id="negative column"),
        pytest.param(lambda rows: [*rows[:-1], ("x", 0, 5, 0.5)], 5, id="beyond the last column"),
    ],
)
def test_a_matrix_has_each_cell_once(change, n_found):
    rows = [("x", i, j, 0.5) for i, j in np.ndindex(2, 3)]
    frame = pl.DataFrame(change(rows), ["id", "row", "column", "v"], orient="row")
    found = cells_by_record(frame)["x"]
    assert found.matrix((2, 3)) is None
    assert found.n_found((2, 3)) == n_found


def test_a_record_without_rows_has_no_cells():
    assert NO_CELLS.shape == (0, 0)
    assert NO_CELLS.matrix((1, 2)) is None
    assert NO_CELLS.matrix((1, 0)).shape == (1, 0, 1), "one side has no facts"
