"""Make an adapter's probabilities honest for claims, and fit its threshold.

    python -m scripts.judge.claim_calibration --adapter FILE --data FOLDER [--out FILE] [--rows 600]

``FOLDER`` holds ``verification``, ``nli`` and ``claim_support``. A claim is judged as a run judges
it: by the sentences that share most of its words, each alone and together, by the largest
probability of entailment. Fitted are the temperature, and a shift of the logit of entailment as far
as it costs SNLI and MultiNLI little; then the threshold of the best balanced accuracy. Both labels
weigh the same: a probability is honest where half of the claims are supported.

Fitted on sentences of RAGTruth and on the documents of ``verification`` that are left for
development, half of the weight each. REALSumm is for showing. With ``--out`` the fitted adapter is
written; the shift goes into the bias of its head. Time: 90 CPU seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from claimscore.config import EncoderConfig
from claimscore.evidence import N_BEST, ranked, shared_words
from claimscore.pipeline.encoders import embedded, load_model
from claimscore.pipeline.encoders.protocols import NLI_LABELS
from claimscore.stats.agreement import weighted_accuracy, weighted_auc
from claimscore.text import normal_form, split_sentences
from scripts.judge.calibration import (
    Claims,
    Fit,
    Pairs,
    best_fit,
    best_threshold,
    reliability_error,
    supported,
)
from scripts.judge.examples import LABEL2ID
from scripts.judge.model import write_adapter
from scripts.judge.pairs import is_development
from scripts.judge.training import CALIBRATION_SETS
from scripts.judge.verification import NOISY

#: Files of ``verification`` with claims about texts.
FILES = (
    *("attributionbench", "begin", "cg2c_doc", "check_covid", "defacto", "factcheck_gpt"),
    *("fever_symmetric", "fib", "fm2", "q2"),
)

#: Claims of either half of the data.
ROWS = 600

COLUMNS = ["set", "n", "AUC", "AUC after", "ECE", "ECE after", "balanced accuracy", "b. a. after"]


def labelled_claims(folder: Path, rows: int) -> pl.DataFrame:
    """So many sentences of RAGTruth and as many claims of the other files, evenly drawn."""
    tables = {name: pl.read_parquet(folder / f"{name}.parquet") for name in FILES}
    sentences = pl.read_parquet(folder / "ragtruth_dev.parquet").filter(
        pl.col("level").eq("sentence"), ~(pl.col("implicit_true") | pl.col("due_to_null"))
    )
    parts = [
        _drawn(part, part["source"][0], rows // 3) for part in sentences.partition_by("source")
    ]
    for name, table in tables.items():
        left = [is_development(doc) for doc in table["doc"]]
        parts.append(_drawn(table.filter(left), name, rows // len(FILES)))
    return pl.concat(parts)


def _drawn(rows: pl.DataFrame, name: str, count: int) -> pl.DataFrame:
    """At most so many rows, half of them supported where there are enough of both labels."""
    rows = rows.filter(~pl.col("kind").is_in((*NOISY, "meta"))).select(
        "claim",
        source="premise",
        label=pl.col("label").eq("supported").cast(pl.Int64),
        set=pl.lit(name),
    )
    labels = rows.partition_by("label", maintain_order=True)
    return pl.concat(part.sample(min(count // 2, part.height), seed=0) for part in labels)


def premises(source: str, claim: str) -> list[str]:
    """The best sentences of the source, and all of them in its order."""
    sentences = [normal_form(sentence) for sentence in split_sentences(source)]
    best = ranked(shared_words(sentences, [claim])[:, 0])[:N_BEST]
    alone = [sentences[place] for place in sorted(best)]
    return list(dict.fromkeys([*alone, " ".join(alone)]))


class Judge:
    """The model with one adapter."""

    def __init__(self, adapter: Path) -> None:
        embedded.ADAPTER_PATH = adapter
        self.model = load_model("nli", EncoderConfig(dtype="bfloat16"))

    def logits(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Logits of pairs after the adapter's temperature, columns as `NLI_LABELS`."""
        values = np.asarray(self.model.classify(pairs), dtype=np.float64)
        logits: np.ndarray = np.log(np.maximum(values, np.finfo(np.float32).tiny))
        return logits

    def claims(self, rows: pl.DataFrame) -> Claims:
        """Claims with the logits of their premises. RAGTruth weighs as much as all other sets, one
        of them as much as another, and both labels of a set the same."""
        read = [premises(*texts) for texts in rows["source", "claim"].rows()]
        claims = map(normal_form, rows["claim"])
        pairs = [(text, claim) for claim, of in zip(claims, read, strict=True) for text in of]
        owners = np.repeat(np.arange(len(read)), [len(of) for of in read])
        is_ragtruth = pl.col("set").str.starts_with("ragtruth")
        counts = rows.select(
            pl.len().over("set", "label") * pl.col("set").n_unique().over(is_ragtruth)
        )
        weights = 1 / counts.to_series().to_numpy()
        return Claims(self.logits(pairs), owners, rows["label"].to_numpy(), weights)

    def pairs(self, folder: Path, rows: int) -> Pairs:
        """Labelled pairs of SNLI and MultiNLI."""
        tables = [pl.read_parquet(folder / f"{name}.parquet") for name in CALIBRATION_SETS]
        chosen = [table.sample(min(rows, table.height), seed=0) for table in tables]
        pairs = pl.concat([table["premise", "hypothesis", "label"] for table in chosen])
        logits = self.logits(pairs["premise", "hypothesis"].rows())
        return Pairs(logits, np.array([NLI_LABELS.index(label) for label in pairs["label"]]))


