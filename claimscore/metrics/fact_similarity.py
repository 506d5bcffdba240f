"""FactSim: how far a summary's facts cover those of the reviews, and are supported by them.

A fact is a tuple of a subject and a description; two facts are as alike as the embeddings of
`subject description`. The whole matrix of a record stands in the table `similarities`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    PassRequirement,
    Requirements,
    Score,
    TaskRequirement,
)
from claimscore.metrics.ragged import (
    Cells,
    Ints,
    Matrices,
    Shapes,
    arrange,
    first_largest,
    record_numbers,
    reduce_runs,
    score_matrices,
    split_runs,
    transposed,
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
    source, summary = (
        _matrix(vectors, f"{name} vectors must be a matrix, one row a fact")
        for name, vectors in (("source", source_vectors), ("summary", summary_vectors))
    )
    if not (len(source) and len(summary)):
        return FactSim(None, None, None)
    if source.shape[1] != summary.shape[1]:
        raise ValueError(
            f"source vectors have {source.shape[1]} numbers, summary vectors {summary.shape[1]}"
        )
    return factsim_from_similarities(_unit(source) @ _unit(summary).T)


def factsim_from_similarities(similarities: ArrayLike) -> FactSim:
    """FactSim of the cosines ``[n, m]`` of source facts with summary facts, as `factsim` has it.

    All None where a side is empty. `ValueError` for what is no matrix, or not finite.
    """
    cosines = _matrix(similarities, "similarities must be a matrix, one row a source fact")
    if not cosines.size:
        return FactSim(None, None, None)
    similarity = np.clip(cosines, 0, 1)
    coverage, consistency = similarity.max(axis=1).mean(), similarity.max(axis=0).mean()
    return FactSim(float(coverage), float(consistency), _harmonic_mean(coverage, consistency))


def _harmonic_mean(coverage: float, consistency: float) -> float:
    total = coverage + consistency
    return float(2 * coverage * consistency / total) if total > 0 else 0.0


def _matrix(numbers: ArrayLike, must_be: str) -> NDArray[np.float64]:
    matrix = np.asarray(numbers, dtype=np.float64)
    if matrix.size == 0:
        return np.zeros((0, 0))
    if matrix.ndim != 2:
        raise ValueError(must_be)
    if not np.isfinite(matrix).all():
        raise ValueError(f"{must_be.partition(' must')[0]} hold a number that is not finite")
    return matrix


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    # By the largest number first, so that no square overflows or vanishes.
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scaled = vectors / np.where(largest > 0, largest, 1)
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    unit: NDArray[np.float64] = scaled / np.where(norms > 0, norms, 1)
    return unit


_REQUIRES = Requirements(
    columns=("source", "summary"),
    tasks=(TaskRequirement("facts", ("source", "summary")),),
    passes=(PassRequirement("fact_similarities", ("source.fact", "summary.fact")),),
)
_SIDES = ("source", "summary")


class _Match(NamedTuple):
    """Of each fact of a side, record by record: its best match on the other and how alike."""

    place: Ints
    similarity: NDArray[np.float64]

    def of_records(self, lengths: Ints) -> Iterator[tuple[list[int], list[float]]]:
        """Places and similarities (six digits) record by record."""
        similarities = split_runs(np.round(self.similarity, 6), lengths)
        return zip(split_runs(self.place, lengths), similarities, strict=True)


def _score(tables: ChunkTables) -> list[Score]:
    ids = tables.records["id"]
    facts = {side: _facts(ids, tables["facts"], side) for side in _SIDES}
    sizes = [np.array([len(of_record) for of_record in facts[side]], np.int64) for side in _SIDES]
    compared = arrange(Cells.read(ids, _cells(tables["similarities"])), Shapes(*sizes))
    counts = [
        {"n_source": n, "n_summary": m}
        for n, m in zip(*(size.tolist() for size in sizes), strict=True)
    ]

    def missing(number: int) -> str:
        for side in _SIDES:
            if not counts[number][f"n_{side}"]:
                return f"no facts in {side}"
        if not compared.complete[number]:
            return "no similarity for some facts"
        return "a similarity is not a number"

    return score_matrices(tables, _REQUIRES, compared, counts, _parts(compared, facts), missing)


def _facts(ids: pl.Series, facts: pl.DataFrame, side: str) -> list[list[str]]:
    """The facts of a side of every record, in order, as texts."""
    of_side = facts.filter(pl.col("side") == side)
    found = of_side.select(
        pl.Series("record", record_numbers(ids, of_side["id"])),
        "index",
        fact=pl.concat_str("subject", "description", separator=" "),
    ).sort("record", "index")
    known = found.filter(pl.col("record") >= 0)
    counts = np.bincount(known["record"].to_numpy(), minlength=len(ids))
    return split_runs(known["fact"], counts)


def _cells(similarities: pl.DataFrame) -> pl.DataFrame:
    return similarities.filter(
        (pl.col("unit") == "fact")
        & (pl.col("row_side") == "source")
        & (pl.col("column_side") == "summary")
    ).select("id", "similarity", row="row_index", column="column_index")


def _parts(
    compared: Matrices, facts: Mapping[str, list[list[str]]]
) -> Iterator[tuple[float, dict[str, object]]]:
    """Score and components of each complete record, as `factsim_from_similarities` has them.

    max(0, cos) is taken after the largest, in double precision.
    """
    shapes, values = compared.shapes, compared.values[:, 0]
    source = _matches(values, shapes.row_lengths)
    summary = _matches(transposed(values, shapes), shapes.column_lengths)
    coverage = reduce_runs(source.similarity, shapes.n_rows, "mean")
    consistency = reduce_runs(summary.similarity, shapes.n_columns, "mean")
    named = zip(
        compared.records.tolist(),
        source.of_records(shapes.n_rows),
        summary.of_records(shapes.n_columns),
        strict=True,
    )
    values_of = zip(coverage.tolist(), consistency.tolist(), strict=True)
    for (number, of_source, of_summary), (covered, consistent) in zip(
        named, values_of, strict=True
    ):
        own, other = (facts[side][number] for side in _SIDES)
        matches_source = _named(own, other, *of_source)
        matches_summary = _named(other, own, *of_summary)
        yield (
            _harmonic_mean(covered, consistent),
            {
                "coverage": covered,
                "consistency": consistent,
                "match": MATCH,
                "missing": _below(matches_source),
                "unsupported": _below(matches_summary),
                "matches_source": matches_source,
                "matches_summary": matches_summary,
            },
        )


def _matches(similarity: NDArray[np.float32], lengths: Ints) -> _Match:
    """Of equally good matches the first."""
    best = reduce_runs(similarity, lengths, "max")
    return _Match(first_largest(similarity, lengths), best.astype(np.float64).clip(0, 1))


def _named(
    facts: list[str], others: list[str], places: list[int], similarities: list[float]
) -> list[dict[str, Any]]:
    return [
        {"fact": fact, "match": others[place], "similarity": similarity}
        for fact, place, similarity in zip(facts, places, similarities, strict=True)
    ]


def _below(matches: list[dict[str, Any]]) -> list[str]:
    return [item["fact"] for item in matches if item["similarity"] < MATCH]


FACTSIM = Metric(
    name="factsim",
    version="v1",
    requires=_REQUIRES,
    score=_score,
    signature_keys=("facts", "llm", "embedder", "dtype", "claimscore"),
    higher_is="more facts in common",
    range=(0.0, 1.0),
    description="How far the facts of the sources and of the summary cover each other",
    reference=REFERENCE,
    facts=(("tuple", "subject description"),),
)
