"""The page of `evaluate correlate`: tables, and a chart of each rating's correlations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from claimscore.evaluation.correlations import CorrelateConfig, CorrelateResult
from claimscore.report.evaluation.charts import Axis, Mark, find_axis, interval_chart, legend
from claimscore.report.evaluation.page import (
    EvaluationPage,
    Part,
    settings_signature,
    write_page,
)
from claimscore.report.evaluation.sources import find_sources, run_signatures
from claimscore.report.evaluation.tables import notes_html, section_html
from claimscore.report.markup import count


def write_correlate_page(
    result: CorrelateResult, config: CorrelateConfig, path: Path, command: str
) -> None:
    """Write the page; `command` is what was typed to get it."""
    sections = result.sections()
    groups = result.correlations.select("correlation", "level").unique(maintain_order=True).rows()
    parts = [
        Part(
            f"{method}-{level}",
            f"{str(method).capitalize()}, {level} level",
            section_html(section, _charts(result, config, str(method), str(level))),
        )
        for (method, level), section in zip(groups, sections[: len(groups)], strict=True)
    ]
    parts += [Part("compared", "Compared", section_html(s)) for s in sections[len(groups) :]]
    reasons = result.correlations["reason"].drop_nulls().unique(maintain_order=True).to_list()
    parts.append(Part("notes", "Notes", notes_html(tuple(_notes(result, config, reasons)))))
    lede = [count(result.n_cases, "case")]
    lede += [count(result.n_systems, "system")] if config.case else []
    lede += [count(len(config.scores), "score"), count(len(config.ratings), "rating")]
    settings = dataclasses.asdict(config) | {"levels": config.chosen_levels}
    write_page(
        EvaluationPage(
            title="Correlations with ratings",
            lede=lede,
            command=command,
            signature=settings_signature("correlate", settings),
            sources=find_sources(
                [config.table, *([config.ratings_file] if config.ratings_file else [])], path
            ),
            parts=parts,
            signatures=run_signatures([Path(config.table)], config.scores),
        ),
        path,
    )


def _notes(result: CorrelateResult, config: CorrelateConfig, reasons: list[str]) -> Iterator[str]:
    yield "no sign is flipped: a score that is good when it is low correlates negatively"
    yield "intervals are over the cases; systems are not resampled, so what is said holds for these"
    if config.drop_missing:
        yield f"{count(result.left_out, 'case')} left out because a value was missing"
    else:
        yield "no value was missing: nothing was left out"
    for reason in reasons:
        yield f"none: {reason}"


def _charts(result: CorrelateResult, config: CorrelateConfig, method: str, level: str) -> str:
    rows = result.correlations.filter(correlation=method, level=level)
    of_rating: dict[str, list[Mark]] = {rating: [] for rating in config.ratings}
    for row in rows.iter_rows(named=True):
        known = row["low"] is not None and row["high"] is not None
        interval = (row["low"], row["high"]) if known else None
        of_rating[row["rating"]].append(Mark(row["score"], row["value"], interval))
    axis: Axis = find_axis([mark for marks in of_rating.values() for mark in marks], 0.0, (-1, 1))
    figures = "".join(
        interval_chart(rating, marks, axis, ".3f") for rating, marks in of_rating.items()
    )
    return f'{legend("interval")}<div class="figures">{figures}</div>'
