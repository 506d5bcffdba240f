"""Are claims supported? BUMP, SummEdits and the decisions of REALSumm.

Papers: Ma et al. 2023, *BUMP: A Benchmark of Unfaithful Minimal Pairs*; Laban et al. 2023,
*SummEdits*; Bhandari et al. 2020, *Re-evaluating Evaluation in Text Summarization* (REALSumm).

Data: records with `label` (1: supported), `case` (the document), `source` and `summary`, as
`papers.readers` makes them; the name of a file begins with that of its data set. A decision of
REALSumm is about one claim, which `--units sentences` leaves whole.

Time: half an hour on two cores for BUMP, with the model that claimscore brings. `--limit` draws
rows by a hash of their ids, and takes the supported twins of those that have one.

    python -m papers.readers bump bump.parquet --out bump.jsonl
    python -m papers.support bump.jsonl --out runs/bump --dtype bfloat16 --limit 450
    python -m papers.support realsumm.jsonl --out runs/realsumm --units sentences --limit 2400
"""

from __future__ import annotations

import zlib

import polars as pl

import claimscore
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


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    """Score the rows of each data set, and print how well scores tell them apart."""
    options = parser(__doc__, metrics="faithfulness:score=probability,faithfulness,summac-zs")
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


if __name__ == "__main__":
    main()
