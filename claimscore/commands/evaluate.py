"""Scores beside ratings of people, experiments of the papers, and claims for people to label."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from claimscore.commands.options import (
    EXIT_FAILED_RECORDS,
    EXIT_OK,
    FOLDER,
    NEW_FILE,
    Group,
    SettingsSource,
    command,
    json_option,
    output_options,
    own_option,
    typed_command,
)
from claimscore.config import RunConfig
from claimscore.errors import ConfigError

if TYPE_CHECKING:
    from claimscore.evaluation.caspr_experiment import CasprConfig
    from claimscore.evaluation.correlations import CorrelateConfig
    from claimscore.evaluation.human_claims import ClaimsConfig
    from claimscore.evaluation.label_items import LabelConfig
    from claimscore.evaluation.labels import LabelsConfig
    from claimscore.evaluation.nli_benchmark import NLIConfig
    from claimscore.evaluation.result import EvaluationResult
    from claimscore.evaluation.summac_benchmark import SummacConfig
    from claimscore.evaluation.summac_grid import GridConfig
    from claimscore.evaluation.support_benchmark import SupportConfig

_HERE = "claimscore.evaluation"
_out_option = own_option(
    "-o",
    "--out",
    type=FOLDER,
    metavar="DIR",
    panel="Output",
    help="Folder to write tables and a page into.",
)


@click.group(cls=Group)
def evaluate() -> None:
    """Compare scores with ratings of people: the tables of the papers."""


@evaluate.command("correlate", settings={"config": f"{_HERE}.correlations:CorrelateConfig"})
@_out_option
@json_option
def correlate_command(config: CorrelateConfig, out: Path | None, as_json: bool) -> None:
    """Correlate scores with ratings.

    Prints Kendall's tau-b, or other --coefficients, with 95 % intervals, p-values and average
    ranks.
    """
    from claimscore.evaluation.correlations import correlate

    _finish(correlate(config), as_json, out)


@evaluate.command("summac", settings={"config": f"{_HERE}.summac_benchmark:SummacConfig"})
@_out_option
@json_option
def summac_command(config: SummacConfig, out: Path | None, as_json: bool) -> None:
    """Evaluate scores as the SummaC benchmark does.

    The threshold is picked on validation rows; balanced accuracy and ROC-AUC are of the test rows,
    for each data set and their mean.
    """
    from claimscore.evaluation.summac_benchmark import summac_benchmark

    _finish(summac_benchmark(config), as_json, out)


@evaluate.command("caspr", settings={"config": f"{_HERE}.caspr_experiment:CasprConfig"})
@output_options
def evaluate_caspr(config: CasprConfig, quiet: bool, as_json: bool) -> int:
    """Score the five comparisons of the CASPR paper by every metric, beside its figures.

    A record of INPUT is a pair of entities: id, entity_a_summary and entity_b_summary (a list of
    texts, one an annotator). Paraphrases and negations that it lacks are made by --llm. Run the
    same command again after any stop: it goes on where it stopped.
    """
    from claimscore.console.progress import progress_display
    from claimscore.evaluation.caspr_experiment import caspr_experiment
    from claimscore.report.run_report import write_run_report

    with progress_display(quiet or as_json) as show:
        result = caspr_experiment(config, show)
    write_run_report(result.run.out)
    folder = config.run.folder
    _finish(result, as_json, folder)
    if not as_json:
        print(f"report: {Path(result.run.out, 'report.html')}   tables: {folder}")
    return EXIT_FAILED_RECORDS if result.run.failed_records or result.missing else EXIT_OK


@evaluate.command(
    "factsim",
    settings={
        "config": SettingsSource(
            RunConfig,
            without=("metric_files", "tasks", "granularity", "units", "columns", "limit"),
            fixed={"metrics": ("factsim",)},
        )
    },
)
@output_options
def evaluate_factsim(config: RunConfig, quiet: bool, as_json: bool) -> int:
    """Score the examples of the FactSim paper: its tuples and figures beside one's own.

    INPUT is a JSON file with the paper's Tables 1 and 2 and a product with reviews, as
    docs/reference/evaluation.md says. Run the same command again after any stop: it goes on where
    it stopped.
    """
    from claimscore.console.progress import progress_display
    from claimscore.evaluation.factsim_examples import factsim_examples
    from claimscore.report.run_report import write_run_report

    with progress_display(quiet or as_json) as show:
        result = factsim_examples(config, show)
    write_run_report(result.run.out)
    result.write(config.folder)
    _finish(result, as_json)
    return EXIT_FAILED_RECORDS if result.run.failed_records else EXIT_OK


@evaluate.command("summac-grid", settings={"config": f"{_HERE}.summac_grid:GridConfig"})
@output_options
def evaluate_summac_grid(config: GridConfig, quiet: bool, as_json: bool) -> None:
    """Compare every granularity and every operator of SummaC-ZS, as the SummaC paper does.

    NLI is computed once for each two granularities. Run the same command again after any stop: it
    goes on where it stopped.
    """
    from claimscore.console.progress import progress_display
    from claimscore.evaluation.summac_grid import summac_grid
    from claimscore.report.run_report import write_run_report

    with progress_display(quiet or as_json) as show:
        result = summac_grid(config, show)
    for table in config.tables:
        write_run_report(config.run_folder(table))
    _finish(result, as_json, config.out)


@evaluate.command("nli", settings={"config": f"{_HERE}.nli_benchmark:NLIConfig"})
@_out_option
@output_options
def evaluate_nli(config: NLIConfig, out: Path | None, quiet: bool, as_json: bool) -> None:
    """Measure accuracy, confusion and calibration of an NLI model on labelled pairs."""
    from claimscore.console.progress import counts_display
    from claimscore.evaluation.nli_benchmark import evaluate_nli as evaluate_pairs

    _finish(evaluate_pairs(config, counts_display(quiet or as_json, "pairs")), as_json, out)


@evaluate.command("claims", settings={"config": f"{_HERE}.human_claims:ClaimsConfig"})
@_out_option
@output_options
def claims_command(config: ClaimsConfig, out: Path | None, quiet: bool, as_json: bool) -> None:
    """Measure claims beside those that people made of the same texts.

    The first table has a text and its human claims in each row. A system is a run of that table,
    or a table of id and claims; sentences as they are, and cut at commas, are measured with it.
    """
    from claimscore.console.progress import counts_display
    from claimscore.evaluation.human_claims import evaluate_claims

    _finish(evaluate_claims(config, counts_display(quiet or as_json, "pairs")), as_json, out)


@evaluate.command("support", settings={"config": f"{_HERE}.support_benchmark:SupportConfig"})
@_out_option
@output_options
def support_command(config: SupportConfig, out: Path | None, quiet: bool, as_json: bool) -> None:
    """Evaluate scores and verifiers as judges of whether a source supports a claim or a summary.

    Prints ROC-AUC, balanced accuracy by the threshold of the other half of the documents, and the
    share of twins in the right order, also by kind of error, beside word overlap and ROUGE-1.
    """
    from claimscore.console.progress import counts_display
    from claimscore.evaluation.support_benchmark import evaluate_support

    _finish(evaluate_support(config, counts_display(quiet or as_json, "rows")), as_json, out)


@evaluate.command("labels", settings={"config": f"{_HERE}.labels:LabelsConfig"})
@_out_option
@json_option
def labels_command(config: LabelsConfig, out: Path | None, as_json: bool) -> None:
    """Compare a run with labels of people, and correct its mean by them.

    Prints the mean of the metric with a 95 % interval by prediction-powered inference, agreement
    of people with each other and with the verifier, its precision and recall, and its reliability.
    """
    from claimscore.evaluation.labels import evaluate_labels

    _finish(evaluate_labels(config), as_json, out)


def _finish(result: EvaluationResult, as_json: bool, out: Path | None = None) -> None:
    """Print the result; with `out` write its tables and its page there."""
    page = None
    if out is not None:
        from claimscore.report.evaluation_page import write_evaluation_page

        result.write(out)
        page = out / f"{result.name}.html"
        write_evaluation_page(
            page, result.title, typed_command(), result.signature(), result.sections()
        )
    if as_json:
        print(json.dumps(result.to_json(), ensure_ascii=False, allow_nan=False))
        return
    from claimscore.console.evaluations import print_sections

    print_sections(result.sections(), page)


@command(config=f"{_HERE}.label_items:LabelConfig")
@own_option(
    "-o",
    "--out",
    type=NEW_FILE,
    metavar="FILE",
    panel="Output",
    help="CSV file to write; default: labels.csv in the run directory.",
)
@own_option(
    "--page",
    type=NEW_FILE,
    metavar="FILE",
    panel="Output",
    help="Write also a page to label in, which saves a CSV file.",
)
@json_option
def label(config: LabelConfig, out: Path | None, page: Path | None, as_json: bool) -> None:
    """Draw claims of a run for a person to label.

    Each row is a claim with its evidence; write supported, contradicted or unmentioned (or s, c, u)
    into its column label. With a metric that has no claims the rows are records, and a label is a
    number. Then: claimscore evaluate labels RUN LABELS.
    """
    from claimscore.evaluation.label_items import LABELS_FILE, draw, write_sheet
    from claimscore.report.label_page import write_label_page

    target = out or Path(config.run, LABELS_FILE)
    if target.exists():
        raise ConfigError(f"{target} is there already and may hold labels; name another --out")
    if page is not None and page.exists():
        raise ConfigError(f"{page} is there already; name another --page")
    rows = draw(config)
    write_sheet(rows, target)
    if page is not None:
        write_label_page(rows, page)
    if as_json:
        print(json.dumps({"out": str(target), "page": page and str(page), "rows": rows.height}))
        return
    of_claims = "claim" in rows.columns
    print(f"{target}: {rows.height:,} {'claims' if of_claims else 'records'} to label")
    if page is not None:
        print(f"page: {page}")
    how = "supported, contradicted or unmentioned" if of_claims else "a number"
    print(
        f"fill in the column label ({how}), then: claimscore evaluate labels {config.run} {target}"
    )
