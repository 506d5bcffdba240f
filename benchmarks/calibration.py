"""Whether labels make a judge's probabilities more honest, and whether drift is noticed.

    python -m benchmarks.calibration --data FOLDER [--verifier MODEL] [--draws 50] [--labels 100]

``FOLDER`` holds ``verification/ragtruth_dev.parquet`` and ``claim_support/realsumm.parquet``.
Sentences of RAGTruth are judged, as they come and with half of them supported; labels of half of
the documents are drawn as `claimscore label` draws them, and what `claimscore calibrate` makes of
them is used on the other half (nothing where it finds no gain). So is it for the same judge made
overconfident: with its logits doubled. Then the drift from one half of RAGTruth to the other, and
from it to REALSumm. Results of models are kept, so a second call takes a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

from claimscore.calibration import N_QUANTILES, WORDS, Platt, distance
from claimscore.evaluation.calibration import Labelled, cross_fitted, fit
from claimscore.functions import verify
from claimscore.metrics.support import SUPPORTED, VERDICTS
from claimscore.stats.agreement import weighted_accuracy
from claimscore.stats.prediction_powered import stratified_draw
from scripts.judge.calibration import reliability_error

#: Claims that are judged of each set.
ROWS = 1200

DOUBLED = Platt(0.5)


def ragtruth(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Sentences of RAGTruth as they come, and as many of either label."""
    rows = pl.read_parquet(folder / "verification" / "ragtruth_dev.parquet").filter(
        pl.col("level") == "sentence", ~(pl.col("implicit_true") | pl.col("due_to_null"))
    )
    rows = rows.select("doc", "claim", source="premise", label=pl.col("label") == SUPPORTED)
    drawn = rows.sample(ROWS, seed=0)
    true, false = drawn.filter("label"), rows.filter(~pl.col("label"))
    even = [some.sample(ROWS // 2, seed=0) for some in (true, false)]
    return drawn, pl.concat(even)


def realsumm(folder: Path) -> pl.DataFrame:
    """Decisions of REALSumm."""
    rows = pl.read_parquet(folder / "claim_support" / "realsumm.parquet").sample(ROWS // 2, seed=0)
    return rows.select(pl.col("label") == 1, doc="doc_id", claim="scu", source="summary")


def judged(rows: pl.DataFrame, verifier: str) -> pl.DataFrame:
    """The claims that a model judged, with its verdicts and probabilities."""
    made = verify(rows.select("source", "claim"), verifier)
    rows = rows.with_columns(made["verdict"], p=made["probability"].cast(pl.Float64))
    return rows.filter(pl.col("p") < 1)  # 1 is a copy


def halves(rows: pl.DataFrame, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows by halves of their documents."""
    docs = rows["doc"].unique().sort().shuffle(seed)
    one = pl.col("doc").is_in(docs.head(docs.len() // 2).implode())
    return rows.filter(one), rows.filter(~one)


def after_labels(rows: pl.DataFrame, made_worse: Platt, n: int, draws: int) -> list[float]:
    """ECE and balanced accuracy of the other half, before and after; medians over the draws. Then
    the ninth decile of the ECE, and the share of draws that gain."""
    known, other = halves(rows, seed=0)
    supported = pl.col("verdict") == SUPPORTED
    strata = np.array([VERDICTS.index(verdict) for verdict in known["verdict"]])
    record = np.unique(known["doc"], return_inverse=True)[1]
    given, new = made_worse(known["p"]), made_worse(other["p"])
    label, even = other["label"].to_numpy(), np.ones((1, other.height))
    as_it_is = other.select(supported).to_series().to_numpy()
    figures = []
    for seed in range(draws):
        drawn = stratified_draw(strata, given, n, seed)
        judged_so = known.select(supported).to_series().to_numpy()[drawn.places]
        labels = known["label"].to_numpy()[drawn.places]
        of = Labelled(given[drawn.places], judged_so, labels, drawn.weights, record[drawn.places])
        (mapped, threshold), after, yes = fit(of), new, as_it_is
        gain = cross_fitted(of, 10, seed)
        if helps := gain["gain"][0] > 0:
            after, moves = mapped(new), gain["gain_low"][2] > 0
            yes = after >= threshold if moves else as_it_is
        errors = [reliability_error(p, label, even[0]) for p in (new, after)]
        accuracies = [weighted_accuracy(v, label)(even)[0] for v in (as_it_is, yes)]
        figures.append([*errors, *accuracies, errors[1], helps])
    table = np.array(figures, float)
    ninth = np.quantile(table[:, 4], 0.9)
    return [*np.median(table[:, :4], axis=0).tolist(), float(ninth), float(table[:, 5].mean())]


def drift(known: pl.DataFrame, other: pl.DataFrame) -> list[float]:
    """The distances of probabilities and of lengths, and from where on they are alarms."""
    steps = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
    n = other["doc"].n_unique(), known["doc"].n_unique()
    columns = [rows.select("p", WORDS) for rows in (known, other)]
    gaps = [
        distance(columns[1][name], np.quantile(columns[0][name], steps), *n)
        for name in ("p", "words")
    ]
    return [*(gap for gap, _ in gaps), gaps[0][1]]


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--verifier", default="nli")
    options.add_argument("--draws", type=int, default=50)
    options.add_argument("--labels", type=int, default=100)
    given = options.parse_args()
    as_they_come, even = (judged(rows, given.verifier) for rows in ragtruth(given.data))
    header = ("claims", "judge", "ECE", "ECE after", "b. acc.", "b. acc. after", "90 %", "gains")
    rows = [
        (name, judge, *after_labels(claims, worse, given.labels, given.draws))
        for name, claims in (("as they come", as_they_come), ("half supported", even))
        for judge, worse in (("as it is", Platt()), ("logits doubled", DOUBLED))
    ]
    pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=140, float_precision=3)
    print(pl.DataFrame(rows, header, orient="row"))
    splits = [drift(*halves(as_they_come, seed)) for seed in range(4 * given.draws)]
    print(f"drift between halves of RAGTruth: at most {np.max(splits, axis=0).round(3).tolist()}")
    other = judged(realsumm(given.data), given.verifier)
    to_realsumm = drift(halves(as_they_come, 0)[0], other)
    print(f"to REALSumm (probabilities, lengths, alarm): {np.round(to_realsumm, 3).tolist()}")


if __name__ == "__main__":
    main()
