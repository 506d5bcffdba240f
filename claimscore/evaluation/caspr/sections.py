"""The CASPR experiment as titled tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from claimscore.evaluation.caspr.experiment import ORDER, PARAPHRASED, CasprConfig, CasprResult
from claimscore.evaluation.caspr.pairs import COMPARISONS
from claimscore.evaluation.published import CASPR_SOURCE
from claimscore.evaluation.sections import Section

#: Comparisons as the paper names them.
TITLES = {
    "syn_low": "synthetic low",
    "ref_similar": "reference similar",
    "ref_contrastive": "reference contrastive",
    "syn_high": "synthetic high",
    "syn_contrast": "synthetic contrast (paraphrased)",
}


def caspr_sections(result: CasprResult, config: CasprConfig) -> Iterator[Section]:
    """Means, then the correlation with paraphrased summaries, then the order of the means."""
    yield _means_section(result, config)
    yield _paraphrased_section(result, config)
    yield _order_section(result)


def _means_section(result: CasprResult, config: CasprConfig) -> Section:
    metrics = result.rho["metric"].to_list()
    cells = {(row["metric"], row["comparison"]): row for row in result.means.iter_rows(named=True)}
    published = [m for m in metrics if cells[m, PARAPHRASED[0]]["published_mean"] is not None]
    header = [name for m in metrics for name in ((m, "published") if m in published else (m,))]
    rows = []
    for comparison in COMPARISONS:
        shown = [TITLES[comparison]]
        for metric in metrics:
            row = cells[metric, comparison]
            shown.append(_interval(row["mean"], row["half_width"], 2) + _count(row))
            if metric in published:
                shown.append(_interval(row["published_mean"], row["published_half_width"], 1))
        rows.append(tuple(shown))
    notes = [f"95 % interval: 1.96 standard deviations of {config.samples:,} bootstrap means"]
    notes += [f"{result.n_made:,} texts made by {config.run.llm.model}"] if result.n_made else []
    if result.missing:
        notes.append(f"{len(result.missing):,} pairs left out: a text of theirs could not be made")
    notes += [f"published: {CASPR_SOURCE}; where it is empty, in its Figure 2 alone"] * bool(
        published
    )
    return Section(
        f"Means of {result.n_records:,} pairs a comparison",
        ("comparison", *header),
        rows,
        tuple(notes),
    )


def _paraphrased_section(result: CasprResult, config: CasprConfig) -> Section:
    means = {(row["metric"], row["comparison"]): row for row in result.means.iter_rows(named=True)}
    rows = []
    for row in result.rho.iter_rows(named=True):
        both = (means[row["metric"], comparison] for comparison in PARAPHRASED)
        shown = [_interval(mean["mean"], mean["half_width"], 2) for mean in both]
        rho = row["reason"] or f"{row['spearman']:.4f} [{row['low']:.2f}, {row['high']:.2f}]"
        rows.append((row["metric"], *shown, rho, _number(row["published"], 2)))
    return Section(
        "Paraphrasing both summaries: Spearman's ρ of the pairs' scores before and after",
        ("metric", *(TITLES[name] for name in PARAPHRASED), "ρ", "published ρ"),
        rows,
        (f"95 % bootstrap interval over pairs ({config.samples:,} samples)",),
    )


def _order_section(result: CasprResult) -> Section:
    rows: list[tuple[str, ...]] = []
    for (metric,), means in result.means.group_by("metric", maintain_order=True):
        found = dict(means.select("comparison", "mean").iter_rows())
        known = [name for name in ORDER if found[name] is not None]
        ranked = sorted(known, key=lambda name: float(found[name]))
        kept = "yes" if tuple(ranked) == ORDER else "no"
        rows.append((str(metric), kept, " < ".join(TITLES[name] for name in ranked)))
    wanted = " < ".join(TITLES[name] for name in ORDER)
    return Section(
        "Order of the means", ("metric", "as wanted", "order"), rows, (f"wanted: {wanted}",)
    )


def _count(row: dict[str, Any]) -> str:
    return f" (n {row['n']}, null {row['null']})" if row["null"] else ""


def _interval(mean: float | None, half_width: float | None, digits: int) -> str:
    if mean is None:
        return ""
    return f"{mean:.{digits}f} ± {half_width:.{digits}f}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
