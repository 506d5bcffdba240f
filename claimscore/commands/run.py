"""Runs: made, gone on with, scored again, watched, estimated, shown."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from claimscore.commands.options import (
    EXIT_FAILED_RECORDS,
    EXIT_OK,
    FOLDER,
    RUN_FOLDER,
    RUN_PATH,
    complete_file,
    complete_metrics,
    config_option,
    encoder_options,
    engine_options,
    json_option,
    llm_options,
    metric_file_option,
    names,
    output_options,
    prompt_choices,
    run_config,
)
from claimscore.config import TASK_NAMES, Runner

#: Seconds between two looks of `status --watch`.
WATCH_INTERVAL_S = 2.0

METRICS_HELP = "By name; options of a metric follow it, as in summac-zs:op1=min."


@click.command()
@click.argument("input", shell_complete=complete_file)
@click.option("--out", type=RUN_FOLDER, required=True, help="The run directory.")
@click.option(
    "--metrics",
    default="caspr,ds,bs-inverse",
    show_default=True,
    callback=names,
    shell_complete=complete_metrics,
    metavar="METRIC,...",
    help=METRICS_HELP,
)
@metric_file_option
@click.option(
    "--tasks", callback=names, metavar="TASK,...", help=f"Write tables of {', '.join(TASK_NAMES)}."
)
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    callback=prompt_choices,
    metavar="TASK=VERSION|FILE",
    help="Another prompt for a task.",
)
@click.option("--prompts-dir", type=FOLDER, help="Your own folder of prompts.")
@click.option(
    "--granularity",
    type=click.Choice(["sentence", "summary"]),
    default="sentence",
    show_default=True,
    help="One request a sentence, or one a summary.",
)
@click.option(
    "--units",
    type=click.Choice(["claims", "sentences"]),
    default="claims",
    show_default=True,
    help="What CASPR compares: decomposed claims, or sentences (no LLM asked).",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the bootstrap.")
@click.option("--retry-failed", is_flag=True, help="Try failed rows again.")
@config_option
@llm_options
@encoder_options
@engine_options
@output_options
def run(quiet: bool, as_json: bool, **options: Any) -> int:
    """Score the records of INPUT (JSONL, Parquet, CSV, or - for JSONL on standard input).

    Run again after anything: it goes on where it stopped.
    """
    from claimscore.console.beforehand import print_beforehand
    from claimscore.console.progress import collecting_less, progress_display
    from claimscore.pipeline.run import run as run_pipeline

    config = run_config(**options)
    silent = quiet or as_json
    unread = config.llm.model == "builtin" and bool(config.prompts)
    with progress_display(silent) as show, collecting_less(show) as tell:
        result = run_pipeline(
            config,
            stdin=sys.stdin.buffer,
            on_estimate=None if silent else partial(print_beforehand, reads_no_prompt=unread),
            on_progress=tell,
        )
    return _finish(result, as_json)


def _finish(result: Any, as_json: bool) -> int:
    """The report, the table (or JSON), and the exit code."""
    from claimscore.console.result import print_result
    from claimscore.report.run_report import write_run_report

    write_run_report(result.out)
    if as_json:
        print(json.dumps(result.summary))
    else:
        print_result(result.summary, str(result.out))
    return EXIT_FAILED_RECORDS if result.failed_records else EXIT_OK


@click.command()
@click.argument("directory", type=RUN_FOLDER)
@click.option(
    "--metrics",
    required=True,
    callback=names,
    shell_complete=complete_metrics,
    metavar="METRIC,...",
    help=METRICS_HELP,
)
@metric_file_option
@engine_options
@output_options
def score(
    directory: Path | str,
    metrics: tuple[str, ...],
    metric_files: tuple[Path, ...],
    engine: Runner,
    address: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Add metrics to a run: only the stages that are missing are done."""
    from claimscore.console.estimate import print_plan
    from claimscore.console.progress import collecting_less, progress_display
    from claimscore.pipeline.run import score as score_pipeline

    silent = quiet or as_json
    with progress_display(silent) as show, collecting_less(show) as tell:
        result = score_pipeline(
            directory,
            metrics,
            metric_files=metric_files,
            engine=engine,
            address=address,
            on_plan=None if silent else print_plan,
            on_progress=tell,
        )
    return _finish(result, as_json)


@click.command()
@click.argument("path", metavar="DIRECTORY|FILE", type=RUN_PATH)
@click.option("--watch", is_flag=True, help="Again every two seconds, until it is not at work.")
@json_option
def status(path: Path | str, watch: bool, as_json: bool) -> None:
    """Show what is done, failed, spent and left of a run or of a map, and when it will end.

    A run is named by its folder, a map by the file that it writes.
    """
    from claimscore.console.status import print_status, watch_status
    from claimscore.pipeline.map import map_status
    from claimscore.pipeline.status import run_status

    def look() -> dict[str, Any]:
        return map_status(path) or run_status(path)

    if watch:
        watch_status(look, WATCH_INTERVAL_S)
        return
    state = look()
    if as_json:
        print(json.dumps(state))
    else:
        print_status(state)


def _params_of_run() -> list[click.Parameter]:
    """The options of `run`, of which `--out` may be left out."""
    given = click.Option(
        ["--out"], type=RUN_FOLDER, help="A run directory: what is done there counts."
    )
    return [given if param.name == "out" else param for param in run.params]


@click.command(params=_params_of_run())
@click.option(
    "--machine-price",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="Dollars an hour of this machine: what it costs for the time that the run takes.",
)
def estimate(quiet: bool, as_json: bool, machine_price: float | None, **options: Any) -> None:
    """Requests, tokens, dollars and time of `run INPUT ...` with the same options.

    Minus what the cache has. Spends nothing, sends nothing.
    """
    from claimscore.console.estimate import print_estimate
    from claimscore.console.times import machine_usd
    from claimscore.pipeline.estimate import estimate_run

    out = options["out"]
    config = run_config(**{**options, "out": out or Path()})
    found = estimate_run(config, out=out, stdin=sys.stdin.buffer).to_json()
    found["time"]["machine_usd"] = machine_usd(found["time"], machine_price)
    if as_json:
        print(json.dumps({"input": config.input, **found}))
    else:
        print_estimate(found)


@click.command()
@click.argument("directory", type=RUN_FOLDER)
def report(directory: Path | str) -> None:
    """Write DIRECTORY/report.html: one file, no network needed."""
    from claimscore.report.run_report import write_run_report

    print(write_run_report(directory))
