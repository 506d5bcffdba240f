"""`claimscore evaluate ...`: arguments -> settings -> one call -> print."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click


def _names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """A comma-separated list of names."""
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


def typed_command() -> str:
    """The command as it was typed, to be typed again; what a base URL may hide is left out."""
    arguments = list(click.get_current_context().obj or ())
    for place, argument in enumerate(arguments):
        if argument.startswith("--base-url="):
            arguments[place] = "--base-url=..."
        elif place and arguments[place - 1] == "--base-url":
            arguments[place] = "..."
    return shlex.join(["claimscore", *arguments])


_FOLDER = click.Path(path_type=Path, file_okay=False)
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
_out_option = click.option("--out", type=_FOLDER, help="Write tables and a page into this folder.")
_seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Of the draws.")
_drop_option = click.option(
    "--drop-missing", is_flag=True, help="Leave out what has a missing value, and say how much."
)
_scores_option = click.option(
    "--scores", required=True, callback=_names, metavar="COL[,COL]", help="Columns or metrics."
)


@click.group()
def evaluate() -> None:
    """How well scores agree with people: the tables of the papers."""


@evaluate.command("correlate")
@click.argument("table")
@_scores_option
@click.option(
    "--ratings", required=True, callback=_names, metavar="COL[,COL]", help="Columns or dimensions."
)
@click.option(
    "--ratings-file", metavar="FILE", help="Where the ratings are, if not in TABLE: joined by id."
)
@click.option("--case", metavar="COL", help="What was summarised; needed but for --level pooled.")
@click.option("--system", default="system", show_default=True, metavar="COL")
@click.option(
    "--level",
    "levels",
    callback=_names,
    metavar="LEVEL[,LEVEL]",
    help="system, summary, pooled; the first two where --case is given, else pooled.",
)
@click.option(
    "--metric",
    "methods",
    default="kendall",
    show_default=True,
    callback=_names,
    metavar="NAME[,NAME]",
    help="kendall, spearman, pearson.",
)
@click.option("--compare", is_flag=True, help="Test every two scores against each other.")
@_drop_option
@click.option("--samples", type=int, default=1000, show_default=True, help="Bootstrap samples.")
@_seed_option
@_json_option
@_out_option
def correlate_command(as_json: bool, out: Path | None, **options: Any) -> None:
    """Correlate scores with ratings: TABLE is JSONL, CSV, Parquet or a run directory.

    A row a summary. Prints Kendall's tau-b (or what --metric names) with 95 % intervals, p-values
    and average ranks.
    """
    from claimscore.evaluation.correlations import CorrelateConfig, correlate
    from claimscore.evaluation.display import print_result

    config = CorrelateConfig(**options)
    result = correlate(config)
    page = None
    if out:
        from claimscore.report.evaluation.benchmark_pages import write_correlate_page

        result.write(out)
        page = out / "correlate.html"
        write_correlate_page(result, config, page, typed_command())
    print_result(result, as_json, page)


@evaluate.command("summac")
@click.argument("tables", nargs=-1, required=True)
@_scores_option
@click.option("--dataset", default="dataset", show_default=True, metavar="COL")
@click.option("--split", metavar="COL", help="val or test; else a column split or cut.")
@click.option("--label", default="label", show_default=True, metavar="COL", help="1: consistent.")
@click.option(
    "--split-by",
    metavar="COL",
    help="Only one split: draw the column's values into two halves, one as val, one as test; or "
    "`even`: the even rows as val.",
)
@click.option("--split-seed", type=int, default=0, show_default=True, help="Of --split-by.")
@click.option(
    "--protocol",
    type=click.Choice(["paper", "notebook"]),
    default="paper",
    show_default=True,
    help="notebook: the threshold is picked on the very rows that are scored.",
)
@_drop_option
@click.option("--samples", type=int, default=10_000, show_default=True, help="Bootstrap samples.")
@_seed_option
@_json_option
@_out_option
def summac_command(
    as_json: bool, out: Path | None, tables: tuple[str, ...], **options: Any
) -> None:
    """Evaluate scores as the SummaC benchmark does; TABLES as in `evaluate correlate`.

    Threshold on validation, balanced accuracy and ROC-AUC on test, for each data set and their
    mean.
    """
    from claimscore.evaluation.display import print_result
    from claimscore.evaluation.summac_benchmark import SummacConfig, summac_benchmark

    config = SummacConfig(tables=tables, **options)
    result = summac_benchmark(config)
    page = None
    if out:
        from claimscore.report.evaluation.benchmark_pages import write_summac_page

        result.write(out)
        page = out / "summac.html"
        write_summac_page(result, config, page, typed_command())
    print_result(result, as_json, page)


@evaluate.command("convert")
@click.argument("name")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
def convert_command(name: str, source: Path, out: Path) -> None:
    """Turn a published data set into records.

    NAME is opinsummeval, newsroom, summeval, summac or cocotrip.

    SOURCE is the file or folder as its authors publish it; OUT.jsonl is what `run` and
    `evaluate` read.
    """
    from claimscore.evaluation.datasets import convert

    print(f"{out}: {convert(name, source, out):,} records")
