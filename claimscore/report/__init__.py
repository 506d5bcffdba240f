"""One self-contained HTML file about a run: `write_report(tables, path)`."""

from __future__ import annotations

from claimscore.report.report_tables import DetailChunk, ReportTables, RunFacts
from claimscore.report.run_page import write_report

__all__ = ["DetailChunk", "ReportTables", "RunFacts", "write_report"]
