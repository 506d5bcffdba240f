"""The five comparisons of the CASPR paper (48 hotel pairs each), scored by one run.

    python benchmarks/caspr_comparisons.py comparisons.jsonl --out runs/caspr [run options]

The input has one row a pair: id, comparison, text_a, text_b. Prints each metric's mean and
95 % interval a comparison beside the paper's figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import polars as pl

from claimscore.metrics.bootstrap import mean_interval

#: CASPR paper, Table 2; None where it shows a figure only.
PUBLISHED: dict[str, dict[str, str]] = {
    "ref_contrastive": {"caspr": "84.3 ± 3.8", "ds": "73.6 ± 0.9", "bs-inverse": "72.5 ± 1.4"},
    "syn_high": {"caspr": "98.1 ± 0.8", "ds": "44.5 ± 1.6", "bs-inverse": "50.6 ± 1.7"},
    "syn_contrast": {"caspr": "83.7 ± 3.6", "ds": "74.1 ± 0.8", "bs-inverse": "73.4 ± 1.3"},
}
ORDER = ("syn_low", "ref_similar", "ref_contrastive", "syn_high", "syn_contrast")


def write_records(comparisons: Path, target: Path) -> None:
    """The comparisons as records; the id says which comparison a pair belongs to."""
    with comparisons.open(encoding="utf-8") as source, target.open("w", encoding="utf-8") as out:
        for line in source:
            row = json.loads(line)
            record = {
                "id": f"{row['comparison']}/{row['id']}",
                "comparison": row["comparison"],
                "summary_a": row["text_a"],
                "summary_b": row["text_b"],
            }
            out.write(json.dumps(record, ensure_ascii=False) + "\n")


def print_table(out: Path) -> None:
    """Means and intervals as a Markdown table."""
    scores = pl.read_parquet(out / "scores.parquet").with_columns(
        comparison=pl.col("id").str.extract(r"^(\w+)/")
    )
    metrics = scores["metric"].unique(maintain_order=True).to_list()
    print("| comparison | " + " | ".join(f"{m} | paper" for m in metrics) + " |")
    print("|---" * (1 + 2 * len(metrics)) + "|")
    for comparison in ORDER:
        cells = [comparison]
        for metric in metrics:
            values = scores.filter(comparison=comparison, metric=metric)["value"].drop_nulls()
            interval = mean_interval(values.to_list(), seed=0)
            cells.append(f"{interval.mean:.4f} ± {interval.half_width:.2f} (n {len(values)})")
            cells.append(PUBLISHED.get(comparison, {}).get(metric, "figure only"))
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("comparisons", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments, run_options = parser.parse_known_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    records = arguments.out.with_suffix(".records.jsonl")
    write_records(arguments.comparisons, records)
    command = [sys.executable, "-m", "claimscore", "run", str(records), "--out"]
    status = subprocess.run([*command, str(arguments.out), *run_options]).returncode
    if status not in (0, 3):
        raise SystemExit(status)
    print_table(arguments.out)


if __name__ == "__main__":
    main()
