"""The output of the trainings: plain lines while they work, and their result."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from claimscore.console.progress import plain_lines
from claimscore.console.table import print_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from claimscore.training.linear_head import LinearResult
    from claimscore.training.loop import TrainingProgress
    from claimscore.training.ls_score import LSTrainingResult
    from claimscore.training.nli_training import NLITrainingResult
    from claimscore.training.summac_conv import SummaCTrainingResult


def training_display(quiet: bool) -> Callable[[TrainingProgress], None]:
    """Plain lines about a training, one every few seconds."""
    tell = plain_lines(quiet)

    def show(progress: TrainingProgress) -> None:
        loss = "" if progress.loss is None else f", loss {progress.loss:.4f}"
        tell(f"{progress.stage} {progress.step:,} of {progress.steps:,}{loss}")

    return show


def print_summac_training(result: SummaCTrainingResult, as_json: bool) -> None:
    """Where the weights are, and what they were made from."""
    if as_json:
        print(json.dumps({**dataclasses.asdict(result), "weights": str(result.weights)}))
        return
    held_out = "" if result.validation_loss is None else f", held out {result.validation_loss:.4f}"
    print(
        f"{result.examples:,} summaries, {result.consistent:,} consistent; "
        f"{result.validation_examples:,} held out; {result.without_image:,} without text to compare"
    )
    print(f"weights: {result.weights}   epoch {result.epoch}")
    print(f"cross-entropy: {result.train_loss:.4f}{held_out}")


def print_training(result: NLITrainingResult, as_json: bool) -> None:
    """Where the adapter is, and its accuracy on each dev set."""
    if as_json:
        print(json.dumps({**dataclasses.asdict(result), "adapter": str(result.adapter)}))
        return
    rows = [
        (dev.name, f"{dev.pairs:,}", f"{100 * dev.accuracy:.1f}", f"{100 * dev.ece:.1f}")
        for dev in result.dev
    ]
    print_rows(("set", "pairs", "accuracy", "calibration error"), rows)
    print(f"adapter: {result.adapter}   temperature: {result.temperature:.3f}")


def print_ls_training(result: LSTrainingResult, as_json: bool) -> None:
    """Where the checkpoint is, and how each epoch ranks the held-out records."""
    if as_json:
        epochs = [
            epoch._asdict() | {"kinds": [kind._asdict() for kind in epoch.kinds]}
            for epoch in result.epochs
        ]
        shown = {**dataclasses.asdict(result), "checkpoint": str(result.checkpoint)}
        print(json.dumps({**shown, "epochs": epochs}))
        return
    rows = [
        (
            str(epoch.epoch),
            "" if epoch.train_loss is None else f"{epoch.train_loss:.4f}",
            f"{epoch.validation_loss:.4f}",
            f"{100 * epoch.first_share:.1f}",
        )
        for epoch in result.epochs
    ]
    print_rows(("epoch", "loss", "held-out loss", "good summary first, %"), rows)
    shares = [
        (str(epoch.epoch), kind.kind, str(kind.negatives), *map(_percent, kind[2:]))
        for epoch in (result.epochs[number] for number in sorted({0, result.best_epoch}))
        for kind in epoch.kinds
    ]
    print_rows(("epoch", "held-out negatives", "n", "below, %", "by L", "by S"), shares)
    print(
        f"model: {result.checkpoint}   epoch {result.best_epoch} of {result.records:,} records, "
        f"{result.validation_records:,} held out, {result.skipped:,} could not be used"
    )


def print_linear_training(result: LinearResult, as_json: bool) -> None:
    """Where the held-out scores and the model are."""
    if as_json:
        paths = {"checkpoint": str(result.checkpoint), "scores": str(result.scores)}
        print(json.dumps(dataclasses.asdict(result) | paths))
        return
    print(
        f"scores: {result.scores}   {', '.join(result.columns)}: {result.records:,} records of "
        f"{result.documents:,} documents in {result.folds} folds"
    )
    print(f"model: {result.checkpoint}   of all records")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"
