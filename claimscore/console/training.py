"""The output of the trainings: plain lines while they work, and their result."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from claimscore.console.progress import plain_lines
from claimscore.console.table import print_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from claimscore.training.ls_score import LSTrainingResult
    from claimscore.training.recipes import TrainingProgress
    from claimscore.training.summac_conv import SummaCTrainingResult


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
