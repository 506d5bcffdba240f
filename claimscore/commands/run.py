"""Runs: made, gone on with, scored again, watched, estimated, shown; and maps of any table."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from claimscore.commands.options import (
    EXIT_FAILED_RECORDS,
    EXIT_OK,
    RUN_FOLDER,
    RUN_PATH,
    Command,
    SettingsSource,
    command,
    gates_status,
    is_given,
    json_option,
    output_options,
    own_option,
    setting_option,
)
from claimscore.config import OF_THE_RUN, RunConfig

if TYPE_CHECKING:
    from claimscore.pipeline.estimate import Estimate
    from claimscore.pipeline.map.settings import MapConfig

#: Seconds between two looks of `status --watch`.
WATCH_INTERVAL_S = 2.0


_csv_option = own_option(
    "--csv",
    "as_csv",
    is_flag=True,
    hidden=True,
    help="Write scores.csv beside scores.parquet, a row a record.",
)


@command(config=RunConfig)
@_csv_option
@output_options
def run(config: RunConfig, as_csv: bool, quiet: bool, as_json: bool) -> int:
    """Score the records of INPUT.

    Run the same command again after any stop: it goes on where it stopped.
    """
    from claimscore.console.estimate import print_preflight
    from claimscore.console.progress import progress_display
    from claimscore.pipeline.llm.providers.base import provider_class
    from claimscore.pipeline.run import run as run_pipeline

    silent = quiet or as_json
    asked = [config.llm.of(task) for task in config.prompts]
    unread = [llm.model for llm in asked if provider_class(llm.model).tasks is not None]
    with progress_display(silent) as show:
        result = run_pipeline(
            config,
            stdin=sys.stdin.buffer,
            on_estimate=None
            if silent
            else partial(print_preflight, reads_no_prompt="".join(unread[:1])),
            on_progress=show,
        )
    return _finish(result, config, as_csv, as_json, quiet)


def _finish(result: Any, config: RunConfig, as_csv: bool, as_json: bool, quiet: bool) -> int:
    """The report, the table (or JSON), and the exit code."""
    from claimscore.console.result import print_result
    from claimscore.report.run_report import write_run_report
    from claimscore.runs import RunDirectory

    write_run_report(result.out, config.cache_dir, config.prompts, config.prompts_dir)
    if as_csv and result.summary["metrics"]:
        RunDirectory.reader(result.out).write_csv()
    summary = result.summary
    print(json.dumps(summary)) if as_json else print_result(summary, str(result.out), quiet)
    failed = EXIT_FAILED_RECORDS if result.failed_records else EXIT_OK
    return gates_status(result.gates, silent=as_json) or failed


_of_score = SettingsSource(
    RunConfig,
    without=OF_THE_RUN,
    fixed={"input": "", "out": Path()},
    defaults={"metrics": dataclasses.MISSING},
)


@command(config=_of_score)
@click.argument("directory", type=RUN_FOLDER, help="Run directory.")
@_csv_option
@output_options
def score(
    config: RunConfig, directory: Path | str, as_csv: bool, quiet: bool, as_json: bool
) -> int:
    """Add metrics to a run: only the missing steps are done.

    Models, servers and files are those of this command line: a run directory names none.
    """
    from claimscore.console.estimate import print_preflight
    from claimscore.console.progress import progress_display
    from claimscore.pipeline.run import score as score_pipeline

    silent = quiet or as_json
    with progress_display(silent) as show:
        result = score_pipeline(
            dataclasses.replace(config, out=directory),
            on_estimate=None if silent else print_preflight,
            on_progress=show,
        )
    return _finish(result, config, as_csv, as_json, quiet)


@click.command(cls=Command)
@click.argument("path", metavar="DIR|FILE", type=RUN_PATH, help="Run directory, or file of a map.")
@own_option("--watch", is_flag=True, help="Show it every two seconds until the work ends.")
@own_option("--record", metavar="ID", help="Show a record: scores, claims, verdicts, evidence.")
@json_option
def status(path: Path | str, watch: bool, record: str | None, as_json: bool) -> None:
    """Show how far a run or a map is: done, failed, spent, left, and when it will end."""
    from claimscore.console.result import print_record, print_status, watch_status
    from claimscore.pipeline.map.map_files import map_status
    from claimscore.pipeline.status import record_status, run_status
    from claimscore.runs import damage_as_error

    if record is not None:
        facts = record_status(path, record)
        print(json.dumps(facts)) if as_json else print_record(facts)
        return

    def look() -> dict[str, Any]:
        return map_status(path) or run_status(path)

    with damage_as_error(path):  # its numbers are those of a file
        if watch:
            watch_status(look, WATCH_INTERVAL_S)
            return
        state = look()
        print(json.dumps(state)) if as_json else print_status(state)


@command(config=SettingsSource(RunConfig, defaults={"out": Path()}))
@json_option
@click.pass_context
def estimate(ctx: click.Context, config: RunConfig, as_json: bool) -> None:
    """Estimate requests, tokens, dollars and model work of `run INPUT` with the same options.

    Work that is in the cache, or in the run directory, counts as done. Nothing is sent.
    """
    from claimscore.pipeline.estimate import estimate_run

    out = config.out if is_given(ctx, "out") else None
    _print_figures(config, estimate_run(config, out=out, stdin=sys.stdin.buffer), as_json)


def _print_figures(config: RunConfig | MapConfig, estimate: Estimate, as_json: bool) -> None:
    from claimscore.console.estimate import print_estimate

    figures = estimate.to_json()
    print(json.dumps({"input": config.input, **figures})) if as_json else print_estimate(figures)


@click.command(cls=Command)
@click.argument("directory", type=RUN_FOLDER, help="Run directory.")
@setting_option(RunConfig, "cache_dir")
@setting_option(RunConfig, "prompts")
@setting_option(RunConfig, "prompts_dir")
@json_option
def report(
    directory: Path | str,
    cache_dir: Path | None,
    prompts: Mapping[str, str],
    prompts_dir: Path | None,
    as_json: bool,
) -> None:
    """Write report.html into a run directory: one file that needs no network.

    Answers are looked up in the cache, and prompts of your own where they are named again.
    """
    from claimscore.report.run_report import write_run_report

    page = write_run_report(directory, cache_dir, prompts, prompts_dir)
    print(json.dumps({"report": str(page)}) if as_json else page)


@command("map", config="claimscore.pipeline.map.settings:MapConfig")
@own_option("--estimate", is_flag=True, help="Print requests and cost; send and write nothing.")
@output_options
def map_table(config: MapConfig, quiet: bool, as_json: bool, estimate: bool) -> int:
    """Ask a language model prompts about every row of INPUT, one after the other.

    Run the same command again after any stop: it goes on where it stopped.
    """
    if estimate:
        from claimscore.pipeline.map.job import estimate_map

        _print_figures(config, estimate_map(config, stdin=sys.stdin.buffer), as_json)
        return EXIT_OK
    from claimscore.console.progress import map_display
    from claimscore.console.result import print_map_result
    from claimscore.pipeline.map.job import run_map

    with map_display(quiet or as_json) as show:
        result = run_map(config, stdin=sys.stdin.buffer, on_progress=show)
    print(json.dumps(result.summary)) if as_json else print_map_result(result.summary)
    return EXIT_FAILED_RECORDS if result.failed else EXIT_OK
