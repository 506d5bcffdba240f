"""The page of a run: an overview made here, records drawn by the script from inside the file.

Every text that comes from a record, a model or a setting goes through `text()` into HTML
or as JSON into a block, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import Template

from claimscore.atomic import atomic_path
from claimscore.report import sections
from claimscore.report.citing import citing
from claimscore.report.data import ReportTables
from claimscore.report.groups import group_tables
from claimscore.report.index import RecordList
from claimscore.report.library import PLOT_STYLE, library_blocks, library_scripts
from claimscore.report.markup import asset, json_block, packed_json, policy, script, text
from claimscore.report.overview import failure_groups, overview
from claimscore.report.records import detail_blocks

#: The page's script, put together from these files in this order.
SCRIPTS = (
    "page.js",
    "blocks.js",
    "download.js",
    "charts.js",
    "overview.js",
    "statistics.js",
    "selection.js",
    "explore.js",
    "scatter.js",
    "grid.js",
    "matrix.js",
    "facts.js",
    "sentences.js",
    "calls.js",
    "record.js",
    "main.js",
)
STYLES = ("report.css", "run.css")


def write_report(tables: ReportTables, path: Path) -> None:
    """Write the report; the same tables give the same bytes.

    Details are written as they are read, block by block, and the file appears by rename
    when it is complete.
    """
    # A lone surrogate (only possible in settings) is written as its escape.
    with (
        atomic_path(path) as unfinished,
        unfinished.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        file.writelines(_parts(tables))


def _parts(tables: ReportTables) -> Iterator[str]:
    head, tail = asset("report.html").split("<!--DETAILS-->")
    metrics = overview(tables)
    names = [metric.facts.name for metric in metrics]
    groups = group_tables(tables, names)
    listed = RecordList(names)
    code = script(*SCRIPTS)
    style = "\n" + "".join(map(asset, STYLES))
    generator = text(f"claimscore {tables.run.version}".strip())
    yield Template(head).substitute(
        csp=text(policy(code, *library_scripts(), styles=(style, PLOT_STYLE))),
        generator=generator,
        title=text(tables.run.title),
        css=style,
        lede=sections.lede(tables.run, metrics),
        notices=sections.notices(tables.run),
        scores=sections.scores(metrics),
        groups=sections.groups(groups),
        facts=sections.facts(tables.run),
        truncated=sections.truncated(tables.run),
        failures=sections.failures(failure_groups(tables)),
        citing=citing(metrics),
        settings=sections.settings(tables.run.settings),
        records=sections.records_note(tables),
        overview=json_block(sections.figures(metrics, groups)),
        library=library_blocks(),
        js=code,
    )
    for number, block in enumerate(detail_blocks(tables, listed)):
        for name, details in (("texts", block.texts), ("more", block.more)):
            yield f'<script type="text/plain" id="cs-{name}-{number}">'
            yield packed_json(details)
            yield "</script>\n"
    yield Template(tail).substitute(index=packed_json(listed.to_json()))
