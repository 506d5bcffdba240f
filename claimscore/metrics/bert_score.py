"""BERTScore of a summary against its references or its source, and of any texts; and BS⁻¹."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.config import EncoderConfig
from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    score_records,
    scored,
    unscored,
)
from claimscore.metrics.reference_texts import (
    MeasureOptions,
    ScorePair,
    SummaryPair,
    TextOptions,
    Values,
    best_place,
    by_place,
    scored_texts,
    text_metric,
    value_metric,
)

REFERENCE = (
    "Zhang et al. 2020, BERTScore: Evaluating Text Generation with BERT: P, R, F1 and "
    "baseline rescaling"
)


class BERTScore(NamedTuple):
    """Precision, recall and F1 of pairs of texts: arrays of one number a pair."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]


def bertscore(
    candidates: Sequence[str],
    references: Sequence[str],
    *,
    model: str = "embedded",
    layer: int | None = None,
    baseline: tuple[float, float, float] | None = None,
) -> BERTScore:
    """BERTScore of each candidate against the reference of the same place.

    Zhang et al. 2020; no idf weights. ``model`` is "embedded", HF_ID[@REV] or a folder,
    ``layer`` the layer to read (None: the published one). ``baseline`` is (P, R, F1) of random
    pairs: each number x becomes (x − b)/(1 − b), their baseline rescaling; None: the raw numbers.
    Equal to the package bert-score. `ValueError` for an empty text or lists of unlike length,
    `ConfigError` for a model that is not there.
    """
    if isinstance(candidates, str) or isinstance(references, str):
        raise ValueError("bertscore compares lists of texts; put a single text into a list")
    if baseline is not None and (len(baseline) != 3 or not max(baseline) < 1):
        raise ValueError(f"a baseline is three numbers below 1, not {baseline}")
    scores = _encoder(model, layer).bertscore(list(candidates), list(references))
    if baseline is not None:
        scores = (scores - np.asarray(baseline)) / (1 - np.asarray(baseline))
    return BERTScore(scores[:, 0], scores[:, 1], scores[:, 2])


@functools.lru_cache(maxsize=1)
def _encoder(model: str, layer: int | None) -> Any:
    """The encoder; the last one stays loaded. The one place where a metric asks for a model."""
    from claimscore.pipeline.encoders import load_model

    config = EncoderConfig(token_encoder=model, token_layer=layer, rescale_with_baseline=False)
    return load_model("token_encoder", config)


def _make(name: str, options: MeasureOptions) -> Metric:
    against = options.against

    def scorer(tables: ChunkTables) -> ScorePair:
        of_sides = (pl.col("candidate_side") == "summary") & (pl.col("reference_side") == against)
        rows = tables["token_scores"].filter(of_sides).iter_rows(named=True)
        of_pairs = by_place((row["id"], row["reference_index"], row) for row in rows)
        return lambda pair: _score_pair(pair, of_pairs.get(pair.id, {}), options)

    return text_metric(
        name,
        options,
        scorer,
        (PassRequirement("token_scores", ("summary", against)),),
        signature_keys=("token_encoder", "layer", "baseline", "dtype", "claimscore"),
        higher_is="more alike",
        range=(-math.inf, 1.0),
        description=(
            f"BERTScore {options.measure} of the summary against its {against}, rescaled with "
            "the model's baseline where it has one"
        ),
        reference=REFERENCE,
    )


def rescaled(f1: float, baseline_f1: float) -> float:
    """F' = (F − b) / (1 − b), Zhang et al. 2020, baseline rescaling: 0 for two random sentences."""
    if not baseline_f1 < 1:
        raise ValueError(f"the baseline must be below 1, not {baseline_f1}")
    return (f1 - baseline_f1) / (1 - baseline_f1)


