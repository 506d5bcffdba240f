"""The cosine of a summary's sentence embedding with that of its references or its source."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import polars as pl

from claimscore.metrics.against import AGAINST, MULTI, Compared, score_text_values, scored_texts
from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    unscored,
)

REFERENCE = (
    "Reimers and Gurevych 2019, Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks "
    "(cosine of two embeddings)"
)


def _score(settings: Mapping[str, str], needs: Requirements, tables: ChunkTables) -> list[Score]:
    of_texts = (
        (pl.col("unit") == "text")
        & (pl.col("row_side") == "summary")
        & (pl.col("column_side") == settings["against"])
    )
    cells = tables["similarities"].filter(of_texts).select("id", "column_index", "similarity")
    return score_text_values(
        tables,
        needs,
        settings["against"],
        cells.iter_rows(),
        functools.partial(_score_record, settings),
    )


def _score_record(
    settings: Mapping[str, str], item: Compared, cosines: Mapping[int, float]
) -> Score:
    values = {index: cosines[index] for index, _ in item.texts if index in cosines}
    if len(values) < len(item.texts):
        return unscored(item.id, "no similarity for some texts")
    if not all(map(math.isfinite, values.values())):
        return unscored(item.id, "a similarity is not a number")
    return scored_texts(item.id, values, settings["multi"])


def _make(name: str, settings: Mapping[str, str]) -> Metric:
    against = settings["against"]
    need = PassRequirement("text_similarities", ("summary.text", f"{against}.text"))
    needs = Requirements(columns=("summary", against), passes=(need,))
    return Metric(
        name=name,
        version="v1",
        requires=needs,
        score=functools.partial(_score, settings, needs),
        signature_keys=("embedder", "dtype", "claimscore"),
        higher_is="more alike",
        range=(-1.0, 1.0),
        description=f"Cosine of the sentence embeddings of the summary and its {against}",
        reference=REFERENCE,
        facts=tuple((key, settings[key]) for key in ("against", "multi")),
    )


BERT_COSINE = MetricFamily("bert-cosine", {"against": AGAINST, "multi": MULTI}, _make)
