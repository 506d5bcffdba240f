"""The cosine of a summary's sentence embedding with that of its references or its source."""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Score,
    unscored,
)
from claimscore.metrics.reference_texts import (
    ScorePair,
    SummaryPair,
    TextOptions,
    best_place,
    by_place,
    scored_texts,
    text_metric,
)

REFERENCE = (
    "Reimers and Gurevych 2019, Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks "
    "(cosine of two embeddings)"
)


def _make(name: str, options: TextOptions) -> Metric:
    against = options.against

    def scorer(tables: ChunkTables) -> ScorePair:
        of_texts = (
            (pl.col("unit") == "text")
            & (pl.col("row_side") == "summary")
            & (pl.col("column_side") == against)
        )
        cells = tables["similarities"].filter(of_texts).select("id", "column_index", "similarity")
        cosines: dict[str, dict[int, float]] = by_place(cells.iter_rows())
        return lambda pair: _score_pair(pair, cosines.get(pair.id, {}), options.multi)

    return text_metric(
        name,
        options,
        scorer,
        (PassRequirement("text_similarities", ("summary.text", f"{against}.text")),),
        signature_keys=("embedder", "dtype", "claimscore"),
        higher_is="more alike",
        range=(-1.0, 1.0),
        description=f"Cosine of the sentence embeddings of the summary and its {against}",
        reference=REFERENCE,
    )


def _score_pair(pair: SummaryPair, cosines: Mapping[int, float], multi: str) -> Score:
    if not pair.texts.keys() <= cosines.keys():
        return unscored(pair.id, "no similarity for some texts")
    values = {index: cosines[index] for index in pair.texts}
    if not all(map(math.isfinite, values.values())):
        return unscored(pair.id, "a similarity is not a number")
    return scored_texts(pair, values, multi, {"best": best_place(values)})


BERT_COSINE = MetricFamily("bert-cosine", TextOptions, _make)
