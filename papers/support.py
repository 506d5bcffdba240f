"""Are claims supported? BUMP, SummEdits, RAGTruth and the decisions of REALSumm.

Papers: Ma et al. 2023, *BUMP: A Benchmark of Unfaithful Minimal Pairs*; Laban et al. 2023,
*SummEdits*; Bhandari et al. 2020, *Re-evaluating Evaluation in Text Summarization* (REALSumm);
Niu et al. 2024, *RAGTruth*.

Data: records with `label` (1: supported), `case` (the document), `source` and `summary`, as
`papers.readers` makes them; the name of a file begins with that of its data set. A decision of
REALSumm and a sentence of RAGTruth are one claim, which `--units sentences` leaves whole.

All ways to make a score of the same verdicts are measured, and beside the first one. Intervals
resample documents.

Time: some minutes on two cores for BUMP, with the model that claimscore brings. `--limit` draws
rows by a hash of their ids, and takes the supported twins of those that have one.

    python -m papers.readers bump bump.parquet --out bump.jsonl
    python -m papers.support bump.jsonl --out runs/support --dtype bfloat16 --limit 450
    python -m papers.support realsumm.jsonl --out runs/support --units sentences --limit 2400
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

import claimscore
from claimscore.stats.agreement import weighted_auc
from claimscore.stats.bootstrap import resamples
from papers.command import one_line_errors, parser, read, settings, show

#: Data set -> what is to be known of its rows, and system -> measure -> value.
PUBLISHED: dict[str, tuple[str, dict[str, dict[str, float]]]] = {
    "bump": (
        "all rows of BUMP",
        {
            "SummaC": {"auc": 0.561, "ordered": 0.73},
            "DAE": {"auc": 0.626},
            "QAFactEval": {"auc": 0.714, "ordered": 0.87},
        },
    ),
    "summedits": (
        "means over ten domains, of which some may not be here",
        {
            "DAE": {"balanced_accuracy": 0.549},
            "SummaC-Conv": {"balanced_accuracy": 0.577},
            "QAFactEval": {"balanced_accuracy": 0.675},
            "GPT-4": {"balanced_accuracy": 0.832},
            "people": {"balanced_accuracy": 0.908},
        },
    ),
}

#: The ways to make a score of claims, the mean first; then the share, and sentences alone.
WAYS = ("mean", "soft-minimum", "net-mean", "net-soft-minimum")
METRICS = (*(f"faithfulness:score={way}" for way in WAYS), "faithfulness", "summac-zs")

#: Measure -> its column.
MEASURES = {"ordered": "twins in order", "auc": "ROC-AUC", "balanced_accuracy": "balanced accuracy"}


def drawn(records: pl.DataFrame, limit: int | None) -> pl.DataFrame:
    """At most `limit` rows, the same for every call, with their twins."""
    if limit is None:
        return records
    ranks = pl.Series([zlib.crc32(name.encode()) for name in records["id"]])
    chosen = records.filter(ranks.rank("ordinal") <= limit)
    names = chosen["id"]
    if "twin" in records.columns:
        names = pl.concat([names, chosen["twin"].drop_nulls()])
    return records.filter(pl.col("id").is_in(names.implode()))


def cell(row: dict[str, float | None], measure: str) -> str:
    """A measure in percent with its 95 % interval, where there is one; empty without a value."""
    value, low, high = (row[measure + end] for end in ("", "_low", "_high"))
    if value is None:
        return ""
    interval = "" if low is None or high is None else f" [{100 * low:.1f}–{100 * high:.1f}]"
    return f"{100 * value:.1f}{interval}"


def table(rows: pl.DataFrame, published: dict[str, dict[str, float]]) -> pl.DataFrame:
    """The measures of each score, published ones beneath."""
    cells = [[row["score"], *(cell(row, name) for name in MEASURES)] for row in rows.to_dicts()]
    for system, figures in published.items():
        known = [f"{100 * figures[name]:.1f}" if name in figures else "" for name in MEASURES]
        cells.append([f"{system}, published", *known])
    return pl.DataFrame(cells, schema=["score, %", *MEASURES.values()], orient="row")


def differences(frame: pl.DataFrame, scores: Sequence[str]) -> pl.DataFrame:
    """What each score gains over the first one, in points: AUC, and the share of twins in order."""
    label = frame["label"].to_numpy() == 1
    cases, codes = np.unique(frame["case"].to_numpy(), return_inverse=True)
    draws = [np.ones((1, len(cases))), *resamples(len(cases), 1000, seed=0)]
    weights = np.concatenate(draws)[:, codes]
    place = {name: at for at, name in enumerate(frame["id"])}
    twins = frame["twin"] if "twin" in frame.columns else []
    pairs = [(place[twin], at) for at, twin in enumerate(twins) if twin in place]

    def measured(score: str) -> Iterator[np.ndarray]:
        values = frame[score].to_numpy()
        yield weighted_auc(values, label)(weights)
        if pairs:
            true, edited = np.array(pairs).T
            ordered = (np.sign(values[true] - values[edited]) + 1) / 2
            yield weights[:, edited] @ ordered / weights[:, edited].sum(1)

    first, rows = list(measured(scores[0])), []
    for score in scores[1:]:
        gains = [100 * (one - base) for one, base in zip(measured(score), first, strict=True)]
        ends = [(gain[0], *np.nanpercentile(gain[1:], [2.5, 97.5])) for gain in gains]
        rows.append((score, *("{:+.1f} [{:+.1f}, {:+.1f}]".format(*gain) for gain in ends)))
    names = [f"less {scores[0]}, points", MEASURES["auc"], MEASURES["ordered"]]
    return pl.DataFrame(rows, names[: 2 + bool(pairs)], orient="row")


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    """Score the rows of each data set, and print how well scores tell them apart."""
    options = parser(__doc__, metrics=",".join(METRICS))
    options.add_argument("--units", default="claims", choices=("claims", "sentences"))
    options.add_argument("--limit", type=int, help="Rows of each data set.")
    given = options.parse_args(arguments)
    for path in given.input:
        records = drawn(read([path]), given.limit)
        out = given.out / path.stem
        run = claimscore.evaluate(
            records, given.metrics, units=given.units, out=out / "run", **settings(given)
        )
        config = claimscore.SupportConfig(str(run.out), run.metrics, drop_missing=True)
        result = claimscore.evaluate_support(config)
        result.write(out)
        whole = result.tables["support"].filter(pl.col("kind").is_null())
        name = next((name for name in PUBLISHED if path.stem.startswith(name)), "")
        about, figures = PUBLISHED.get(name, ("", {}))
        notes = [f"{whole['n'][0]:,} rows of {whole['n_documents'][0]:,} documents"]
        notes += [f"Published: {about}."] if about else []
        show(out / "table.md", path.stem, table(whole, figures), *notes)
        if len(run.metrics) > 1:
            frame = records.join(run.scores.drop_nulls(run.metrics), on="id")
            show(out / "differences.md", path.stem, differences(frame, run.metrics))


if __name__ == "__main__":
    main()
