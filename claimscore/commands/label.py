"""Claims and records of a run for people to label."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from claimscore.commands.options import NEW_FILE, command, json_option, own_option
from claimscore.errors import ConfigError

if TYPE_CHECKING:
    from claimscore.evaluation.label_items import LabelConfig


@command(config="claimscore.evaluation.label_items:LabelConfig")
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
    help="Write also a page to label in: it works without a network and saves a CSV file.",
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
