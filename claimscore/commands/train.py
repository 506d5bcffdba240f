"""Trainings: of the models that claimscore ships, or of your own on your data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from claimscore.commands.options import Group, output_options

if TYPE_CHECKING:
    from claimscore.training.recipes import (
        LSTrainingConfig,
        NLITrainingConfig,
        SummaCTrainingConfig,
    )

_RECIPES = "claimscore.training.recipes"


@click.group(cls=Group)
def train() -> None:
    """Train a model that claimscore ships, or one on your own data."""


@train.command("nli", settings={"config": f"{_RECIPES}:NLITrainingConfig"})
@output_options
def train_nli(config: NLITrainingConfig, quiet: bool, as_json: bool) -> None:
    """Train an adapter of the embedded NLI model.

    Run the same command again after any stop: it goes on from its last checkpoint.
    """
    from claimscore.console.training import print_training, training_display
    from claimscore.training.nli_training import train_nli as train_and_evaluate

    print_training(train_and_evaluate(config, training_display(quiet or as_json)), as_json)


@train.command("ls-score", settings={"config": f"{_RECIPES}:LSTrainingConfig"})
@output_options
def train_ls_score(config: LSTrainingConfig, quiet: bool, as_json: bool) -> None:
    """Train LS_Score on documents and good summaries.

    Run the same command again after any stop: it goes on after its last epoch. With --head
    bert-linear --ratings A,B it is a regression on ratings of people, scored fold by fold.
    """
    from claimscore.console.training import (
        print_linear_training,
        print_ls_training,
        training_display,
    )
    from claimscore.training.linear_head import train_linear
    from claimscore.training.ls_score import train as train_ls

    if config.ratings:
        print_linear_training(train_linear(config), as_json)
        return
    print_ls_training(train_ls(config, training_display(quiet or as_json)), as_json)


@train.command("summac-conv", settings={"config": f"{_RECIPES}:SummaCTrainingConfig"})
@output_options
def train_summac_conv(config: SummaCTrainingConfig, quiet: bool, as_json: bool) -> None:
    """Train SummaC-Conv on labelled summaries; a run takes it as `summac-conv:weights=FILE`.

    Run the same command again after any stop, or with other bins: the NLI is not computed again.
    """
    from claimscore.console.training import print_summac_training, training_display
    from claimscore.training.summac_conv import train_summac_conv as train_conv

    print_summac_training(train_conv(config, training_display(quiet or as_json)), as_json)
