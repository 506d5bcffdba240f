"""The page of `evaluate caspr`: the paper's tables, and its Figure 2 over our scores."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from claimscore.evaluation.caspr_experiment import TITLES, CasprConfig, CasprResult
from claimscore.evaluation.caspr_texts import COMPARISONS
from claimscore.evaluation.result import Section
from claimscore.report.evaluation.charts import Box, box_chart, legend
from claimscore.report.evaluation.page import (
    EvaluationPage,
    Part,
    settings_signature,
    write_page,
)
from claimscore.report.evaluation.sources import Source, run_link
from claimscore.report.evaluation.tables import notes_html, section_html, table_html
from claimscore.report.markup import count

_NAMES = ("means", "paraphrased", "order")
_TITLES = ("Means", "Paraphrased", "Order")


def write_caspr_page(result: CasprResult, config: CasprConfig, path: Path, command: str) -> None:
    """Write the page; `command` is what was typed to get it."""
    means, *others = result.sections()
    sections = [section_html(means), *map(section_html, others)]
    parts = [Part("figure", "Figure", _figure(result))]
    parts += map(Part, _NAMES, _TITLES, sections)
    parts.append(Part("left-out", "Left out", _left_out(result)))
    metrics = result.rho["metric"].to_list()
    known = result.scores.select("metric", "signature").unique(maintain_order=True).drop_nulls()
    write_page(
        EvaluationPage(
            title="The CASPR paper's comparisons",
            lede=[
                count(result.n_records, "record"),
                count(len(COMPARISONS), "comparison"),
                count(len(metrics), "metric"),
            ],
            command=command,
            signature=settings_signature("caspr", _settings(config)),
            sources=[
                Source("Input", config.run.input),
                Source("Run", str(result.run.out), True, run_link(Path(result.run.out), path)),
                Source("Texts made", f"{result.n_made:,}"),
            ],
            parts=parts,
            signatures=known.rows(),
        ),
        path,
    )


def _settings(config: CasprConfig) -> dict[str, object]:
    return {
        "paraphrase": config.paraphrase,
        "llm": config.run.llm.model,
        "drop_missing": config.drop_missing,
        "samples": config.samples,
        "seed": config.run.seed,
    }


def _figure(result: CasprResult) -> str:
    """A panel a metric, as the paper's Figure 2."""
    figures = ""
    published = False
    for metric in result.rho["metric"].to_list():
        boxes = []
        for row in result.means.filter(metric=metric).iter_rows(named=True):
            name = row["comparison"]
            values = result.scores.filter(metric=metric, comparison=name)["value"].drop_nulls()
            first, _, rest = TITLES[name].partition(" ")
            boxes.append(
                Box(
                    (first, rest.removesuffix(" (paraphrased)")),
                    values.to_list(),
                    row["mean"],
                    row["half_width"],
                    row["published_mean"],
                    row["published_half_width"],
                )
            )
            published = published or row["published_mean"] is not None
        figures += box_chart(metric, boxes)
    kinds = ("box", "mean", "published") if published else ("box", "mean")
    return f'{legend(*kinds)}<div class="figures wide">{figures}</div>'


def _left_out(result: CasprResult) -> str:
    """Pairs without a text, and pairs without a score, each with the reason."""
    texts = Counter((item.comparison, "", item.reason) for item in result.missing)
    nulls = result.scores.filter(result.scores["value"].is_null())
    scores = Counter(
        (row["comparison"], row["metric"], row["reason"] or "no reason given")
        for row in nulls.iter_rows(named=True)
    )
    rows: list[tuple[str, ...]] = [
        (TITLES[comparison], metric or "all", f"{n:,}", reason)
        for (comparison, metric, reason), n in [*texts.items(), *scores.items()]
    ]
    if not rows:
        return '<p class="note good">Every pair has every text and every score.</p>'
    shown = Section("Left out", ("comparison", "metric", "pairs", "reason"), rows[:200])
    more = (f"{len(rows) - 200:,} more are in pairs.parquet",) if len(rows) > 200 else ()
    return table_html(shown) + notes_html(more)
