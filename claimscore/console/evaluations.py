"""Evaluations, comparisons and trainings on a terminal."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from claimscore.console import plain
from claimscore.console.progress import plain_lines
from claimscore.console.table import print_rows, print_table, print_text

if TYPE_CHECKING:
    from claimscore.evaluation.result import Section
    from claimscore.training.ls_score import LSTrainingResult
    from claimscore.training.recipes import TrainingProgress
    from claimscore.training.summac_conv import SummaCTrainingResult


def print_lines(lines: Sequence[str]) -> None:
    """What is to be known first, and a few lines more."""
    for number, line in enumerate(lines):
        print_text(plain(line), "" if number else "bold")


def print_sections(sections: Iterable[Section], page: Path | None = None) -> None:
    """Each section as a table, intervals under their values, with its notes beneath."""
    for section in sections:
        print_text(plain(section.title), "bold")
        header = [plain(name) for name in section.header]
        rows = [[plain(cell) for cell in row] for row in section.rows]
        if section.compares_texts:
            print_rows(header, rows)
        else:
            print_table(header, [[cell.replace(" [", "\n[") for cell in row] for row in rows])
        for note in section.notes:
            print_text(plain(note))
        print()
    if page is not None:
        print(f"page: {plain(str(page))}")


def training_display(quiet: bool) -> Callable[[TrainingProgress], None]:
    """Plain lines about a training, one every few seconds."""
    show_line = plain_lines(quiet)

    def show(progress: TrainingProgress) -> None:
        loss = "" if progress.loss is None else f", loss {progress.loss:.4f}"
        show_line(f"{progress.stage}: {progress.step:,} of {progress.steps:,}{loss}")

    return show


def print_summac_training(result: SummaCTrainingResult, as_json: bool) -> None:
    """Where the weights are, and what they were made from."""
    if as_json:
        print(json.dumps({**dataclasses.asdict(result), "weights": str(result.weights)}))
        return
    other = "" if result.held_out_loss is None else f", held out {result.held_out_loss:.4f}"
    print(
        f"{result.examples:,} summaries, {result.consistent:,} consistent; "
        f"{result.held_out:,} held out; {result.skipped:,} without text to compare"
    )
    print(f"weights: {result.weights}   epoch {result.epoch}")
    print(f"cross-entropy: {result.train_loss:.4f}{other}")


def print_ls_training(result: LSTrainingResult, as_json: bool) -> None:
    """Where the model is, and how each epoch ranks the held-out records."""
    if as_json:
        epochs = [epoch._asdict() for epoch in result.epochs]
        print(json.dumps({**vars(result), "model": str(result.model), "epochs": epochs}))
        return
    rows = [
        (
            str(epoch.epoch),
            "" if epoch.train_loss is None else f"{epoch.train_loss:.4f}",
            f"{epoch.held_out_loss:.4f}",
            f"{100 * epoch.first_share:.1f}",
        )
        for epoch in result.epochs
    ]
    print_rows(("epoch", "loss", "held-out loss", "good summary first, %"), rows)
    print(
        f"model: {result.model}   epoch {result.best_epoch} of {result.records:,} records, "
        f"{result.held_out:,} held out, {result.skipped:,} could not be used"
    )
