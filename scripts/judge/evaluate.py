"""Measure an NLI model on labelled pairs: accuracy, confusion, honesty of its probabilities.

Data: JSONL or Parquet with `premise`, `hypothesis` and `label` (entailment, neutral or
contradiction), each file a set. Accuracy counts the largest of three probabilities, also on sets
with two labels; its interval is Wilson's of 1927. Calibration is that of Guo et al. 2017 (ECE of 15
bins, best temperature), and the mean negative log-likelihood in nats.

Time: ten minutes on two cores for the nine development sets and the model that claimscore brings.

    python -m scripts.judge.evaluate shared/data/nli/dev_*.parquet
    python -m scripts.judge.evaluate mine.jsonl --nli FacebookAI/roberta-large-mnli
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl
from scipy import stats

import claimscore
from scripts.judge.calibration import (
    best_temperature,
    expected_calibration_error,
    negative_log_likelihood,
)

LABELS = ("entailment", "neutral", "contradiction")


def measured(judged: pl.DataFrame) -> tuple[object, ...]:
    """A set's row: pairs, accuracy with its interval, ECE, likelihood, temperature."""
    probabilities = judged.select(LABELS).cast(pl.Float64).to_numpy()
    labels = judged["wanted"].replace_strict({name: n for n, name in enumerate(LABELS)}).to_numpy()
    n, right = judged.height, judged.filter(pl.col("label") == pl.col("wanted")).height
    low, high = stats.binomtest(right, n).proportion_ci(method="wilson")
    temperature = best_temperature(probabilities, labels)
    return (
        n,
        f"{100 * right / n:.1f} [{100 * low:.1f}–{100 * high:.1f}]",
        f"{100 * expected_calibration_error(probabilities, labels):.1f}",
        f"{negative_log_likelihood(probabilities, labels):.3f}",
        "none" if temperature is None else f"{temperature:.3f}",
    )


def judge(path: Path, model: str, dtype: str) -> pl.DataFrame:
    """The pairs of a file with the model's probabilities, its `label` and the `wanted` one.

    `ValueError` for a label of another name, and for a pair that the model cannot take.
    """
    pairs = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_ndjson(path)
    unknown = set(pairs["label"]) - set(LABELS)
    if unknown:
        raise ValueError(f"{path}: unknown label {min(map(repr, unknown))}; known: {LABELS}")
    judged = claimscore.nli(pairs.select("premise", "hypothesis"), model, dtype=dtype)
    failed = judged.with_row_index("row").drop_nulls("error")
    if failed.height:
        raise ValueError(f"{path}: row {failed['row'][0] + 1}: {failed['error'][0]}")
    return judged.with_columns(wanted=pairs["label"])


def main() -> None:
    """Print a row a set, all sets together, and the confusion of all."""
    parser = argparse.ArgumentParser(description="Measure an NLI model on labelled pairs.")
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--nli", default="embedded")
    parser.add_argument("--dtype", default="bfloat16")
    given = parser.parse_args()
    sets = {path.stem: judge(path, given.nli, given.dtype) for path in given.sets}
    sets["all"] = pl.concat(sets.values())
    header = ["set", "pairs", "accuracy, %", "ECE, %", "NLL", "best temperature"]
    rows = [(name, *measured(judged)) for name, judged in sets.items()]
    counts = sets["all"].group_by("wanted", "label").len()
    with pl.Config(tbl_rows=-1, tbl_cols=-1, fmt_str_lengths=60, tbl_width_chars=120):
        print(pl.DataFrame(rows, header, orient="row"))
        print(counts.sort("wanted", "label").pivot("label", index="wanted"))


if __name__ == "__main__":
    main()
