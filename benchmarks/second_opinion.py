"""What `uncertainty` is worth: the errors that unsure claims hold, and what a second opinion mends
of them.

    python -m benchmarks.second_opinion --data FOLDER [--rows 600] [--second VERIFIER ...]

``FOLDER`` holds ``verification/ragtruth_dev.parquet`` (sentences of responses beside their source)
and ``claim_support/realsumm.parquet`` (content units beside a summary). The first verifier is that
of ``--verifier`` and ``--nli``, by `claimscore.verify`. ``overlap`` is a stand-in for a second one:
the share of a claim's content words in its source, made a probability by a logistic regression that
was fitted on the other half of the documents. Others are those of `claimscore run --verifier`. The
first is measured as it is, and calibrated by such a regression on its log-odds.

A line of JSON a data set and way of asking: claims, errors, the share of the errors in the least
sure fifth and among the unsure claims, and of a second opinion on these how many errors it mends
and how many right verdicts it breaks, with the share of claims that it was asked about.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import claimscore
from claimscore.config import EncoderConfig
from claimscore.metrics.support import THRESHOLD, UNSURE, threshold_of, uncertainty
from claimscore.pipeline.encoders import load_model
from claimscore.records.columns import in_first_half
from claimscore.text import content_words

Array = NDArray[np.float64]

#: The share of the claims that is called the least sure.
FIFTH = 0.2

#: The second verifier that is none: words that claim and source share.
OVERLAP = "overlap"


def data_sets(folder: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    """Tables with source, claim, label (1: supported) and document."""
    truth = pl.read_parquet(folder / "verification" / "ragtruth_dev.parquet")
    yield (
        "ragtruth_dev",
        truth.filter(pl.col("level") == "sentence").select(
            "claim",
            source="premise",
            document=pl.col("doc").cast(pl.String),
            label=(pl.col("label") == "supported").cast(pl.Int64),
        ),
    )
    units = pl.read_parquet(folder / "claim_support" / "realsumm.parquet")
    yield (
        "realsumm",
        units.select("label", claim="scu", source="summary", document="doc_id"),
    )


def overlap(rows: pl.DataFrame) -> Array:
    """The share of each claim's content words that its source has."""
    shares = []
    for source, claim in rows.select("source", "claim").iter_rows():
        words = content_words(claim).keys()
        shares.append(len(words & content_words(source).keys()) / max(1, len(words)))
    return np.array(shares)


def calibrated(rows: pl.DataFrame, values: Array) -> Array:
    """Probabilities of support by these values, fitted on the other half of the documents."""
    x, y = np.stack([np.ones(len(values)), values]), rows["label"].to_numpy()
    half = np.array([in_first_half(document, 0) for document in rows["document"]])
    p = np.empty(len(y))
    for fit in (half, ~half):
        weights = np.zeros(2)
        for _ in range(50):  # Newton's method, with a ridge that keeps it finite
            fitted = 1 / (1 + np.exp(-weights @ x[:, fit]))
            slope = x[:, fit] @ (y[fit] - fitted) - 1e-3 * weights
            bend = (x[:, fit] * (fitted * (1 - fitted))) @ x[:, fit].T + 1e-3 * np.eye(2)
            weights += np.linalg.solve(bend, slope)
        p[~fit] = 1 / (1 + np.exp(-weights @ x[:, ~fit]))
    return p


def judged(rows: pl.DataFrame, verifier: str, nli: str) -> tuple[Array, float]:
    """The probability of support of each claim, and the verifier's threshold."""
    if verifier == OVERLAP:
        return calibrated(rows, overlap(rows)), THRESHOLD
    pairs = rows.select("source", "claim")
    frame = claimscore.verify(pairs, verifier, nli=nli)
    encoders = EncoderConfig(verifier=verifier, nli=nli)
    threshold = threshold_of(load_model(encoders.role_of("verifier"), encoders))
    return frame["probability"].cast(pl.Float64).fill_null(0.5).to_numpy(), threshold


def figures(
    label: Array, first: tuple[Array, float], second: tuple[Array, float], asked: Array
) -> dict[str, Any]:
    """Errors before and after the mean of both where the second was asked."""
    p, threshold = first
    wrong = (p >= threshold) != label
    both = ((p + second[0]) / 2 >= (threshold + second[1]) / 2) != label
    n_wrong = int((wrong & asked).sum())
    return {
        "asked": round(float(asked.mean()), 3),
        "errors_in_it": n_wrong,
        "share_of_errors": round(n_wrong / max(1, int(wrong.sum())), 3),
        "mended": int((wrong & ~both & asked).sum()),
        "broken": int((~wrong & both & asked).sum()),
        "errors_of_second_alone": int((((second[0] >= second[1]) != label) & asked).sum()),
    }


def asked_about(p: Array) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Which claims a second opinion may be asked about."""
    unsure = uncertainty(p)
    least = np.zeros(len(p), dtype=bool)
    least[np.argsort(-unsure, kind="stable")[: round(FIFTH * len(p))]] = True
    yield "least sure fifth", least
    yield "unsure", unsure >= UNSURE
    yield "all", np.ones(len(p), dtype=bool)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verifier", default="nli")
    parser.add_argument("--nli", default="embedded")
    parser.add_argument("--second", nargs="*", default=[OVERLAP])
    given = parser.parse_args(arguments)
    for name, table in data_sets(given.data):
        rows = table.sample(min(given.rows, table.height), seed=given.seed)
        label = rows["label"].to_numpy() == 1
        as_it_is = judged(rows, given.verifier, given.nli)
        odds = np.log(np.clip(as_it_is[0], 1e-4, 1) / np.clip(1 - as_it_is[0], 1e-4, 1))
        firsts = {"": as_it_is, ", calibrated": (calibrated(rows, odds), THRESHOLD)}
        seconds = {second: judged(rows, second, given.nli) for second in given.second}
        for how, first in firsts.items():
            n_wrong = int(((first[0] >= first[1]) != label).sum())
            of_all = {"claims": len(label), "supported": int(label.sum()), "errors": n_wrong}
            for second, opinion in seconds.items():
                for what, asked in asked_about(first[0]):
                    line = {"data": name, "first": given.verifier + how, "second": second}
                    line |= {"on": what, **of_all, **figures(label, first, opinion, asked)}
                    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
