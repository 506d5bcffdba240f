"""Trainings of models on your own data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from claimscore.commands.options import Group, output_options

if TYPE_CHECKING:
    from claimscore.training.recipes import LSTrainingConfig, SummaCTrainingConfig

_RECIPES = "claimscore.training.recipes"


@click.group(cls=Group)
def train() -> None:
    """Train the model of a metric on your own data."""


@train.command("ls-score", settings={"config": f"{_RECIPES}:LSTrainingConfig"})
@output_options
def train_ls_score(config: LSTrainingConfig, quiet: bool, as_json: bool) -> None:
    """Train LS_Score on documents and good summaries."""
    from claimscore.console.training import print_ls_training, training_display
    from claimscore.training.ls_score import train_ls_score as train_model

    print_ls_training(train_model(config, training_display(quiet or as_json)), as_json)


@train.command("summac-conv", settings={"config": f"{_RECIPES}:SummaCTrainingConfig"})
@output_options
def train_summac_conv(config: SummaCTrainingConfig, quiet: bool, as_json: bool) -> None:
    """Train SummaC-Conv on labelled summaries; a run takes it as `summac-conv:weights=FILE`."""
    from claimscore.console.training import print_summac_training, training_display
    from claimscore.training.summac_conv import train_summac_conv as train_model

    print_summac_training(train_model(config, training_display(quiet or as_json)), as_json)
