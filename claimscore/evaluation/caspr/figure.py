"""The CASPR paper's Figure 2: how each metric's scores are spread over the comparisons."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from claimscore.atomic import atomic_path
from claimscore.evaluation.caspr.experiment import CasprResult
from claimscore.evaluation.caspr.pairs import COMPARISONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABELS = {
    "syn_low": "synthetic\nlow",
    "ref_similar": "reference\nsimilar",
    "ref_contrastive": "reference\ncontrastive",
    "syn_high": "synthetic\nhigh",
    "syn_contrast": "synthetic\ncontrast",
}

#: Okabe and Ito's vermillion: tells from black and grey for everyone.
_PUBLISHED_COLOUR = "#D55E00"


def can_plot() -> bool:
    """Whether matplotlib is there: the extra `plots`."""
    return importlib.util.find_spec("matplotlib") is not None


def write_figure(result: CasprResult, path: Path) -> None:
    """An SVG with a panel a metric: a box a comparison, our mean and the published one.

    The same result gives the same bytes.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    metrics = result.means["metric"].unique(maintain_order=True).to_list()
    with rc_context({"svg.hashsalt": "claimscore", "svg.fonttype": "none"}):
        figure = Figure(figsize=(4.6 * len(metrics), 3.8), layout="constrained")
        panels = figure.subplots(1, len(metrics), squeeze=False)[0]
        for panel, metric in zip(panels, metrics, strict=True):
            _draw(panel, result, metric)
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})


def _draw(panel: Axes, result: CasprResult, metric: str) -> None:
    rows = result.means.filter(metric=metric).to_dicts()
    scores = result.scores.filter(metric=metric)
    places = range(len(COMPARISONS))
    values = [
        scores.filter(comparison=name)["value"].drop_nulls().to_list() for name in COMPARISONS
    ]
    panel.boxplot(values, positions=places, widths=0.55, medianprops={"color": "0.35"})
    ours = [(at, row) for at, row in enumerate(rows) if row["mean"] is not None]
    panel.errorbar(
        [at for at, _ in ours],
        [row["mean"] for _, row in ours],
        yerr=[row["half_width"] for _, row in ours],
        fmt="o",
        color="black",
        capsize=3,
        label="mean and 95 % interval",
    )
    theirs = [(at, row) for at, row in enumerate(rows) if row["published_mean"] is not None]
    if theirs:
        panel.errorbar(
            [at + 0.2 for at, _ in theirs],
            [row["published_mean"] for _, row in theirs],
            yerr=[row["published_half_width"] for _, row in theirs],
            fmt="D",
            markerfacecolor="white",
            color=_PUBLISHED_COLOUR,
            capsize=3,
            label="published",
        )
    panel.set_xticks(list(places), [_LABELS[name] for name in COMPARISONS], fontsize=8)
    panel.set_title(metric)
    panel.set_ylabel("score")
    panel.legend(fontsize=8, frameon=False)
