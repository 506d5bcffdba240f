"""The page of `evaluate summac`: tables, and a chart a data set beside the published figures."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import polars as pl

from claimscore.evaluation.published import OVERALL, SUMMAC_TEST, summac_figure
from claimscore.evaluation.result import Section
from claimscore.evaluation.summac_benchmark import MEASURES, SummacConfig, SummacResult
from claimscore.report.evaluation.charts import Mark, find_axis, interval_chart, legend
from claimscore.report.evaluation.page import (
    EvaluationPage,
    Part,
    settings_signature,
    write_page,
)
from claimscore.report.evaluation.sources import find_sources, run_signatures
from claimscore.report.evaluation.tables import notes_html, section_html, table_html
from claimscore.report.markup import count

TITLES = dict(zip(MEASURES, ("Balanced accuracy", "ROC-AUC"), strict=True))
NAMES = dict(zip(MEASURES, ("accuracy", "auc"), strict=True))


def write_summac_page(result: SummacResult, config: SummacConfig, path: Path, command: str) -> None:
    """Write the page; `command` is what was typed to get it."""
    sections = result.sections()
    parts = [
        Part(NAMES[measure], TITLES[measure], section_html(section, _charts(result, measure)))
        for measure, section in zip(MEASURES, sections, strict=True)
    ]
    parts.append(Part("sets", "Data sets and thresholds", _sets(result.rows)))
    tables = [str(table) for table in config.tables]
    datasets = dataset_names(result.rows)
    write_page(
        EvaluationPage(
            title="SummaC benchmark",
            lede=[
                f"protocol {result.protocol}",
                count(len(datasets), "data set"),
                count(len(config.scores), "score"),
            ],
            command=command,
            signature=settings_signature("summac", dataclasses.asdict(config)),
            sources=find_sources(tables, path),
            parts=parts,
            signatures=run_signatures(map(Path, tables), config.scores),
        ),
        path,
    )


def dataset_names(rows: pl.DataFrame) -> list[str]:
    names = rows["dataset"].unique(maintain_order=True).to_list()
    return [name for name in names if name != OVERALL]


def _charts(result: SummacResult, measure: str) -> str:
    """A figure a data set, and one of the mean: our scores, then the published ones."""
    of_dataset: dict[str, list[Mark]] = {}
    for row in result.rows.filter(measure=measure).iter_rows(named=True):
        bounds = (100 * row["low"], 100 * row["high"])
        corrected = (100 * row["low_corrected"], 100 * row["high_corrected"])
        mark = Mark(row["score"], 100 * row["value"], bounds, corrected)
        of_dataset.setdefault(row["dataset"], []).append(mark)
    named = any(_published(measure, name) for name in of_dataset if name != OVERALL)
    for name, marks in of_dataset.items():
        marks += _published(measure, name) if named else []
    axis = find_axis([mark for marks in of_dataset.values() for mark in marks], 50.0, (0, 100))
    figures = "".join(
        interval_chart(name, marks, axis, ".1f") for name, marks in of_dataset.items()
    )
    wider = "wider99" if result.protocol == "notebook" else "corrected"
    kinds = ("interval", wider, "published") if named else ("interval", wider)
    chance = '<p class="hint lead">In percent; the line at 50 is what chance reaches.</p>'
    return f'{legend(*kinds)}{chance}<div class="figures">{figures}</div>'


def _published(measure: str, dataset: str) -> list[Mark]:
    figures = [(model, summac_figure(model, measure, dataset)) for model in SUMMAC_TEST]
    return [
        Mark(f"{model}, published", 100 * figure, published=True)
        for model, figure in figures
        if figure is not None
    ]


def _sets(rows: pl.DataFrame) -> str:
    accuracy = rows.filter((pl.col("measure") == MEASURES[0]) & (pl.col("dataset") != OVERALL))
    found: list[tuple[str, ...]] = [
        (
            row["dataset"],
            row["score"],
            f"{row['threshold']:.4g}",
            f"{row['n_threshold']:,} ({row['threshold_on']})",
            f"{row['n']:,} ({row['scored_on']})",
            f"{100 * row['positives']:.1f}",
        )
        for row in accuracy.iter_rows(named=True)
    ]
    header = ("data set", "score", "threshold", "picked on", "scored rows", "consistent, %")
    return table_html(Section("Data sets and thresholds", header, found)) + notes_html(
        ("a summary counts as consistent where its score is above the threshold",)
    )
