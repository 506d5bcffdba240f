"""Two runs that share ids, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from claimscore.commands.options import (
    NEW_FILE,
    command,
    gates_status,
    output_options,
    own_option,
    typed_command,
)

if TYPE_CHECKING:
    from claimscore.evaluation.comparison import CompareConfig


@command(config="claimscore.evaluation.comparison:CompareConfig")
@own_option(
    "--fail-if",
    "fail_if",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 4 where a difference is beyond this, as 'faithfulness < -0.02'.",
)
@own_option("--full", is_flag=True, panel="Output", help="Print all tables.")
@own_option(
    "--html", "html_file", type=NEW_FILE, panel="Output", help="Write one page with everything."
)
@output_options
def compare(
    config: CompareConfig,
    fail_if: tuple[str, ...],
    full: bool,
    html_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Compare runs that share ids; the first is the baseline.

    A sentence says which one is better, by how much and how surely; --full prints all tables, also
    the records that moved most and claims that are new, gone or reworded.

    \b
    claimscore compare runs/v1 runs/v2
    claimscore compare runs/v1 runs/v2 --by system --html compare.html
    claimscore compare runs/v1 runs/v2 --fail-if 'faithfulness < -0.02'
    """
    from claimscore.evaluation.comparison import compare, gates, parse_limit
    from claimscore.evaluation.comparison_tables import (
        group_sections,
        sections_of,
        signature_of,
        summary_lines,
        to_json,
    )

    limits = list(map(parse_limit, fail_if))
    silent = quiet or as_json
    comparison = compare(config)
    judged = list(gates(comparison, limits))
    if html_file is not None:
        from claimscore.report.evaluation_page import write_evaluation_page

        write_evaluation_page(
            html_file,
            "Runs compared",
            typed_command(),
            signature_of(comparison),
            sections_of(comparison),
        )
    if as_json:
        print(json.dumps(to_json(comparison, judged), ensure_ascii=False, allow_nan=False))
    if not silent:
        from claimscore.console.evaluations import print_lines, print_sections

        print_lines(() if full else summary_lines(comparison))
        print_sections((sections_of if full else group_sections)(comparison), html_file)
    return gates_status(judged, silent=silent)
