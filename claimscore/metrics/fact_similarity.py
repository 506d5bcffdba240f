"""FactSim: how far a summary's facts cover those of the reviews, and are supported by them.

A fact is a tuple of a subject and a description; two facts are as alike as the embeddings of
`subject description`. The whole matrix of a record stands in the table `similarities`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    Needs,
    PassNeed,
    Score,
    TaskNeed,
    failure_reasons,
    scored,
    unscored,
)

REFERENCE = "FactSim paper: coverage, consistency and their harmonic mean; tuples by GPT-4"

#: From this similarity on a fact counts as found on the other side, in the lists of missing and
#: unsupported facts. The score does not depend on it.
MATCH = 0.7


class FactSim(NamedTuple):
    """Coverage fV, consistency fN, and FactSim, their harmonic mean; all None or none."""

    coverage: float | None
    consistency: float | None
    score: float | None


def factsim(source_vectors: ArrayLike, summary_vectors: ArrayLike) -> FactSim:
    """FactSim of the facts' embeddings ``[n, d]`` and ``[m, d]``; all None where a side is empty.

    sim = max(0, cos); fV = the mean over source facts of the largest sim with a summary fact;
    fN = the mean over summary facts of the largest sim with a source fact; FactSim =
    2·fV·fN / (fV + fN) (FactSim paper; facts of all reviews together, repeated ones each
    time). In [0, 1]. A zero vector is like nothing (sim 0), and where nothing is alike
    FactSim is 0. `ValueError` for vectors that are no matrix, not as wide as the others, or not
    finite.
    """
    source, summary = _matrix(source_vectors, "source"), _matrix(summary_vectors, "summary")
    if not (len(source) and len(summary)):
        return FactSim(None, None, None)
    if source.shape[1] != summary.shape[1]:
        raise ValueError(
            f"source vectors have {source.shape[1]} numbers, summary vectors {summary.shape[1]}"
        )
    similarity = np.clip(_unit(source) @ _unit(summary).T, 0, 1)
    coverage, consistency = similarity.max(axis=1).mean(), similarity.max(axis=0).mean()
    return FactSim(float(coverage), float(consistency), _harmonic_mean(coverage, consistency))


def _harmonic_mean(coverage: float, consistency: float) -> float:
    total = coverage + consistency
    return float(2 * coverage * consistency / total) if total > 0 else 0.0


def _matrix(vectors: ArrayLike, name: str) -> NDArray[np.float64]:
    matrix = np.asarray(vectors, dtype=np.float64)
    if matrix.size == 0:
        return np.zeros((0, 0))
    if matrix.ndim != 2:
        raise ValueError(f"{name} vectors must be a matrix, one row a fact")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} vectors hold a number that is not finite")
    return matrix


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    # By the largest number first, so that no square overflows or vanishes.
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scaled = vectors / np.where(largest > 0, largest, 1)
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    unit: NDArray[np.float64] = scaled / np.where(norms > 0, norms, 1)
    return unit


_NEEDS = Needs(
    columns=("source", "summary"),
    tasks=(TaskNeed("facts", ("source", "summary")),),
    passes=(PassNeed("fact_similarities", ("source.fact", "summary.fact")),),
)
_SIDES = ("source", "summary")


def factsim_table(similarities: pl.DataFrame) -> pl.DataFrame:
    """FactSim of every record in a table of similarities of source facts with summary facts.

    Columns `id`, `coverage`, `consistency`, `score`, `n_cells` and `finite`; one row a record
    that has a cell, in no particular order.
    """
    cells = _cells(similarities)
    coverage, consistency = pl.col("coverage"), pl.col("consistency")
    total = coverage + consistency
    return (
        _means(cells, "row", "coverage")
        .join(_means(cells, "column", "consistency").select("id", "consistency"), on="id")
        .with_columns(
            score=pl.when(total > 0).then(2 * coverage * consistency / total).otherwise(0.0)
        )
        .collect()
    )


def _cells(similarities: pl.DataFrame) -> pl.LazyFrame:
    of_facts = (
        (pl.col("unit") == "fact")
        & (pl.col("row_side") == "source")
        & (pl.col("column_side") == "summary")
    )
    columns = {"row": "row_index", "column": "column_index"}
    return similarities.lazy().filter(of_facts).select("id", "similarity", **columns)


def _means(cells: pl.LazyFrame, side: str, name: str) -> pl.LazyFrame:
    """For each record the mean over the facts of a side of their largest similarity.

    max(0, cos) is taken after the largest, in double precision.
    """
    similarity = pl.col("similarity")
    best = cells.group_by("id", side).agg(
        best=similarity.max(), n_cells=pl.len(), finite=similarity.is_finite().all()
    )
    return best.group_by("id").agg(
        pl.col("best").cast(pl.Float64).clip(0, 1).mean().alias(name),
        pl.col("n_cells").sum(),
        pl.col("finite").all(),
    )


def _score(tables: ChunkTables) -> list[Score]:
    failed = failure_reasons(tables, _NEEDS)
    facts = tables["facts"].filter(pl.col("side").is_in(_SIDES))
    counts = {
        (record, side): n
        for record, side, n in facts.group_by("id", "side").agg(pl.len()).iter_rows()
    }
    values = {row["id"]: row for row in factsim_table(tables["similarities"]).iter_rows(named=True)}
    matches = {side: _matches(tables["similarities"], facts, side) for side in _SIDES}
    return [
        _score_record(
            record,
            failed.get(record),
            {side: counts.get((record, side), 0) for side in _SIDES},
            values.get(record),
            {side: matches[side].get(record, []) for side in _SIDES},
        )
        for record in tables.records["id"]
    ]


def _matches(
    similarities: pl.DataFrame, facts: pl.DataFrame, side: str
) -> dict[str, list[dict[str, Any]]]:
    """For each record the facts of a side in order, each with its best match on the other.

    Of equally good matches the first.
    """
    own, other = ("row", "column") if side == "source" else ("column", "row")
    texts = facts.select(
        "id",
        "side",
        pl.col("index"),
        fact=pl.concat_str("subject", "description", separator=" "),
    ).lazy()
    best = (
        _cells(similarities)
        .sort("id", own, "similarity", other, descending=[False, False, True, False])
        .group_by("id", own, maintain_order=True)
        .first()
        .with_columns(pl.col("similarity").cast(pl.Float64).clip(0, 1))
    )

    def named(frame: pl.LazyFrame, index: str, of: str, name: str) -> pl.LazyFrame:
        of_side = texts.filter(pl.col("side") == of).select("id", "index", **{name: "fact"})
        return frame.join(
            of_side, left_on=("id", index), right_on=("id", "index"), maintain_order="left"
        )

    opposite = _SIDES[1 - _SIDES.index(side)]
    rows = named(named(best, own, side, "fact"), other, opposite, "match")
    found: dict[str, list[dict[str, Any]]] = {}
    for record, fact, match, similarity in (
        rows.select("id", "fact", "match", "similarity").collect().iter_rows()
    ):
        found.setdefault(record, []).append(
            {"fact": fact, "match": match, "similarity": round(similarity, 6)}
        )
    return found


def _score_record(
    record: str,
    failure: str | None,
    counts: dict[str, int],
    values: dict[str, Any] | None,
    matches: dict[str, list[dict[str, Any]]],
) -> Score:
    components: dict[str, object] = {f"n_{side}": n for side, n in counts.items()}
    reason = failure or _missing(counts, values)
    if reason or values is None:
        return unscored(record, reason or "no similarities", components)
    components |= {
        "coverage": values["coverage"],
        "consistency": values["consistency"],
        "match": MATCH,
        "missing": _below(matches["source"]),
        "unsupported": _below(matches["summary"]),
        "matches_source": matches["source"],
        "matches_summary": matches["summary"],
    }
    return scored(record, values["score"], components)


def _missing(counts: dict[str, int], values: dict[str, Any] | None) -> str | None:
    """Why the facts and similarities of a record do not make a score; None where they do."""
    for side, n in counts.items():
        if not n:
            return f"no facts in {side}"
    if values is None or values["n_cells"] != counts["source"] * counts["summary"]:
        return "no similarity for some facts"
    return None if values["finite"] else "a similarity is not a number"


def _below(matches: list[dict[str, Any]]) -> list[str]:
    return [item["fact"] for item in matches if item["similarity"] < MATCH]


FACTSIM = Metric(
    name="factsim",
    version="v1",
    needs=_NEEDS,
    score=_score,
    signature_keys=("facts", "llm", "embedder", "dtype", "claimscore"),
    higher_is="more facts in common",
    range=(0.0, 1.0),
    description="How far the facts of the sources and of the summary cover each other",
    reference=REFERENCE,
    facts=(("tuple", "subject description"),),
)
