"""Results as titled tables of text: what is printed, and the Markdown page of `--out`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from claimscore.atomic import atomic_path, os_errors, write_text
from claimscore.evaluation.correlate import CorrelateConfig, CorrelateResult
from claimscore.evaluation.published import (
    OVERALL,
    SUMMAC_SOURCE,
    SUMMAC_TEST,
    summac_figure,
)
from claimscore.evaluation.summac import (
    EVEN,
    MEASURES,
    NOTEBOOK_DRAWS,
    SummacConfig,
    SummacResult,
    half_names,
)

Row = Mapping[str, Any]

STARS = "** p ≤ 0.01, * p ≤ 0.05 (each by itself, not corrected)"


class Section(NamedTuple):
    """One table; `notes` say what its numbers are."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()


def correlate_sections(result: CorrelateResult, config: CorrelateConfig) -> Iterator[Section]:
    """A table a correlation and level: scores by ratings, and the average rank."""
    size = f"{result.n_cases:,} cases"
    size += f", {result.n_systems} systems" if config.case else ""
    left_out = f"{result.left_out:,} cases left out for missing values"
    for (method, level), rows in result.correlations.group_by(
        "correlation", "level", maintain_order=True
    ):
        of_score: dict[str, list[str]] = {}
        undefined = 0
        for row in rows.iter_rows(named=True):
            of_score.setdefault(row["score"], []).append(_correlation(row))
            undefined = max(undefined, row["undefined_cases"])
        ranks = result.ranks.filter(correlation=method, level=level)["average_rank"].to_list()
        notes = [f"95 % bootstrap interval over cases ({config.samples:,} samples); {STARS}"]
        notes += [left_out] if result.left_out else []
        notes += [f"up to {undefined} cases are constant and have no value"] if undefined else []
        yield Section(
            f"{_METHOD_NAMES[str(method)]}, {level} level: {size}",
            ("score", *config.ratings, "average rank"),
            [
                (score, *cells, _number(rank, 2))
                for (score, cells), rank in zip(of_score.items(), ranks, strict=True)
            ],
            tuple(notes),
        )
    if config.compare:
        yield _comparison_section(result.comparisons)


_METHOD_NAMES = {"kendall": "Kendall's τ-b", "spearman": "Spearman's ρ", "pearson": "Pearson's r"}


def _correlation(row: Row) -> str:
    if row["value"] is None:
        return "none"
    p = row["p_value"]
    stars = "" if p is None or p > 0.05 else "**" if p <= 0.01 else "*"
    return f"{row['value']:.4f}{stars} [{_number(row['low'], 2)}, {_number(row['high'], 2)}]"


def _comparison_section(comparisons: pl.DataFrame) -> Section:
    rows: list[tuple[str, ...]] = [
        (
            row["correlation"],
            row["level"],
            row["rating"],
            f"{row['score_1']} − {row['score_2']}",
            _number(row["difference"], 4),
            f"[{_number(row['low'], 2)}, {_number(row['high'], 2)}]",
            _number(row["p_bootstrap"], 4),
            _number(row["williams_t"], 3),
            _number(row["p_williams"], 4),
        )
        for row in comparisons.iter_rows(named=True)
    ]
    header = ("correlation", "level", "rating", "difference of", "value", "95 % interval")
    reasons = comparisons["reason"].drop_nulls().unique(maintain_order=True).to_list()
    return Section(
        "Which correlates better",
        (*header, "p (bootstrap)", "Williams' t", "p (Williams)"),
        rows,
        ("p-values are two-sided and not corrected for the number of comparisons", *reasons),
    )


def summac_sections(result: SummacResult, config: SummacConfig) -> Iterator[Section]:
    """Balanced accuracy, then ROC-AUC: scores by data sets, the published rows beneath."""
    titles = {"balanced_accuracy": "Balanced accuracy", "roc_auc": "ROC-AUC"}
    for measure in MEASURES:
        rows = result.rows.filter(measure=measure)
        datasets = rows["dataset"].unique(maintain_order=True).to_list()
        of_score: dict[str, list[str]] = {}
        for row in rows.iter_rows(named=True):
            of_score.setdefault(row["score"], []).append(_percentage(row))
        table = [(score, *cells) for score, cells in of_score.items()]
        table += _published_rows(measure, datasets)
        published = len(table) > len(of_score)
        yield Section(
            f"{titles[measure]}, %: protocol {result.protocol}",
            ("score", *datasets),
            table,
            tuple(_summac_notes(result, config, published)),
        )


def _percentage(row: Row) -> str:
    bounds = f"[{_percent(row['low'])}–{_percent(row['high'])}]"
    corrected = f"[{_percent(row['low_corrected'])}–{_percent(row['high_corrected'])}]"
    return f"{_percent(row['value'])} {bounds} {corrected}"


def _published_rows(measure: str, datasets: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for model in SUMMAC_TEST:
        figures = [summac_figure(model, measure, name) for name in datasets]
        named = [f for f, name in zip(figures, datasets, strict=True) if name != OVERALL]
        if any(figure is not None for figure in named):
            yield f"{model}, published", *(_percent(figure) for figure in figures)


def _summac_notes(result: SummacResult, config: SummacConfig, published: bool) -> Iterator[str]:
    if result.protocol == "notebook":
        yield (
            "threshold picked on the rows it scores; intervals: 95 % and 99 % of "
            f"{NOTEBOOK_DRAWS} draws of 70 % without replacement"
        )
    else:
        yield (
            f"threshold from {_threshold_rows(config)}; intervals: 95 % "
            f"bootstrap ({config.samples:,} samples), then the same corrected for "
            f"{result.n_intervals} intervals (Bonferroni)"
        )
    if result.left_out:
        yield f"{result.left_out:,} rows left out for missing scores"
    if published:
        yield f"published: {SUMMAC_SOURCE}; rows of other splits are not comparable"


def _threshold_rows(config: SummacConfig) -> str:
    if config.halves is None:
        return "val"
    names = half_names(config.halves)
    seed = "" if config.halves == EVEN else f" (half seed {config.half_seed})"
    return f"the {names[0]}{seed}, scores of the {names[1]}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _number(value: float | None, digits: int) -> str:
    return "none" if value is None else f"{value:.{digits}f}"


def markdown(title: str, sections: Iterable[Section]) -> str:
    """The sections as a Markdown page."""
    lines = [f"# {title}"]
    for section in sections:
        lines += ["", f"## {section.title}", ""]
        lines.append(_markdown_row(section.header))
        lines.append("|---" * len(section.header) + "|")
        lines += [_markdown_row(row) for row in section.rows]
        lines += [line for note in section.notes for line in ("", f"{_escaped(note)}.")]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(_escaped, cells)) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def write_results(out: Path, frames: Mapping[str, pl.DataFrame], page: str, text: str) -> None:
    """Write every table as Parquet and CSV, and the page, into the folder `out`."""
    with os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        with atomic_path(out / f"{name}.parquet") as path:
            frame.write_parquet(path)
        lists = [
            pl.col(n).list.eval(pl.element().cast(pl.String)).list.join(" ")
            for n, dtype in frame.schema.items()
            if isinstance(dtype, pl.List)
        ]
        with atomic_path(out / f"{name}.csv") as path:
            frame.with_columns(lists).write_csv(path)
    write_text(out / page, text)
