"""A page in which a person labels claims or records, and which saves them as CSV."""

from __future__ import annotations

import hashlib
from pathlib import Path

import polars as pl

from claimscore import __version__
from claimscore.metrics.support import VERDICTS
from claimscore.report.html_page import write_page


def write_label_page(rows: pl.DataFrame, path: Path) -> None:
    """Write the page of a table that `label_items.draw` made; it works from a disk."""
    digest = hashlib.sha256(rows.write_json().encode()).hexdigest()[:16]
    of_claims = "claim" in rows.columns
    values = {
        "kind": "labels",
        "title": "Label the claims" if of_claims else "Rate the records",
        "generator": f"claimscore {__version__}",
        "metric": rows["metric"][0],
        "of_claims": of_claims,
        "n": rows.height,
        "verdicts": VERDICTS if of_claims else (),
        "items": {"key": digest, "columns": rows.columns, "rows": rows.rows()},
    }
    write_page(path, "label.html", "label.js", ("page.css", "label.css"), values, charts=False)