def _score_pair(
    pair: SummaryPair, rows: Mapping[int, Mapping[str, Any]], options: MeasureOptions
) -> Score:
    measure, values = options.measure, {}
    for index in pair.texts:
        row = rows.get(index)
        if row is None or row[measure] is None:
            return unscored(pair.id, "no token scores")
        if not math.isfinite(row[measure]):
            return unscored(pair.id, f"the BERTScore {measure} is not a number")
        baseline = row[f"baseline_{measure}"]
        values[index] = row[measure] if baseline is None else rescaled(row[measure], baseline)
    best = best_place(values)
    names = ("f1", "recall", "precision", f"baseline_{measure}", "layer")
    components = {name: rows[best][name] for name in names}
    return scored_texts(pair, values, options.multi, {**components, "best": best})


BERTSCORE = MetricFamily("bertscore", MeasureOptions, _make)


# BS⁻¹ of two summaries

_BS_REQUIRES = Requirements(
    columns=("summary_a", "summary_b"), passes=(PassRequirement("token_scores", ("a", "b")),)
)
_BS_COMPONENTS = ("precision", "recall", "f1", "baseline_f1", "layer")


def bs_inverse(f1: float, baseline_f1: float | None = None) -> float:
    """BS⁻¹ = 100·(1 − F'), with F' the BERTScore F1, rescaled where a baseline is given.

    CASPR paper; its figures (72.5 for the references) need the rescaled F1. Never clipped: two
    texts less alike than random ones have a negative F', so the value can exceed 100.
    """
    return 100 * (1 - (f1 if baseline_f1 is None else rescaled(f1, baseline_f1)))


def _score_bs_inverse(tables: ChunkTables) -> list[Score]:
    of_sides = (pl.col("candidate_side") == "a") & (pl.col("reference_side") == "b")
    rows = {row["id"]: row for row in tables["token_scores"].filter(of_sides).iter_rows(named=True)}

    def score(record: dict[str, Any]) -> Score:
        row = rows.get(record["id"])
        if row is None or row["f1"] is None:
            return unscored(record["id"], "no token scores")
        if not math.isfinite(row["f1"]):
            reason = "the BERTScore F1 is not a number"
            return unscored(record["id"], reason, {"layer": row["layer"]})
        components: dict[str, object] = {name: row[name] for name in _BS_COMPONENTS}
        return scored(record["id"], bs_inverse(row["f1"], row["baseline_f1"]), components)

    return score_records(tables, _BS_REQUIRES, score)


BS_INVERSE = Metric(
    name="bs-inverse",
    requires=_BS_REQUIRES,
    score=_score_bs_inverse,
    signature_keys=("token_encoder", "layer", "baseline", "dtype", "claimscore"),
    higher_is="less alike",
    range=(0.0, math.inf),
    description="100·(1 − BERTScore F1) of the two summaries, rescaled with the model's baseline",
    reference=(
        "CASPR paper, the baseline BS⁻¹; Zhang et al. 2020, BERTScore: Evaluating Text Generation "
        "with BERT: F1 and baseline rescaling"
    ),
    worst="highest",
)


# Cosines of whole texts

COSINE_REFERENCE = (
    "Reimers and Gurevych 2019, Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks "
    "(cosine of two embeddings)"
)


def _make_cosine(name: str, options: TextOptions) -> Metric:
    against = options.against

    def read(tables: ChunkTables) -> Values:
        of_texts = (
            (pl.col("unit") == "text")
            & (pl.col("row_side") == "summary")
            & (pl.col("column_side") == against)
        )
        cells = tables["similarities"].filter(of_texts).select("id", "column_index", "similarity")
        return by_place(cells.iter_rows())

    return value_metric(
        name,
        options,
        read,
        "similarity",
        (PassRequirement("text_similarities", ("summary.text", f"{against}.text")),),
        signature_keys=("embedder", "dtype", "claimscore"),
        higher_is="more alike",
        range=(-1.0, 1.0),
        description=f"Cosine of the sentence embeddings of the summary and its {against}",
        reference=COSINE_REFERENCE,
    )


BERT_COSINE = MetricFamily("bert-cosine", TextOptions, _make_cosine)
