"""Training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from claimscore.commands.options import FOLDER, complete_file, names, output_options
from claimscore.config import EncoderConfig


@click.group()
def train() -> None:
    """Train what claimscore ships, or your own on your data."""


@train.command("nli")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    required=True,
    help="Parquet files of labelled pairs, or folders of train*.parquet and dev_*.parquet.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--backbone", type=FOLDER, help="A folder with all-MiniLM-L6-v2.")
@click.option("--samples", type=int, help="Pairs in all; the default is the shipped adapter's.")
@click.option("--seed", type=int, default=0, show_default=True)
@output_options
def train_nli(out: Path, quiet: bool, as_json: bool, **options: Any) -> None:
    """Train an adapter of the embedded NLI model; run again to go on from a checkpoint."""
    from claimscore.console.training import print_training, training_display
    from claimscore.training.nli_training import NLITrainingConfig
    from claimscore.training.nli_training import train_nli as train_and_evaluate

    given = {name: value for name, value in options.items() if value is not None}
    config = NLITrainingConfig(out=out, **given)
    result = train_and_evaluate(config, training_display(quiet or as_json))
    print_training(result, as_json)


@train.command("ls-score")
@click.argument("tables", nargs=-1, required=True, shell_complete=complete_file)
@click.option("--out", type=FOLDER, required=True, help="The folder to write: --ls-model of a run.")
@click.option("--document-column", default="source", show_default=True)
@click.option("--summary-column", default="summary", show_default=True)
@click.option("--label-column", help="Take only the rows where it is 1 or true.")
@click.option("--backbone", default="embedded", show_default=True, help="Or HF_ID[@REV], PATH.")
@click.option("--head", type=click.Choice(["ls", "bert-linear"]), default="ls", show_default=True)
@click.option(
    "--loss",
    type=click.Choice(["paper", "code", "code-unpadded"]),
    default="paper",
    show_default=True,
    help="One hinge on LS, or the published program's on L and on S.",
)
@click.option("--negatives", callback=names, help="Of delete,add,disorder_words,...; else all.")
@click.option(
    "--trained",
    type=click.Choice(["all", "head"]),
    default="all",
    show_default=True,
    help="head: leave the backbone as it is.",
)
@click.option("--epochs", type=int, help="0 writes the untrained model.")
@click.option("--patience", type=int)
@click.option("--lr", type=float, help="Of the backbone.")
@click.option("--head-lr", type=float)
@click.option("--weight-decay", type=float)
@click.option("--dropout", type=float)
@click.option("--batch-size", type=int)
@click.option("--max-records", type=int, help="Draw at most so many pairs.")
@click.option("--validation", type=float, help="Share of the documents held out.")
@click.option("--max-tokens", type=int, help="Tokens of a text, special ones included.")
@click.option("--train-tokens", type=int, help="The same in training alone.")
@click.option("--seed", type=int, default=40, show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option("--offline", is_flag=True, help="Take models from disk only.")
@output_options
def train_ls_score(quiet: bool, as_json: bool, **options: Any) -> None:
    """Train LS_Score on documents and good summaries; run again to go on after an epoch.

    TABLES are JSONL, CSV or Parquet files.
    """
    from claimscore.console.training import print_ls_training, training_display
    from claimscore.training.ls_score import LSTrainingConfig
    from claimscore.training.ls_score import train as train_ls
    from claimscore.training.training_tables import TextColumns

    names = (f"{name}_column" for name in ("document", "summary", "label"))
    columns = TextColumns(*(options.pop(name) for name in names))
    given = {name: value for name, value in options.items() if value not in (None, ())}
    config = LSTrainingConfig(columns=columns, **given)
    result = train_ls(config, training_display(quiet or as_json))
    print_ls_training(result, as_json)


@train.command("summac-conv")
@click.argument("tables", nargs=-1, required=True, shell_complete=complete_file)
@click.option("--out", type=FOLDER, required=True, help="The folder to write.")
@click.option("--document-column", default="source", show_default=True)
@click.option("--summary-column", default="summary", show_default=True)
@click.option("--label-column", default="label", show_default=True, help="1 is consistent.")
@click.option("--validation", multiple=True, help="A table to choose the epoch by.")
@click.option("--holdout", type=float, help="Without --validation: the share held out.")
@click.option("--split-by", metavar="COL", help="Train on the half that evaluate summac tunes on.")
@click.option("--split-seed", type=int, help="Of --split-by; 0.")
@click.option("--make-negatives", is_flag=True, help="Add rule-made inconsistent summaries.")
@click.option("--granularity", help="sentence, 2sents, paragraph, ..., or document-summary.")
@click.option("--splitter", type=click.Choice(["rules", "punkt"]))
@click.option("--blocks", type=click.Choice(["code", "all"]))
@click.option("--bins", help="percentile, or evenN such as even50.")
@click.option("--labels", help="NLI categories: e, c, n, ec, en, cn or ecn.")
@click.option("--aggregate", type=click.Choice(["mean", "min", "max", "all"]))
@click.option("--variant", type=click.Choice(["code", "paper"]))
@click.option("--epochs", type=int)
@click.option("--batch-size", type=int)
@click.option("--learning-rate", type=float)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--nli", default="embedded", show_default=True, help="Or HF_ID[@REV], PATH.")
@click.option("--device", default="auto", show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), default="float32")
@click.option("--offline", is_flag=True, help="Take models from disk only.")
@output_options
def train_summac_conv(quiet: bool, as_json: bool, **options: Any) -> None:
    """Train SummaC-Conv on labelled summaries; run again to go on or to try other bins.

    TABLES are JSONL, CSV or Parquet files, or run directories, whose NLI it takes. What it writes
    is `summac-conv:weights=FILE` of a run.
    """
    from claimscore.console.training import print_summac_training, training_display
    from claimscore.training.summac_conv import SummaCTrainingConfig
    from claimscore.training.summac_conv import train_summac_conv as train_conv
    from claimscore.training.training_tables import TextColumns

    columns = TextColumns(*(options.pop(f"{name}_column") for name in TextColumns._fields))
    encoders = EncoderConfig(
        **{name: options.pop(name) for name in ("nli", "device", "dtype", "offline")}
    )
    given = {name: value for name, value in options.items() if value is not None}
    config = SummaCTrainingConfig(columns=columns, encoders=encoders, **given)
    print_summac_training(train_conv(config, training_display(quiet or as_json)), as_json)