def calibrate_claims(
    adapter: Path,
    verification: Path,
    nli: Path,
    rows: int = ROWS,
    shown: pl.DataFrame | None = None,
) -> tuple[Fit, float]:
    """Fit and print before and after, also of claims that are only shown; fit and threshold."""
    judge, content = Judge(adapter), embedded.read_adapter(adapter)
    of_sets = labelled_claims(verification, rows)
    claims, pairs = judge.claims(of_sets), judge.pairs(nli, rows)
    fit = best_fit(claims, pairs)
    threshold = best_threshold(supported(claims, fit), claims.labels, claims.weights)
    thresholds = content.threshold or 0.5, threshold

    def described() -> Iterator[tuple[object, ...]]:
        for name in of_sets["set"].unique(maintain_order=True):
            yield _described(name, claims.only(of_sets["set"] == name), fit, thresholds)
        yield _described("all of these", claims, fit, thresholds)
        if shown is not None:
            even = judge.claims(shown)._replace(weights=np.ones(shown.height))
            yield _described("not fitted on", even, fit, thresholds)

    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, tbl_hide_column_data_types=True):
        print(pl.DataFrame(list(described()), COLUMNS, orient="row"))
    print(f"threshold {thresholds[0]:.2f}, then {threshold:.2f}; fit {fit}")
    print(f"accuracy on NLI {pairs.accuracy(Fit()):.3f}, then {pairs.accuracy(fit):.3f}")
    return fit, threshold


def _described(
    name: str, claims: Claims, fit: Fit, thresholds: tuple[float, float]
) -> tuple[object, ...]:
    """Claims, AUC, ECE and balanced accuracy before and after."""
    positive, both = claims.labels == 1, (supported(claims, Fit()), supported(claims, fit))
    accuracies = [
        weighted_accuracy(values >= threshold, positive)
        for values, threshold in zip(both, thresholds, strict=True)
    ]
    measures = *(weighted_auc(values, positive) for values in both), *accuracies
    before, after, *accurate = (measure(claims.weights[None])[0] for measure in measures)
    errors = [reliability_error(values, claims.labels, claims.weights) for values in both]
    figures = (before, after, *errors, *accurate)
    return (name, len(positive), *(round(float(figure), 3) for figure in figures))


def write_fit(adapter: Path, out: Path, fit: Fit, threshold: float) -> None:
    """Write an adapter with the fit of its claims: temperature, bias of the head, threshold."""
    content = embedded.read_adapter(adapter)
    bias = content.tensors["head.f2.bias"].float()
    bias[LABEL2ID["entailment"]] += content.temperature * fit.shift
    fitted = {
        "temperature": repr(round(content.temperature * fit.temperature, 4)),
        "threshold": repr(threshold),
    }
    tensors = {**content.tensors, "head.f2.bias": bias.half()}
    write_adapter(out, tensors, {**content.metadata, **fitted})


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--adapter", type=Path, required=True)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--out", type=Path, help="Where the fitted adapter is written.")
    options.add_argument("--rows", type=int, default=ROWS, help="Claims of each half.")
    given = options.parse_args()
    decisions = pl.read_parquet(given.data / "claim_support" / "realsumm.parquet").select(
        source="summary", claim="scu", label="label", set=pl.lit("realsumm")
    )
    shown = decisions.sample(min(2 * given.rows, decisions.height), seed=0)
    folders = given.data / "verification", given.data / "nli"
    fit, threshold = calibrate_claims(given.adapter, *folders, given.rows, shown)
    if given.out:
        write_fit(given.adapter, given.out, fit, threshold)


if __name__ == "__main__":
    main()
