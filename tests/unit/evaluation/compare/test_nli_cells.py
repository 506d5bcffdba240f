"""NLI labels that flipped: of the same texts, of reworded ones, and in one run only."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from claimscore.evaluation.compare.nli_cells import (
    CellTexts,
    JudgedLabel,
    block_texts,
    compare_cells,
    label_agreement,
    record_cells,
)
from claimscore.evaluation.compared_run import open_run
from claimscore.pipeline.encoders.protocols import NLI_LABELS
from tests.support.compared_runs import write_run

E, N, C = NLI_LABELS


def judged(label: str) -> JudgedLabel:
    return JudgedLabel(label, (1.0, 0.0, 0.0))


def cells(**labels: str) -> dict[CellTexts, JudgedLabel]:
    """`ab=label` is the pair of texts a and b."""
    return {CellTexts("a", pair[0], "b", pair[1]): judged(label) for pair, label in labels.items()}


def test_only_other_labels_of_the_same_texts_flip():
    found = compare_cells("nli", cells(pq=E, pr=N, ps=C), cells(pq=C, pr=N, pt=E, pu=E))
    assert [(flip.cell[1::2], flip.a.label, flip.b.label) for flip in found.flips] == [
        (("p", "q"), E, C)
    ]
    assert (found.shared, found.only_a, found.only_b) == (2, {C: 1}, {E: 2})
    assert not found.flips[0].reworded


def test_a_reworded_claim_keeps_its_cells():
    found = compare_cells("nli", cells(pq=E, xq=N), cells(oq=C, xq=N), {("a", "o"): "p"})
    (flip,) = found.flips
    assert flip.reworded
    assert (flip.cell.premise, flip.cell_b.premise) == ("p", "o")
    assert (found.shared, found.only_a, found.only_b) == (2, {}, {})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    labels = {("r", "a", 0, "b", 0): E, ("r", "a", 1, "b", 0): N, ("r", "b", 0, "a", 0): C}
    return write_run(tmp_path / "run", ["r", "s"], labels=labels)


def test_cells_of_a_run_are_found_by_their_texts(run: Path):
    texts = {"r": {("a", 0): "p", ("b", 0): "q"}, "s": {}}
    found = record_cells(open_run("A", run), "nli", texts)
    assert {cell: judged.label for cell, judged in found["r"].items()} == {
        CellTexts("a", "p", "b", "q"): E,
        CellTexts("b", "q", "a", "p"): C,
    }
    assert "s" not in found


def test_labels_of_the_same_places(run: Path, tmp_path: Path):
    labels = {("r", "a", 0, "b", 0): E, ("r", "a", 1, "b", 0): C, ("s", "a", 0, "b", 0): C}
    other = write_run(tmp_path / "other", ["r", "s"], labels=labels)
    sources = open_run("A", run), open_run("B", other)
    found = label_agreement(*sources, "nli", pl.Series(["r"]))
    assert found is not None
    assert found.counts == {(E, E): 1, (N, C): 1}
    assert (found.cells, found.flipped, found.share_same) == (2, 1, 0.5)
    assert label_agreement(*sources, "block_nli", pl.Series(["r"])) is None
    both = label_agreement(*sources, "nli", pl.Series(["r", "s"]))
    assert both is not None
    assert (both.records, both.cells) == (1, 2), "s has cells in one run only"


def test_blocks_are_cut_as_the_pass_cuts_them():
    record = {
        "sources": ["The first of them is long.", "And the second one is long too. A third here."],
        "summary": "One summary of all of them.",
        "summary_a": None,
    }
    sides = ["source.sentence", "summary.sentence", "source.unknown", "a.sentence"]
    assert block_texts(record, sides) == {
        ("source.sentence", 0): "The first of them is long.",
        ("source.sentence", 1): "And the second one is long too.",
        ("source.sentence", 2): "A third here.",
        ("summary.sentence", 0): "One summary of all of them.",
    }
