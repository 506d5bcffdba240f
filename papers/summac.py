"""The SummaC benchmark: does a score tell consistent from inconsistent summaries?

Paper: Laban et al. 2022, *SummaC: Re-Visiting NLI-based Models for Inconsistency Detection in
Summarization*, https://aclanthology.org/2022.tacl-1.10/, Tables 2, 5 and A1.

Data: a record a summary: `dataset`, `split` (`val`, `test`), `source`, `summary` and `label` (1:
consistent). `papers.readers` makes it of the rows of `SummaCBenchmark(...).datasets`.

Protocol: of the percentiles 0, 0.2, ... 99.8 of the scores of `val`, the one of the best balanced
accuracy is the threshold for `test`. A data set with one split is halved by a hash of the document:
one half is `val`. `--notebook` picks the threshold on the scored rows, as the authors' notebook
does, whose numbers are the published ones. `overall` is the mean of the data sets.

Time: two hours on two cores for all 5,610 validation rows with the model that claimscore brings.
`--grid` scores SummaC-ZS by every granularity and every two operators instead (Table 5).

    python -m papers.readers summac FOLDER --out summac.jsonl
    python -m papers.summac summac.jsonl --out runs/summac --limit 100
"""

from __future__ import annotations

import itertools
import zlib

import numpy as np
import polars as pl
from numpy.typing import NDArray

import claimscore
from claimscore.stats.agreement import (
    best_threshold,
    checked_labels,
    weighted_accuracy,
    weighted_auc,
)
from claimscore.stats.bootstrap import percentile_bounds, resamples
from papers.command import one_line_errors, parser, read, settings, show

#: The columns of the published values.
COLUMNS = ("cogensumm", "xsumfaith", "polytope", "factcc", "summeval", "frank", "overall")

#: Measure -> system -> percent on the test sets: Table 2, and Table A1 as the notebook prints it.
PUBLISHED = {
    "balanced accuracy": {
        "NER-Overlap": (53.0, 63.3, 52.0, 55.0, 56.8, 60.9, 56.8),
        "MNLI-doc": (57.6, 57.5, 61.0, 61.3, 66.6, 63.6, 61.3),
        "FactCC-CLS": (63.1, 57.6, 61.0, 75.9, 60.1, 59.4, 62.8),
        "DAE": (63.4, 50.8, 62.8, 75.9, 70.3, 61.7, 64.2),
        "FEQA": (61.0, 56.0, 57.8, 53.6, 53.8, 69.9, 58.7),
        "QuestEval": (62.6, 62.1, 70.3, 66.6, 72.5, 82.1, 69.4),
        "SummaC-ZS": (70.4, 58.4, 62.0, 83.8, 78.7, 79.0, 72.1),
        "SummaC-Conv": (64.7, 66.4, 62.7, 89.5, 81.7, 81.6, 74.4),
    },
    "ROC-AUC": {
        "DAE": (67.8, 41.3, 64.1, 82.7, 77.4, 64.3, 66.3),
        "FEQA": (60.8, 53.4, 54.6, 50.7, 52.2, 74.8, 57.7),
        "QuestEval": (64.4, 66.4, 72.2, 71.5, 79.0, 87.9, 73.6),
        "SummaC-ZS": (73.1, 58.0, 60.3, 83.7, 85.5, 85.3, 74.3),
        "SummaC-Conv": (67.6, 70.2, 62.4, 92.2, 86.0, 88.4, 77.8),
    },
}

#: The grid: granularities of document and summary, operators over document and summary.
_GRANULARITIES, _OPERATORS = ("sentence", "2sents", "paragraph", "document"), ("max", "mean", "min")
GRID = [
    f"summac-zs:granularity={d if d == s else f'{d}-{s}'}:op1={over_d}:op2={over_s}"
    for d, s in itertools.product(_GRANULARITIES, repeat=2)
    for over_d, over_s in itertools.product(_OPERATORS, repeat=2)
]

