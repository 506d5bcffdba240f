"""Texts, parts of them, and what they cost a model."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from workloads import (
    BASE,
    LARGE,
    Shape,
    block,
    distinct_texts,
    find_workloads,
    padded_tokens,
    read_pairs,
    read_texts,
    spread,
)

from tests.support.shared_data import shared


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pairs of w1 and two sentences."""
    pairs = {"group": ["g", "g"], "premise": ["a", "b"], "hypothesis": ["b", "c"]}
    pl.DataFrame(pairs).write_parquet(tmp_path / "w1.parquet")
    pl.DataFrame({"sentence": ["d", "a"]}).write_parquet(tmp_path / "w2.parquet")
    return tmp_path


def test_reads_pairs_and_texts(folder: Path) -> None:
    """In the order of the file."""
    assert read_pairs(folder, "w1") == [("a", "b"), ("b", "c")]
    assert read_texts(folder) == ["d", "a"]


def test_distinct_texts_of_the_files_that_are_there(folder: Path) -> None:
    """Each once, sorted, so that the tokenizer made from them is always the same."""
    assert distinct_texts(folder) == ["a", "b", "c", "d"]


def test_no_workloads_is_said_in_one_line(tmp_path: Path) -> None:
    """With the option that helps."""
    with pytest.raises(SystemExit, match="--workloads"):
        find_workloads(tmp_path)


def test_named_workloads_are_found(folder: Path) -> None:
    """Where `--workloads` points."""
    assert find_workloads(folder) == folder


def test_spread_keeps_the_order_and_the_ends() -> None:
    """Evenly over all of them; never more than there are."""
    assert spread(range(10), 5) == [0, 2, 4, 6, 8]
    assert spread(range(3), 5) == [0, 1, 2]


def test_block_is_of_neighbours() -> None:
    """From the middle."""
    assert block(range(10), 4) == [3, 4, 5, 6]
    assert block(range(3), 5) == [0, 1, 2]


def test_work_of_one_token_counted_by_hand() -> None:
    """One layer of width 2 and 8: 2 * (4 * 4 + 2 * 16) operations, and 4 * 2 of attention."""
    assert Shape(1, 2, 8).gflop([1]) == pytest.approx((2 * (16 + 32) + 8) / 1e9)


def test_work_grows_with_the_square_only_in_attention() -> None:
    """Two sequences cost what they cost alone; one of double length costs more."""
    assert BASE.gflop([10, 10]) == pytest.approx(2 * BASE.gflop([10]))
    assert BASE.gflop([20]) > BASE.gflop([10, 10])


def test_padded_tokens_counted_by_hand() -> None:
    """Batches of two: (3, 1) and (2), then sorted: (3, 2) and (1)."""
    assert padded_tokens([3, 1, 2], [0, 1, 2], 2) == 6 + 2
    assert padded_tokens([3, 1, 2], [0, 2, 1], 2) == 6 + 1


def test_w1_costs_what_is_published() -> None:
    """6.5 and 23.1 GFLOP a pair at 38 tokens on average (attention a little above its mean)."""
    folder = shared("data/encoder_workloads/w1.parquet").parent
    assert len(read_pairs(folder, "w1")) == 17_634
    assert BASE.gflop([38]) == pytest.approx(6.52, rel=0.01)
    assert LARGE.gflop([38]) == pytest.approx(23.1, rel=0.01)
