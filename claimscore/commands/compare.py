"""Two runs that share ids, side by side."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from claimscore.commands.options import (
    EXIT_GATE,
    EXIT_OK,
    NEW_FILE,
    command,
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
    help="Exit with 4 where a difference is beyond this, as 'caspr > +2'.",
)
@own_option(
    "--html", "html_file", type=NEW_FILE, panel="Output", help="Write one page with everything."
)
@output_options
def compare(
    config: CompareConfig,
    fail_if: tuple[str, ...],
    html_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Compare runs that share ids; the first is the baseline.

    For every metric: a verdict and the mean difference with its paired interval. Then the records
    that moved most, with claims that are new, gone or reworded.

    \b
    claimscore compare runs/v1 runs/v2
    claimscore compare runs/v1 runs/v2 --by system --html compare.html
    claimscore compare runs/v1 runs/v2 --fail-if 'caspr > +2'
    """
    from claimscore.evaluation.comparison import Condition, compare, gates
    from claimscore.evaluation.comparison_tables import (
        sections_of,
        signature_of,
        to_json,
    )

    conditions = [Condition.parse(text) for text in fail_if]
    silent = quiet or as_json
    comparison = compare(config)
    judged = list(gates(comparison, conditions))
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
        from claimscore.console.evaluations import print_sections

        print_sections(sections_of(comparison), html_file)
    failed = [gate for gate in judged if gate.fails]
    for gate in judged if not silent else failed:
        print(f"gate: {gate}", file=sys.stderr if silent else sys.stdout)
    return EXIT_GATE if failed else EXIT_OK
