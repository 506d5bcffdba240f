"""The experiments of the papers, which need runs of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from claimscore.commands.options import (
    EXIT_FAILED_RECORDS,
    EXIT_OK,
    FOLDER,
    names,
    output_options,
    run_config,
)
from claimscore.commands.run import run
from claimscore.config import EncoderConfig
from claimscore.evaluation.commands import evaluate, typed_command

__all__ = ["evaluate"]


def _params_of_caspr() -> list[click.Parameter]:
    """The options of `run`, but for the tasks: they follow from the missing columns."""
    return [param for param in run.params if param.name != "tasks"]


def _params_of_factsim() -> list[click.Parameter]:
    """The options of `run`, but for metric and task, which are known."""
    known = ("metrics", "metric_files", "tasks", "granularity", "units")
    return [param for param in run.params if param.name not in known]


@evaluate.command("caspr", params=_params_of_caspr())
@click.option(
    "--paraphrase",
    type=click.Choice(["sentence", "summary"]),
    default="sentence",
    show_default=True,
    help="What a paraphrase is asked for, where INPUT has none.",
)
@click.option("--drop-missing", is_flag=True, help="Leave out pairs whose texts cannot be made.")
@click.option("--samples", type=int, default=10_000, show_default=True, help="Bootstrap samples.")
def evaluate_caspr(
    quiet: bool, as_json: bool, paraphrase: Any, drop_missing: bool, samples: int, **options: Any
) -> int:
    """The CASPR paper's five comparisons, scored by every metric beside its figures.

    INPUT (JSONL or Parquet) has a row a pair of entities: id, entity_a_summary and
    entity_b_summary (a list of texts, one an annotator). Paraphrases and negations that it lacks
    are made by --llm. Run again after anything: it goes on where it stopped.
    """
    from claimscore.console.progress import progress_display
    from claimscore.evaluation.caspr_experiment import (
        FIGURE,
        CasprConfig,
        can_plot,
        caspr_experiment,
    )
    from claimscore.evaluation.display import print_result
    from claimscore.report.evaluation.caspr_page import write_caspr_page
    from claimscore.report.run_report import write_run_report

    config = CasprConfig(run_config(tasks=(), **options), paraphrase, drop_missing, samples)
    with progress_display(quiet or as_json) as show:
        result = caspr_experiment(config, show)
    write_run_report(result.run.out)
    folder = config.run.folder
    result.write(folder)
    write_caspr_page(result, config, folder / "caspr.html", typed_command())
    print_result(result, as_json)
    if not as_json:
        no_figure = "no figure: pip install 'claimscore[plots]' and run the same command again"
        print(f"figure: {folder / FIGURE}" if can_plot() else no_figure)
        report = Path(result.run.out, "report.html")
        print(f"page: {folder / 'caspr.html'}   report: {report}   tables: {folder}")
    return EXIT_FAILED_RECORDS if result.run.failed_records or result.missing else EXIT_OK


@evaluate.command("factsim", params=_params_of_factsim())
def evaluate_factsim(quiet: bool, as_json: bool, **options: Any) -> int:
    """The FactSim paper's examples: its tuples and figures beside one's own.

    INPUT is a JSON file with the paper's Tables 1 and 2 and a product with reviews, as
    docs/reference/evaluation.md says. Run again after anything: it goes on where it stopped.
    """
    from claimscore.console.progress import progress_display
    from claimscore.evaluation.display import print_result
    from claimscore.evaluation.factsim_examples import factsim_examples
    from claimscore.report.run_report import write_run_report

    options |= {"metrics": ("factsim",), "metric_files": (), "tasks": ()}
    config = run_config(granularity="sentence", units="claims", **options)
    with progress_display(quiet or as_json) as show:
        result = factsim_examples(config, show)
    write_run_report(result.run.out)
    result.write(config.folder)
    print_result(result, as_json)
    return EXIT_FAILED_RECORDS if result.run.failed_records else EXIT_OK


@evaluate.command("summac-grid")
@click.argument("tables", nargs=-1, required=True)
@click.option("--out", type=FOLDER, required=True, help="The folder of the run and the results.")
@click.option("--document-blocks", callback=names, metavar="NAME,...", help="Default: all four.")
@click.option("--summary-blocks", callback=names, metavar="NAME,...", help="Default: all four.")
@click.option("--variant", type=click.Choice(["paper", "code", "contradiction"]))
@click.option("--splitter", type=click.Choice(["rules", "punkt"]))
@click.option("--blocks", type=click.Choice(["code", "all"]))
@click.option("--dataset", metavar="COL", help="As in evaluate summac, like the next ones.")
@click.option("--split", metavar="COL")
@click.option("--label", metavar="COL")
@click.option("--split-by", metavar="COL")
@click.option("--split-seed", type=int)
@click.option("--protocol", type=click.Choice(["paper", "notebook"]))
@click.option("--drop-missing", is_flag=True)
@click.option("--samples", type=int, help="Bootstrap samples; 1000.")
@click.option("--seed", type=int)
@click.option("--nli", default="embedded", show_default=True, help="Or HF_ID[@REV], PATH.")
@click.option("--device", default="auto", show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), default="float32")
@click.option("--offline", is_flag=True, help="Take models from disk only.")
@output_options
def evaluate_summac_grid(quiet: bool, as_json: bool, **options: Any) -> None:
    """SummaC-ZS with every granularity and every operator, as the SummaC paper compares them.

    TABLES are labelled records (JSONL, CSV or Parquet) with `source` and `summary`. NLI is computed
    once for each two granularities. Run again after anything: it goes on where it stopped.
    """
    from claimscore.console.progress import progress_display
    from claimscore.evaluation.display import print_result
    from claimscore.evaluation.summac_grid import GridConfig, summac_grid
    from claimscore.report.evaluation.benchmark_pages import write_grid_page
    from claimscore.report.run_report import write_run_report

    encoders = EncoderConfig(
        **{name: options.pop(name) for name in ("nli", "device", "dtype", "offline")}
    )
    given = {name: value for name, value in options.items() if value not in (None, ())}
    config = GridConfig(encoders=encoders, **given)
    with progress_display(quiet or as_json) as show:
        result = summac_grid(config, show)
    result.write(config.out)
    for table in config.tables:
        write_run_report(config.run_folder(table))
    page = config.out / "summac_grid.html"
    write_grid_page(result, config, page, typed_command())
    print_result(result, as_json, page)


@evaluate.command("nli")
@click.argument("data", nargs=-1, required=True)
@click.option("--nli", default="embedded", show_default=True, help="Or HF_ID[@REV], PATH.")
@click.option("--premise", default="premise", show_default=True, metavar="COL")
@click.option("--hypothesis", default="hypothesis", show_default=True, metavar="COL")
@click.option("--label", default="label", show_default=True, metavar="COL")
@click.option("--group", metavar="COL", help="Measure the rows of each of its values too.")
@click.option("--fit-temperature", metavar="FILE", help="Fit one temperature on these pairs.")
@click.option(
    "--split-by",
    metavar="COL",
    help="Fit it on half of each set and measure the other; the column's values are drawn.",
)
@click.option("--split-seed", type=int, default=0, show_default=True, help="Of --split-by.")
@click.option("--drop-missing", is_flag=True, help="Leave out rows without a text or label.")
@click.option("--device", default="auto", show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), default="float32")
@click.option("--offline", is_flag=True, help="Take models from disk only.")
@click.option("--out", type=FOLDER, help="Write tables, predictions too, into this folder.")
@output_options
def evaluate_nli(
    data: tuple[str, ...], out: Path | None, quiet: bool, as_json: bool, **options: Any
) -> None:
    """Accuracy, confusion and calibration of an NLI model on labelled pairs.

    DATA are JSONL, CSV or Parquet files, each a set, with `premise`, `hypothesis` and `label`
    (entailment, neutral or contradiction).
    """
    from claimscore.console.progress import counts_display
    from claimscore.evaluation.display import print_result
    from claimscore.evaluation.nli_benchmark import NLIConfig
    from claimscore.evaluation.nli_benchmark import evaluate_nli as evaluate_pairs

    encoders = EncoderConfig(
        **{name: options.pop(name) for name in ("nli", "device", "dtype", "offline")}
    )
    config = NLIConfig(data, encoders, **options)
    result = evaluate_pairs(config, counts_display(quiet or as_json, "pairs"))
    if out:
        result.write(out)
    print_result(result, as_json)
