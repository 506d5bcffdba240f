"""The pages of the evaluations: of scores beside ratings and labels, and of the papers' tables."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.evaluation.caspr_experiment import COMPARISONS, TITLES, CasprResult
from claimscore.evaluation.correlations import CorrelateConfig, CorrelateResult
from claimscore.evaluation.human_claims import ClaimsResult
from claimscore.evaluation.labels import LabelsResult
from claimscore.evaluation.published import OVERALL, SUMMAC_TEST, summac_figure
from claimscore.evaluation.result import EvaluationResult, Section
from claimscore.evaluation.summac_benchmark import MEASURES, SummacResult
from claimscore.evaluation.summac_grid import CELL_SCHEMA, GridResult
from claimscore.evaluation.support_benchmark import SupportResult
from claimscore.report.evaluation.evaluation_page import (
    Block,
    Box,
    Chart,
    Mark,
    PageSection,
    SourceLink,
    box_chart,
    find_sources,
    heat_levels,
    interval_charts,
    run_signatures,
    section_block,
    write_evaluation_page,
)
from claimscore.report.html_page import count, decimal

_MEASURE_TITLES = dict(zip(MEASURES, ("Balanced accuracy", "ROC-AUC"), strict=True))
_NAMES = dict(zip(MEASURES, ("accuracy", "auc"), strict=True))


def write_result_page(result: EvaluationResult, path: Path, command: str) -> Path | None:
    """Write the page of a result, and return its path; None for a kind that has none.

    `command` is what was typed to get it.
    """
    if type(result) not in _PAGES:
        return None
    page: _Page = _PAGES[type(result)](result)
    write_evaluation_page(
        path,
        title=result.title,
        lede=page.lede,
        command=command,
        name=result.name,
        settings=page.settings or dataclasses.asdict(result.config),
        sources=find_sources(page.sources, path),
        sections=page.sections,
        signatures=page.signatures,
    )
    return path


@dataclasses.dataclass(frozen=True)
class _Page:
    """What a page says of a result; without `settings` its signature has those of the result."""

    lede: Sequence[str]
    sections: Sequence[PageSection]
    sources: Sequence[str | SourceLink]
    signatures: Iterable[tuple[str, str]] = ()
    settings: Mapping[str, object] | None = None


def _correlate_page(result: CorrelateResult) -> _Page:
    config = result.config
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
                    charts=_correlation_charts(result, config, str(method), str(level)),
                )
            ],
        )
        for (method, level), section in zip(groups, found[: len(groups)], strict=True)
    ]
    sections += [
        PageSection("compared", "Compared", [section_block(s)]) for s in found[len(groups) :]
    ]
    sections.append(
        PageSection("notes", "Notes", [Block(notes=tuple(_correlate_notes(result, config)))])
    )
    lede = [count(result.n_cases, "case")]
    lede += [count(result.n_systems, "system")] if config.case else []
    lede += [count(len(config.scores), "score"), count(len(config.ratings), "rating")]
    return _Page(
        lede,
        sections,
        [config.table, *([config.ratings_file] if config.ratings_file else [])],
        run_signatures([Path(config.table)], config.scores),
        dataclasses.asdict(config) | {"levels": config.chosen_levels},
    )


def _correlate_notes(result: CorrelateResult, config: CorrelateConfig) -> Iterator[str]:
    yield "no sign is flipped: a score that is good when it is low correlates negatively"
    yield "intervals are over the cases; systems are not resampled, so they hold for these systems"
    if config.drop_missing:
        yield f"{count(result.left_out, 'case')} left out because a value was missing"
    else:
        yield "no value was missing: nothing was left out"
    for reason in result.correlations["reason"].drop_nulls().unique(maintain_order=True):
        yield f"none: {reason}"


def _correlation_charts(
    result: CorrelateResult, config: CorrelateConfig, method: str, level: str
) -> tuple[Chart, ...]:
    of_rating: dict[str, list[Mark]] = {rating: [] for rating in config.ratings}
    rows = result.correlations.filter(correlation=method, level=level)
    for row in rows.iter_rows(named=True):
        known = row["low"] is not None and row["high"] is not None
        interval = (row["low"], row["high"]) if known else None
        of_rating[row["rating"]].append(Mark(row["score"], row["value"], interval))
    return interval_charts(of_rating, 0.0, 3, (-1, 1))


def _claims_page(result: ClaimsResult) -> _Page:
    found = result.sections()
    marks = [
        Mark(row["system"], 100 * row["f1"], (100 * row["f1_low"], 100 * row["f1_high"]))
        for row in result.systems.iter_rows(named=True)
        if row["f1"] is not None
    ]
    whole = next(mark.value for mark in marks if mark.label == "whole sentence")
    charts = interval_charts({"one-to-one F1, %": marks}, whole or 0.0, 1, (0, 100))
    blocks = [section_block(found[0], legend=("interval",), charts=charts)]
    blocks += [section_block(section) for section in found[1:]]
    titles = ["Words", *(["Entailment"] if result.config.entailment else []), "Form"]
    lede = [
        count(result.n_cases, "document"),
        count(result.systems["n_units"][0], "human claim"),
        count(len(result.config.tables) - 1, "system"),
    ]
    sections = [
        PageSection(f"claims-{number}", title, [block])
        for number, (title, block) in enumerate(zip(titles, blocks, strict=True))
    ]
    return _Page(lede, sections, result.config.tables)


# Support


def _support_page(result: SupportResult) -> _Page:
    sections = []
    for number, section in enumerate(result.sections()):
        whole = result.rows.filter(pl.col("kind").is_null() & (pl.col("dataset") == section.title))
        marks = [
            Mark(row["score"], 100 * row["auc"], (100 * row["auc_low"], 100 * row["auc_high"]))
            for row in whole.iter_rows(named=True)
            if row["auc_low"] is not None
        ]
        charts = interval_charts({"ROC-AUC, %": marks}, 50.0, 1, (0, 100)) if marks else ()
        block = section_block(section, legend=("interval",) if marks else (), charts=charts)
        sections.append(PageSection(f"support-{number}", section.title, [block]))
    whole = result.rows.filter(pl.col("kind").is_null()).unique("dataset")
    lede = [
        count(len(result.datasets), "data set"),
        count(int(whole["n"].sum()), "row"),
        count(int(whole["n_documents"].sum()), "document"),
    ]
    return _Page(lede, sections, result.config.tables)


def _labels_page(result: LabelsResult) -> _Page:
    marks = [Mark(name, one.value, one.interval) for name, one in result.estimates().items()]
    sections = []
    for number, section in enumerate(result.sections()):
        charts: tuple[Chart, ...] = ()
        if not number:
            charts = interval_charts({section.title: marks}, result.mean.corrected.value, 3)
        elif section.title == "Reliability":
            charts = (_reliability_chart(result.reliability),)
        legend = ("interval",) if charts else ()
        sections.append(
            PageSection(
                f"labels-{number}",
                section.title,
                [section_block(section, title="", legend=legend, charts=charts)],
            )
        )
    config = result.config
    lede = [
        result.metric,
        count(result.mean.n_labels, "label"),
        count(result.mean.n_records, "record"),
    ]
    names = {"labels": [Path(one).name for one in config.labels]}
    settings = dataclasses.asdict(config) | names
    return _Page(lede, sections, [config.run, *config.labels], settings=settings)


def _reliability_chart(rows: pl.DataFrame) -> Chart:
    """What the verifier says against what people find, one dot a step of the probability."""
    dots = rows.drop_nulls("supported").drop("from", "to").to_dicts()
    said = "; ".join(f"{dot['probability']:.2f} said, {dot['supported']:.2f} found" for dot in dots)
    hint = "On the line the probability is the share of claims that people find supported."
    return Chart("Reliability", said, {"kind": "reliability", "dots": dots}, hint)


# SummaC


def _summac_page(result: SummacResult) -> _Page:
    found = zip(MEASURES, result.sections(), strict=True)
    sections = [
        PageSection(
            _NAMES[measure], _MEASURE_TITLES[measure], [_measure_block(result, measure, section)]
        )
        for measure, section in found
    ]
    title = "Data sets and thresholds"
    sections.append(PageSection("sets", title, [_thresholds(title, result.rows)]))
    config = result.config
    lede = [
        f"protocol {result.protocol}",
        count(len(_datasets(result.rows)), "data set"),
        count(len(config.scores), "score"),
    ]
    signatures = run_signatures(map(Path, config.tables), config.scores)
    return _Page(lede, sections, config.tables, signatures)


def _datasets(rows: pl.DataFrame) -> list[str]:
    names = rows["dataset"].unique(maintain_order=True).to_list()
    return [name for name in names if name != OVERALL]


def _measure_block(result: SummacResult, measure: str, section: Section) -> Block:
    """A chart a data set, and one of the mean: our scores, then the published ones."""
    of_dataset: dict[str, list[Mark]] = {}
    for row in result.rows.filter(measure=measure).iter_rows(named=True):
        bounds = (100 * row["low"], 100 * row["high"])
        corrected = (100 * row["low_corrected"], 100 * row["high_corrected"])
        mark = Mark(row["score"], 100 * row["value"], bounds, corrected)
        of_dataset.setdefault(row["dataset"], []).append(mark)
    is_known = any(_published(measure, name) for name in of_dataset if name != OVERALL)
    for name, marks in of_dataset.items():
        marks += _published(measure, name) if is_known else []
    wider = "wider99" if result.protocol == "notebook" else "corrected"
    charts: tuple[Chart, ...] = interval_charts(of_dataset, 50.0, 1, (0, 100))
    return section_block(
        section,
        legend=("interval", wider, "published") if is_known else ("interval", wider),
        lead="In percent; the line at 50 is what chance reaches.",
        charts=charts,
    )


def _published(measure: str, dataset: str) -> list[Mark]:
    figures = [(model, summac_figure(model, measure, dataset)) for model in SUMMAC_TEST]
    return [
        Mark(f"{model}, published", 100 * figure, published=True)
        for model, figure in figures
        if figure is not None
    ]


def _thresholds(title: str, rows: pl.DataFrame) -> Block:
    accuracy = rows.filter((pl.col("measure") == MEASURES[0]) & (pl.col("dataset") != OVERALL))
    return Block(
        header=("data set", "score", "threshold", "picked on", "scored rows", "consistent, %"),
        rows=[
            (
                row["dataset"],
                row["score"],
                f"{row['threshold']:.4g}",
                f"{row['n_threshold']:,} ({row['threshold_on']})",
                f"{row['n']:,} ({row['scored_on']})",
                f"{100 * row['positives']:.1f}",
            )
            for row in accuracy.iter_rows(named=True)
        ],
        notes=("a summary counts as consistent where its score is above the threshold",),
    )


# The grid


def _grid_page(result: GridResult) -> _Page:
    """A heat map a measure and data set."""
    datasets = _datasets(result.rows)
    groups = result.rows.select("measure", "dataset").unique(maintain_order=True).rows()
    blocks: dict[str, list[Block]] = {measure: [] for measure in MEASURES}
    for (measure, dataset), section in zip(groups, result.sections(), strict=True):
        block = _heat_map(section, result.rows.filter(measure=measure, dataset=dataset))
        if dataset == OVERALL or len(datasets) == 1:
            blocks[measure].insert(0, block)
        else:
            blocks[measure].append(Block(summary=dataset, blocks=(block,)))
    sections = [PageSection(_NAMES[name], _MEASURE_TITLES[name], blocks[name]) for name in MEASURES]
    sections.append(PageSection("speed", "Speed", [_speed(result.speed)]))
    config = result.config
    runs = [config.run_folder(table) for table in config.tables]
    lede = [
        f"protocol {result.protocol}",
        count(len(datasets), "data set"),
        count(result.rows.select(*CELL_SCHEMA).unique().height, "setting"),
    ]
    signatures = run_signatures(runs, _metrics(runs))
    settings = dataclasses.asdict(config) | {"nli": config.encoders.nli}
    return _Page(lede, sections, list(map(str, runs)), signatures, settings)


def _metrics(runs: list[Path]) -> list[str]:
    scores = [run / "scores.parquet" for run in runs if (run / "scores.parquet").is_file()]
    if not scores:
        return []
    names = pl.scan_parquet(scores, glob=False).select(pl.col("metric").unique().sort())
    found: list[str] = names.collect()["metric"].to_list()
    return found


def _heat_map(section: Section, rows: pl.DataFrame) -> Block:
    n_columns = len(section.header) - 2  # without the names and the speed
    values = {
        (number, place): float(row[place])
        for number, row in enumerate(section.rows)
        for place in range(1, n_columns + 1)
    }
    best = rows.sort("value", descending=True, maintain_order=True).row(0, named=True)
    found = (
        f"best: documents by {best['document_blocks']}, summaries by {best['summary_blocks']}, "
        f"{best['op1']} over the document, {best['op2']} over the summary: "
        f"{100 * best['value']:.1f} [{100 * best['low']:.1f}–{100 * best['high']:.1f}]; chosen "
        f"among {count(rows.height, 'setting')} on the rows that are scored, so it promises more "
        "than it keeps"
    )
    return section_block(
        section,
        scale=(min(values.values()), max(values.values())),
        cell_levels=heat_levels(values),
        notes=(found, *section.notes),
    )


def _speed(speed: pl.DataFrame) -> Block:
    return Block(
        header=("document, summary", "documents", "seconds", "documents a minute"),
        rows=[
            (
                f"{row['document_blocks']}, {row['summary_blocks']}",
                decimal(row["documents"], ",d"),
                decimal(row["seconds"], ",.1f"),
                decimal(row["documents_per_minute"], ",.0f"),
            )
            for row in speed.iter_rows(named=True)
        ],
        notes=(
            "only where this call computed NLI: cutting, judging and writing, without the loading "
            "of the model",
        ),
    )


# The CASPR paper's comparisons

_CASPR_SECTIONS = (("means", "Means"), ("paraphrased", "Paraphrased"), ("order", "Order"))

#: So many rows of pairs without a text or a score are on the page.
MAX_LEFT_OUT = 200


def _caspr_page(result: CasprResult) -> _Page:
    config = result.config
    metrics = result.rho["metric"].to_list()
    published = result.means["published_mean"].is_not_null().any()
    figure = Block(
        legend=("box", "mean", "published") if published else ("box", "mean"),
        charts=tuple(_chart(result, metric) for metric in metrics),
    )
    found = zip(_CASPR_SECTIONS, result.sections(), strict=True)
    known = result.scores.select("metric", "signature").unique(maintain_order=True).drop_nulls()
    settings = {
        "paraphrase": config.paraphrase,
        "llm": config.run.llm.model,
        "drop_missing": config.drop_missing,
        "samples": config.samples,
        "seed": config.run.seed,
    }
    lede = [
        count(result.n_records, "record"),
        count(len(COMPARISONS), "comparison"),
        count(len(metrics), "metric"),
    ]
    sections = [
        PageSection("figure", "Figure", [figure]),
        *(PageSection(*name, [section_block(section)]) for name, section in found),
        PageSection("left-out", "Left out", [_left_out(result)]),
    ]
    sources = (
        SourceLink("Input", config.run.input),
        str(result.run.out),
        SourceLink("Texts made", f"{result.n_made:,}"),
    )
    return _Page(lede, sections, sources, known.rows(), settings)


def _chart(result: CasprResult, metric: str) -> Chart:
    """The boxes of one metric, as a panel of the paper's Figure 2."""
    boxes = []
    for row in result.means.filter(metric=metric).iter_rows(named=True):
        name = row["comparison"]
        values = result.scores.filter(metric=metric, comparison=name)["value"].drop_nulls()
        boxes.append(
            Box(
                TITLES[name].removesuffix(" (paraphrased)"),
                values.to_list(),
                row["mean"],
                row["half_width"],
                row["published_mean"],
                row["published_half_width"],
            )
        )
    return box_chart(metric, boxes)


def _left_out(result: CasprResult) -> Block:
    """Pairs without a text, and pairs without a score, each with the reason."""
    texts = Counter((item.comparison, "", item.reason) for item in result.missing)
    nulls = result.scores.filter(result.scores["value"].is_null())
    scores = Counter(
        (row["comparison"], row["metric"], row["reason"] or "no reason given")
        for row in nulls.iter_rows(named=True)
    )
    rows = [
        (TITLES[comparison], metric or "all", f"{n:,}", reason)
        for (comparison, metric, reason), n in [*texts.items(), *scores.items()]
    ]
    if not rows:
        return Block(lead="Every pair has every text and every score.")
    more = len(rows) - MAX_LEFT_OUT
    return Block(
        header=("comparison", "metric", "pairs", "reason"),
        rows=rows[:MAX_LEFT_OUT],
        notes=(f"{more:,} more are in pairs.parquet",) if more > 0 else (),
    )


_PAGES: dict[type[EvaluationResult], Callable[[Any], _Page]] = {
    CorrelateResult: _correlate_page,
    ClaimsResult: _claims_page,
    SupportResult: _support_page,
    LabelsResult: _labels_page,
    SummacResult: _summac_page,
    GridResult: _grid_page,
    CasprResult: _caspr_page,
}
