"""The page of `evaluate caspr`: the paper's tables, and its Figure 2 over our scores."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from claimscore.evaluation.caspr_experiment import TITLES, CasprConfig, CasprResult
from claimscore.evaluation.caspr_texts import COMPARISONS
from claimscore.report.evaluation.evaluation_page import (
    Block,
    Box,
    Chart,
    EvaluationPage,
    PageSection,
    SourceLink,
    box_chart,
    run_link,
    section_block,
    settings_signature,
    write_evaluation_page,
)
from claimscore.report.html_page import count

_SECTIONS = (("means", "Means"), ("paraphrased", "Paraphrased"), ("order", "Order"))

#: So many rows of pairs without a text or a score are on the page.
MAX_LEFT_OUT = 200


def write_caspr_page(result: CasprResult, config: CasprConfig, path: Path, command: str) -> None:
    """Write the page; `command` is what was typed to get it."""
    metrics = result.rho["metric"].to_list()
    published = result.means["published_mean"].is_not_null().any()
    figure = Block(
        legend=("box", "mean", "published") if published else ("box", "mean"),
        charts=tuple(_chart(result, metric) for metric in metrics),
    )
    found = zip(_SECTIONS, result.sections(), strict=True)
    known = result.scores.select("metric", "signature").unique(maintain_order=True).drop_nulls()
    settings = {
        "paraphrase": config.paraphrase,
        "llm": config.run.llm.model,
        "drop_missing": config.drop_missing,
        "samples": config.samples,
        "seed": config.run.seed,
    }
    write_evaluation_page(
        EvaluationPage(
            title="The CASPR paper's comparisons",
            lede=[
                count(result.n_records, "record"),
                count(len(COMPARISONS), "comparison"),
                count(len(metrics), "metric"),
            ],
            command=command,
            signature=settings_signature("caspr", settings),
            sources=[
                SourceLink("Input", config.run.input),
                SourceLink("Run", str(result.run.out), True, run_link(Path(result.run.out), path)),
                SourceLink("Texts made", f"{result.n_made:,}"),
            ],
            sections=[
                PageSection("figure", "Figure", [figure]),
                *(PageSection(*name, [section_block(section)]) for name, section in found),
                PageSection("left-out", "Left out", [_left_out(result)]),
            ],
            signatures=known.rows(),
        ),
        path,
    )


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
