"""One self-contained HTML file about a run: `write_report(tables, path)`."""

from __future__ import annotations

from claimscore.report.data import DetailChunk, MetricFacts, ReportTables, RunFacts
from claimscore.report.html import write_report

__all__ = ["DetailChunk", "MetricFacts", "ReportTables", "RunFacts", "write_report"]
