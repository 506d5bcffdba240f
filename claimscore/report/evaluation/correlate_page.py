"""The page of `evaluate correlate`: tables, and a chart of each rating's correlations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from claimscore.evaluation.correlations import CorrelateConfig, CorrelateResult
from claimscore.report.evaluation.evaluation_page import (
    Block,
    Chart,
    EvaluationPage,
    Mark,
    PageSection,
    find_sources,
    interval_charts,
    run_signatures,
    section_block,
    settings_signature,
    write_evaluation_page,
)
from claimscore.report.html_page import count


def write_correlate_page(
    result: CorrelateResult, config: CorrelateConfig, path: Path, command: str
) -> None:
    """Write the page; `command` is what was typed to get it."""
    found = result.sections()
    groups = result.correlations.select("correlation", "level").unique(maintain_order=True).rows()
    sections = [
        PageSection(
            f"{method}-{level}",
            f"{str(method).capitalize()}, {level} level",
            [
                section_block(
                    section,
                    legend=("interval",),
                    charts=_charts(result, config, str(method), str(level)),
                )
            ],
        )
        for (method, level), section in zip(groups, found[: len(groups)], strict=True)
    ]
    sections += [
        PageSection("compared", "Compared", [section_block(s)]) for s in found[len(groups) :]
    ]
    sections.append(PageSection("notes", "Notes", [Block(notes=tuple(_notes(result, config)))]))
    lede = [count(result.n_cases, "case")]
    lede += [count(result.n_systems, "system")] if config.case else []
    lede += [count(len(config.scores), "score"), count(len(config.ratings), "rating")]
    settings = dataclasses.asdict(config) | {"levels": config.chosen_levels}
    tables = [config.table, *([config.ratings_file] if config.ratings_file else [])]
    write_evaluation_page(
        EvaluationPage(
            title="Correlations with ratings",
            lede=lede,
            command=command,
            signature=settings_signature("correlate", settings),
            sources=find_sources(tables, path),
            sections=sections,
            signatures=run_signatures([Path(config.table)], config.scores),
        ),
        path,
    )


def _notes(result: CorrelateResult, config: CorrelateConfig) -> Iterator[str]:
    yield "no sign is flipped: a score that is good when it is low correlates negatively"
    yield "intervals are over the cases; systems are not resampled, so they hold for these systems"
    if config.drop_missing:
        yield f"{count(result.left_out, 'case')} left out because a value was missing"
    else:
        yield "no value was missing: nothing was left out"
    for reason in result.correlations["reason"].drop_nulls().unique(maintain_order=True):
        yield f"none: {reason}"


def _charts(
    result: CorrelateResult, config: CorrelateConfig, method: str, level: str
) -> tuple[Chart, ...]:
    of_rating: dict[str, list[Mark]] = {rating: [] for rating in config.ratings}
    rows = result.correlations.filter(correlation=method, level=level)
    for row in rows.iter_rows(named=True):
        known = row["low"] is not None and row["high"] is not None
        interval = (row["low"], row["high"]) if known else None
        of_rating[row["rating"]].append(Mark(row["score"], row["value"], interval))
    return interval_charts(of_rating, 0.0, 3, (-1, 1))
