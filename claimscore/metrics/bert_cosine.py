"""The cosine of a summary's sentence embedding with that of its references or its source."""

from __future__ import annotations

import polars as pl

from claimscore.metrics.base import ChunkTables, Metric, MetricFamily, PassRequirement
from claimscore.metrics.reference_texts import TextOptions, Values, by_place, value_metric

REFERENCE = (
    "Reimers and Gurevych 2019, Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks "
    "(cosine of two embeddings)"
)


def _make(name: str, options: TextOptions) -> Metric:
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
        reference=REFERENCE,
    )


BERT_COSINE = MetricFamily("bert-cosine", TextOptions, _make)
