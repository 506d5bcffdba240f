"""BERTScore of a summary against its references or its source, and of any texts."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.config import EncoderConfig
from claimscore.metrics.against import (
    AGAINST,
    MEASURES,
    MULTI,
    Compared,
    combined,
    score_text_values,
)
from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    scored,
    unscored,
)
from claimscore.metrics.bs_inverse import rescaled

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
    from claimscore.pipeline.encoders import load_token_encoder

    return load_token_encoder(
        EncoderConfig(token_encoder=model, token_layer=layer, rescale_with_baseline=False)
    )


def _score(settings: Mapping[str, str], needs: Requirements, tables: ChunkTables) -> list[Score]:
    of_sides = (pl.col("candidate_side") == "summary") & (
        pl.col("reference_side") == settings["against"]
    )
    rows = tables["token_scores"].filter(of_sides).iter_rows(named=True)
    return score_text_values(
        tables,
        needs,
        settings["against"],
        ((row["id"], row["reference_index"], row) for row in rows),
        functools.partial(_score_record, settings),
    )


def _score_record(
    settings: Mapping[str, str], item: Compared, rows: Mapping[int, Mapping[str, Any]]
) -> Score:
    measure = settings["measure"]
    values: dict[int, float] = {}
    for index, _ in item.texts:
        row = rows.get(index)
        if row is None or row[measure] is None:
            return unscored(item.id, "no token scores")
        if not math.isfinite(row[measure]):
            return unscored(item.id, f"the BERTScore {measure} is not a number")
        baseline = row[f"baseline_{measure}"]
        values[index] = row[measure] if baseline is None else rescaled(row[measure], baseline)
    best = max(values, key=lambda index: values[index])
    components: dict[str, object] = {
        **{name: rows[best][name] for name in MEASURES},
        f"baseline_{measure}": rows[best][f"baseline_{measure}"],
        "layer": rows[best]["layer"],
        "best": best,
        "values": values,
    }
    return scored(item.id, combined(list(values.values()), settings["multi"]), components)


def _make(name: str, settings: Mapping[str, str]) -> Metric:
    against = settings["against"]
    needs = Requirements(
        columns=("summary", against),
        passes=(PassRequirement("token_scores", ("summary", against)),),
    )
    return Metric(
        name=name,
        version="v1",
        requires=needs,
        score=functools.partial(_score, settings, needs),
        signature_keys=("token_encoder", "layer", "baseline", "dtype", "claimscore"),
        higher_is="more alike",
        range=(-math.inf, 1.0),
        description=(
            f"BERTScore {settings['measure']} of the summary against its {against}, rescaled with "
            "the model's baseline where it has one"
        ),
        reference=REFERENCE,
        facts=tuple((key, settings[key]) for key in ("against", "measure", "multi")),
    )


BERTSCORE = MetricFamily(
    "bertscore", {"against": AGAINST, "measure": MEASURES, "multi": MULTI}, _make
)
