"""`claimscore map`: any prompt about any table."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from claimscore.commands.options import (
    EXIT_FAILED_RECORDS,
    EXIT_OK,
    FOLDER,
    FileOrAddress,
    complete_file,
    config_option,
    llm_config,
    llm_options,
    output_options,
)


@click.command("map")
@click.argument("input", shell_complete=complete_file)
@click.option(
    "--prompt",
    required=True,
    metavar="FILE|NAME[=VERSION]",
    help="A prompt file, or one in --prompts-dir; its $columns are those of INPUT.",
)
@click.option("--prompts-dir", type=FOLDER, help="Your own folder of prompts.")
@click.option(
    "--out",
    type=FileOrAddress(),
    required=True,
    help="The Parquet file to write, here or in an object store.",
)
@click.option("--retry-failed", is_flag=True, help="Try failed rows again.")
@click.option("--estimate", is_flag=True, help="Say what it would cost; ask and write nothing.")
@config_option
@llm_options
@output_options
def map_table(quiet: bool, as_json: bool, estimate: bool, **options: Any) -> int:
    """Ask a prompt about every row of INPUT (JSONL, Parquet, CSV; -: JSONL on standard input).

    Run again after anything: it goes on where it stopped.
    """
    from claimscore.console.estimate import print_estimate
    from claimscore.console.progress import collecting_less, map_display
    from claimscore.console.result import print_map_result
    from claimscore.pipeline.map import MapConfig, estimate_map, map

    names = ("input", "prompt", "prompts_dir", "out", "cache_dir", "retry_failed")
    config = MapConfig(llm=llm_config(options), **{name: options[name] for name in names})
    if estimate:
        found = estimate_map(config, stdin=sys.stdin.buffer).to_json()
        if as_json:
            print(json.dumps({"input": options["input"], **found}))
        else:
            print_estimate(found)
        return EXIT_OK
    with map_display(quiet or as_json) as show, collecting_less(show) as tell:
        result = map(config, stdin=sys.stdin.buffer, on_progress=tell)
    if as_json:
        print(json.dumps(result.summary))
    else:
        print_map_result(result.summary)
    return EXIT_FAILED_RECORDS if result.failed else EXIT_OK
