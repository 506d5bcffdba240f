"""The page of `evaluate summac-grid`: a heat map a measure and data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from claimscore.evaluation.published import OVERALL
from claimscore.evaluation.result import Section
from claimscore.evaluation.summac_benchmark import MEASURES
from claimscore.evaluation.summac_grid import CELL_SCHEMA, GridConfig, GridResult
from claimscore.report.evaluation.page import (
    EvaluationPage,
    Part,
    settings_signature,
    write_page,
)
from claimscore.report.evaluation.sources import find_sources, run_signatures
from claimscore.report.evaluation.summac import NAMES, TITLES, dataset_names
from claimscore.report.evaluation.tables import (
    LEVELS,
    collapsed,
    heat_levels,
    notes_html,
    table_html,
)
from claimscore.report.markup import count, text


def write_grid_page(result: GridResult, config: GridConfig, path: Path, command: str) -> None:
    """Write the page; `command` is what was typed to get it."""
    datasets = dataset_names(result.rows)
    groups = result.rows.select("measure", "dataset").unique(maintain_order=True).rows()
    html: dict[str, list[str]] = {measure: [] for measure in MEASURES}
    for (measure, dataset), section in zip(groups, result.sections(), strict=True):
        rows = result.rows.filter(measure=measure, dataset=dataset)
        shown = _heat_map(section, rows)
        first = dataset == OVERALL or len(datasets) == 1
        if first:
            html[measure].insert(0, shown)
        else:
            html[measure].append(collapsed(dataset, shown))
    parts = [Part(NAMES[measure], TITLES[measure], "".join(html[measure])) for measure in MEASURES]
    parts.append(Part("speed", "Speed", _speed(result.speed)))
    runs = [config.run_folder(table) for table in config.tables]
    metrics = _metrics(runs)
    settings = dataclasses.asdict(config) | {"nli": config.encoders.nli}
    write_page(
        EvaluationPage(
            title="SummaC-ZS grid",
            lede=[
                f"protocol {result.protocol}",
                count(len(datasets), "data set"),
                count(result.rows.select(*CELL_SCHEMA).unique().height, "setting"),
            ],
            command=command,
            signature=settings_signature("summac-grid", settings),
            sources=find_sources(map(str, runs), path),
            parts=parts,
            signatures=run_signatures(runs, metrics),
        ),
        path,
    )


def _metrics(runs: list[Path]) -> list[str]:
    scores = [run / "scores.parquet" for run in runs if (run / "scores.parquet").is_file()]
    if not scores:
        return []
    names = pl.scan_parquet(scores, glob=False).select(pl.col("metric").unique().sort())
    found: list[str] = names.collect()["metric"].to_list()
    return found


def _heat_map(section: Section, rows: pl.DataFrame) -> str:
    n_columns = len(section.header) - 2  # without the names and the speed
    values = {
        (number, place): float(row[place])
        for number, row in enumerate(section.rows)
        for place in range(1, n_columns + 1)
    }
    low, high = min(values.values()), max(values.values())
    steps = "".join(f'<b class="h{level}"></b>' for level in range(LEVELS + 1))
    scale = f'<p class="scale">{low:.1f} <span>{steps}</span> {high:.1f}</p>'
    best = rows.sort("value", descending=True, maintain_order=True).row(0, named=True)
    found = (
        f"best: documents by {best['document_blocks']}, summaries by {best['summary_blocks']}, "
        f"{best['op1']} over the document, {best['op2']} over the summary: "
        f"{100 * best['value']:.1f} [{100 * best['low']:.1f}–{100 * best['high']:.1f}]; chosen "
        f"among {count(rows.height, 'setting')} on the rows that are scored, so it promises more "
        "than it keeps"
    )
    return (
        f'<div class="result"><h3>{text(section.title)}</h3>{scale}'
        f"{table_html(section, heat_levels(values))}{notes_html((found, *section.notes))}</div>"
    )


def _speed(speed: pl.DataFrame) -> str:
    rows = [
        (
            f"{row['document_blocks']}, {row['summary_blocks']}",
            *_speed_cells(row["documents"], row["seconds"], row["documents_per_minute"]),
        )
        for row in speed.iter_rows(named=True)
    ]
    header = ("document, summary", "documents", "seconds", "documents a minute")
    return table_html(Section("Speed", header, rows)) + notes_html(
        (
            "only where this call computed NLI: cutting, judging and writing, without the loading "
            "of the model",
        )
    )


def _speed_cells(
    documents: int | None, seconds: float | None, per_minute: float | None
) -> Iterator[str]:
    yield "-" if documents is None else f"{documents:,}"
    yield "-" if seconds is None else f"{seconds:,.1f}"
    yield "-" if per_minute is None else f"{per_minute:,.0f}"
