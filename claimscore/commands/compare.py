"""Two runs that share ids, side by side."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from claimscore.commands.options import complete_file, names
from claimscore.errors import ConfigError
from claimscore.evaluation.commands import typed_command

if TYPE_CHECKING:
    from claimscore.pipeline.encoders.protocols import Embedder

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument(
    "runs", nargs=-1, required=True, metavar="BASELINE RUN...", shell_complete=complete_file
)
@click.option("--metrics", callback=names, metavar="LIST", help="Only these; else all shared.")
@click.option("--by", metavar="COLUMN", help="Also by the values of a column of the records.")
@click.option("--top", type=int, default=5, show_default=True, help="Records shown a metric.")
@click.option("--samples", type=int, default=10_000, show_default=True, help="Bootstrap samples.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the bootstrap.")
@click.option(
    "--embedder",
    metavar="MODEL",
    help="Find reworded claims by this sentence encoder (embedded, HF_ID[@REV], PATH); else by "
    "their letters.",
)
@click.option(
    "--threshold",
    type=float,
    metavar="X",
    help="How alike reworded claims are at least.  [default: 0.5; with --embedder 0.75]",
)
@click.option("--device", default="auto", show_default=True, help="Of --embedder.")
@click.option("--offline", is_flag=True, help="Take the encoder from disk only.")
@click.option("--json", "json_file", metavar="FILE|-", help="One JSON object; - prints it.")
@click.option("--html", "html_file", type=_FILE, help="One page with everything.")
@click.option(
    "--differences", type=_FILE, help="Every record's scores and difference, .csv or .parquet."
)
@click.option("--quiet", is_flag=True, help="Print no tables and no progress.")
def compare(
    runs: tuple[str, ...],
    embedder: str | None,
    device: str,
    offline: bool,
    json_file: str | None,
    html_file: Path | None,
    differences: Path | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Compare runs that share ids: the first is the baseline.

    Each is a run directory, or the scores.parquet of one. For every metric the mean difference with
    its paired interval, tests and effect size; the records that moved most, with the claims that
    appeared, vanished or changed and the NLI labels that flipped.

    \b
    claimscore compare runs/v1 runs/v2
    claimscore compare runs/v1 runs/v2 --by system --html compare.html
    """
    from claimscore.console.progress import counts_display
    from claimscore.evaluation.compare.comparison import CompareConfig, compare
    from claimscore.evaluation.compare.comparison_json import (
        check_differences_path,
        to_json,
        write_differences,
    )

    config = CompareConfig(runs=runs, **options)
    if differences is not None:
        check_differences_path(differences)
    _refuse_one_file_twice(differences, html_file, json_file)
    silent = quiet or json_file == "-"
    model = None if embedder is None else _embedder(embedder, device, offline)
    found = compare(config, model, counts_display(silent, "texts encoded"))
    if differences is not None:
        write_differences(found, differences)
    if html_file is not None:
        from claimscore.report.evaluation.compare_page import write_compare_page

        write_compare_page(found, html_file, typed_command())
    if json_file is not None:
        text = json.dumps(to_json(found), ensure_ascii=False, allow_nan=False)
        if json_file == "-":
            print(text)
        else:
            from claimscore.atomic import write_text

            write_text(Path(json_file), text + "\n")
    if not silent:
        from claimscore.evaluation.compare.display import print_comparison

        print_comparison(found, html_file)


def _refuse_one_file_twice(*files: Path | str | None) -> None:
    """Two outputs of one name would leave the last one written."""
    named = [Path(file).absolute() for file in files if file is not None and file != "-"]
    for file in named:
        if named.count(file) > 1:
            raise ConfigError(f"{file.name}: two outputs would be written to this one file")


def _embedder(name: str, device: str, offline: bool) -> Embedder:
    """The sentence encoder, with what it said in runs at hand."""
    from claimscore.config import EncoderConfig
    from claimscore.pipeline.encoders import load_model
    from claimscore.pipeline.encoders.results import open_store

    config = EncoderConfig(embedder=name, device=device, offline=offline)
    store = open_store(None, on_notice=_notice)
    model: Any = store.around(load_model("embedder", config))  # what the role says it is
    found: Embedder = model
    return found


def _notice(notice: str) -> None:
    print(f"claimscore: {notice}", file=sys.stderr)
