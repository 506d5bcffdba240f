"""The models that judge."""

from __future__ import annotations

from pathlib import Path

import click

from claimscore.commands.options import FILE


@click.group()
def models() -> None:
    """The models that judge."""


@models.command("list")
def models_list() -> None:
    """The built-in choices, and how to name others."""
    from claimscore.console import print_rows
    from claimscore.pipeline.models import MODEL_CHOICES

    print_rows(("option", "value", "what it is"), MODEL_CHOICES)


@models.command("convert-summac")
@click.argument("file", type=FILE)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--bins", default="percentile", show_default=True, help="Or evenN such as even50.")
@click.option("--labels", default="e", show_default=True, help="e, c, n, ec, en, cn or ecn.")
@click.option("--granularity", default="sentence", show_default=True)
@click.option("--nli", help="The NLI model that they were trained with, for the record.")
def models_convert_summac(file: Path, out: Path, **settings: str | None) -> None:
    """Keep published SummaC-Conv weights (a torch checkpoint) as safetensors with their settings.

    Nothing that a checkpoint may hold besides tensors is run.
    """
    from claimscore.metrics.summac.convert import convert_weights

    convert_weights(file, out, {name: value for name, value in settings.items() if value})
    print(out)