#: A measure of the rows as they are, then of bootstrap samples: ``[1 + SAMPLES]``.
Draws = NDArray[np.float64]
SAMPLES = 1000


def records(rows: pl.DataFrame, limit: int | None) -> pl.DataFrame:
    """The records with both splits in every data set, a random `limit` of each at most."""
    half = [("val", "test")[zlib.crc32(text.encode()) % 2] for text in rows["source"]]
    has_both = pl.col("split").n_unique().over("dataset") > 1
    rows = rows.with_columns(split=pl.when(has_both).then("split").otherwise(pl.Series(half)))
    order = pl.int_range(pl.len()).shuffle(seed=0).over("dataset", "split")
    rows = rows.filter(order < (limit or rows.height))
    return rows.select("id", "dataset", "split", "source", "summary", "label")


def measures(rows: pl.DataFrame, score: str, notebook: bool) -> list[Draws]:
    """Balanced accuracy and AUC of the test rows of a data set."""
    test = rows.filter(split="test")
    values, positive = checked_labels(test[score], test["label"])
    picked = test if notebook else rows.filter(split="val")
    threshold = best_threshold(picked[score], picked["label"])
    seed = zlib.crc32(test["dataset"][0].encode())
    weights = np.vstack([np.ones((1, test.height)), *resamples(test.height, SAMPLES, seed)])
    accuracy = weighted_accuracy(values > threshold, positive)(weights)
    return [accuracy, weighted_auc(values, positive)(weights)]


def evaluate(rows: pl.DataFrame, score: str, notebook: bool) -> dict[str, list[Draws]]:
    """The measures of each data set, and their mean."""
    of = {}
    for (dataset,), part in rows.drop_nulls(score).group_by("dataset", maintain_order=True):
        try:
            of[str(dataset)] = measures(part, score, notebook)
        except ValueError as exc:
            raise ValueError(f"{dataset}, {score}: {exc}") from exc
    return of | {"overall": [np.mean(both, axis=0) for both in zip(*of.values(), strict=True)]}


def cell(draws: Draws) -> str:
    """A measure in percent with its 95 % interval; without one where all draws are equal."""
    low, high = percentile_bounds(100 * draws[1:])
    return f"{100 * draws[0]:.1f}" + ("" if low is None else f" [{low:.1f}–{high:.1f}]")


def table(measure: str, values: dict[str, dict[str, Draws]]) -> pl.DataFrame:
    """A measure by score and data set, the published rows beneath."""
    datasets = list(next(iter(values.values())))
    rows = [[score, *(cell(draws) for draws in of.values())] for score, of in values.items()]
    for system, figures in PUBLISHED[measure].items():
        known = dict(zip(COLUMNS, map(str, figures), strict=True))
        known["overall"] = known["overall"] if {*COLUMNS} <= {*datasets} else ""
        rows.append([f"{system}, published", *(known.get(name, "") for name in datasets)])
    return pl.DataFrame(rows, schema=[measure, *datasets], orient="row")


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    """Score the rows and print a table a measure."""
    options = parser(__doc__, metrics="summac-zs")
    options.add_argument("--limit", type=int, help="Random rows a data set and split.")
    options.add_argument("--notebook", action="store_true", help="The notebook's threshold.")
    options.add_argument("--grid", action="store_true", help="SummaC-ZS by setting.")
    given = options.parse_args(arguments)
    rows = records(read(given.input), given.limit)
    metrics = GRID if given.grid else given.metrics
    scored = claimscore.evaluate(rows, metrics, out=given.out / "run", **settings(given))
    rows = rows.join(scored.scores, on="id", maintain_order="left")
    values = {metric: evaluate(rows, metric, given.notebook) for metric in scored.metrics}
    for place, measure in enumerate(PUBLISHED):
        of = {m: {name: both[place] for name, both in sets.items()} for m, sets in values.items()}
        note = f"{rows.height} rows, {scored.scores['reason'].count()} of them lack some score."
        show(given.out / f"{measure}.md", f"{measure}, %", table(measure, of), note)


if __name__ == "__main__":
    main()
