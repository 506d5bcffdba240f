"""`claimscore map`: any prompt about any table."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from claimscore.commands.options import (
    EXIT_FAILED_RECORDS,
    EXIT_OK,
    command,
    output_options,
    own_option,
)

if TYPE_CHECKING:
    from claimscore.pipeline.map.settings import MapConfig


@command("map", config="claimscore.pipeline.map.settings:MapConfig")
@own_option("--estimate", is_flag=True, help="Print requests and cost; send and write nothing.")
@output_options
def map_table(config: MapConfig, quiet: bool, as_json: bool, estimate: bool) -> int:
    """Ask a language model a prompt about every row of INPUT.

    Run the same command again after any stop: it goes on where it stopped.
    """
    if estimate:
        from claimscore.console.estimate import print_estimate
        from claimscore.pipeline.map.estimate import estimate_map

        found = estimate_map(config, stdin=sys.stdin.buffer).to_json()
        if as_json:
            print(json.dumps({"input": config.input, **found}))
        else:
            print_estimate(found)
        return EXIT_OK
    from claimscore.console.progress import map_display
    from claimscore.console.result import print_map_result
    from claimscore.pipeline.map.job import map

    with map_display(quiet or as_json) as show:
        result = map(config, stdin=sys.stdin.buffer, on_progress=show)
    if as_json:
        print(json.dumps(result.summary))
    else:
        print_map_result(result.summary)
    return EXIT_FAILED_RECORDS if result.failed else EXIT_OK
