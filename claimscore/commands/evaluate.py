"""Scores beside ratings of people, and claims for people to label."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from claimscore.commands.options import (
    EXIT_GATE,
    EXIT_OK,
    FOLDER,
    NEW_FILE,
    Group,
    command,
    json_option,
    output_options,
    own_option,
    typed_command,
)
from claimscore.errors import ConfigError

if TYPE_CHECKING:
    from claimscore.evaluation.correlations import CorrelateConfig
    from claimscore.evaluation.human_claims import ClaimsConfig
    from claimscore.evaluation.label_items import LabelConfig
    from claimscore.evaluation.labels import LabelsConfig
    from claimscore.evaluation.result import EvaluationResult
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
    """Compare scores, claims and verdicts with what people say."""


@evaluate.command("correlate", settings={"config": f"{_HERE}.correlations:CorrelateConfig"})
@_out_option
@json_option
def correlate_command(config: CorrelateConfig, out: Path | None, as_json: bool) -> None:
    """Correlate scores with ratings.

    Prints Kendall's tau-b, or other --coefficients, with 95 % intervals and p-values.
    """
    from claimscore.evaluation.correlations import correlate

    finish(correlate(config), as_json, out)


@evaluate.command("claims", settings={"config": f"{_HERE}.human_claims:ClaimsConfig"})
@_out_option
@json_option
def claims_command(config: ClaimsConfig, out: Path | None, as_json: bool) -> None:
    """Measure claims beside those that people made of the same texts.

    The first table has a text and its human claims in each row. A system is a run of that table,
    or a table of id and claims; sentences as they are, and cut at commas, are measured with it.
    """
    from claimscore.evaluation.human_claims import evaluate_claims

    finish(evaluate_claims(config), as_json, out)


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

    finish(evaluate_support(config, counts_display(quiet or as_json, "rows")), as_json, out)


@evaluate.command("labels", settings={"config": f"{_HERE}.labels:LabelsConfig"})
@_out_option
@json_option
def labels_command(config: LabelsConfig, out: Path | None, as_json: bool) -> None:
    """Compare a run with labels of people, and correct its mean by them.

    Prints the mean of the metric with a 95 % interval by prediction-powered inference, agreement
    of people with each other and with the verifier, its precision and recall, and its reliability.
    """
    from claimscore.evaluation.labels import evaluate_labels

    finish(evaluate_labels(config), as_json, out)


@command(config=f"{_HERE}.labels:LabelsConfig")
@own_option(
    *("-o", "--out"), type=NEW_FILE, metavar="FILE", required=True, help="TOML file to write."
)
@json_option
def calibrate(config: LabelsConfig, out: Path, as_json: bool) -> int:
    """Fit a verifier's probabilities and threshold to labels of people.

    Prints what that gains on records it has not seen. Where it gains nothing, no file is written.
    Then: claimscore run --calibration FILE.
    """
    from claimscore.evaluation.calibration import calibrate as fit

    result, calibration = fit(config)
    finish(result, as_json)
    if calibration is not None:
        calibration.write(out)
    return report_written(out, calibration is not None, as_json)


def report_written(out: Path, helps: bool, as_json: bool) -> int:
    """Say whether a file was written; the status."""
    if not as_json:
        print(f"written: {out}" if helps else f"no gain, so {out} is not written")
    return EXIT_OK if helps else EXIT_GATE


def finish(result: EvaluationResult, as_json: bool, out: Path | None = None) -> None:
    """Print the result; with `out` write its tables and its page there."""
    page = None
    if out is not None:
        from claimscore.report.evaluation_page import write_evaluation_page

        result.write(out)
        page = out / f"{result.name}.html"
        write_evaluation_page(
            page, result.title, typed_command(), result.signature(), result.sections
        )
    if as_json:
        print(json.dumps(result.to_json(), ensure_ascii=False, allow_nan=False))
        return
    from claimscore.console.evaluations import print_sections

    print_sections(result.sections, page)


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
@output_options
def label(
    config: LabelConfig, out: Path | None, page: Path | None, quiet: bool, as_json: bool
) -> None:
    """Draw claims of a run for a person to label.

    Each row is a claim with its evidence; write supported, contradicted or unmentioned (or s, c, u)
    into its column label. Then: claimscore evaluate labels RUN LABELS.
    """
    from claimscore.evaluation.label_items import LABELS_FILE, draw, policy_digest, write_sheet
    from claimscore.report.evaluation_page import write_label_page

    target = out or Path(config.run, LABELS_FILE)
    if target.exists():
        raise ConfigError(f"{target} is there already and may hold labels; name another --out")
    if page is not None and page.exists():
        raise ConfigError(f"{page} is there already; name another --page")
    policy = config.policy_text()
    rows = draw(config)
    write_sheet(rows, target)
    if page is not None:
        write_label_page(rows, policy, page)
    if as_json:
        facts = {"out": str(target), "page": page and str(page), "rows": rows.height}
        print(json.dumps(facts | {"policy": policy_digest(policy)}))
    if quiet or as_json:
        return
    print(f"{target}: {rows.height:,} claims to label")
    if page is not None:
        print(f"page: {page}")
    print(f"policy {policy_digest(policy)}:\n{policy}")
    print(
        "fill in the column label (supported, contradicted or unmentioned), then: "
        f"claimscore evaluate labels {config.run} {target}"
    )
