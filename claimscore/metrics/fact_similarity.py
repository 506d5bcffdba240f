"""FactSim: how far a summary's facts cover those of the reviews, and are supported by them.

A fact is a tuple of a subject and a description; two facts are as alike as the embeddings of
`subject description`. The whole matrix of a record stands in the table `similarities`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    TaskRequirement,
    option_facts,
    score_records,
    scored,
    unscored,
)
from claimscore.metrics.claims import (
    EACH,
    NO_CELLS,
    Cells,
    cells_by_record,
    counted,
    repeats_option,
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
    total = coverage + consistency
    score = 2 * coverage * consistency / total if total > 0 else 0.0
    return FactSim(float(coverage), float(consistency), float(score))


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

#: The sides that have facts.
SIDES = ("source", "summary")


@dataclasses.dataclass(frozen=True)
class FactSimOptions:
    """Options of `factsim`."""

    repeats: str = repeats_option(EACH)


def _score(options: FactSimOptions, tables: ChunkTables) -> list[Score]:
    facts, cells = facts_by_side(tables["facts"]), similarities_by_record(tables["similarities"])

    def score(row: Mapping[str, Any]) -> Score:
        record = row["id"]
        source, summary = (facts.get((record, side), []) for side in SIDES)
        of_source, of_summary = (counted(texts, options.repeats) for texts in (source, summary))
        components: dict[str, object] = {
            "n_source": len(source),
            "n_summary": len(summary),
            "repeats": options.repeats,
            "n_repeats_source": of_source.n_repeats,
            "n_repeats_summary": of_summary.n_repeats,
        }
        if not (source and summary):
            return unscored(record, f"no facts in {'summary' if source else 'source'}", components)
        matrix = cells.get(record, NO_CELLS).matrix((len(source), len(summary)))
        if matrix is None:
            reason = "no similarity for some facts, or none that is a number"
            return unscored(record, reason, components)
        cosines = matrix[:, :, 0].astype(np.float64)
        cosines = cosines[np.ix_(of_source.places, of_summary.places)]
        source, summary = (
            [texts[place] for place in of_side.places]
            for texts, of_side in ((source, of_source), (summary, of_summary))
        )
        result = factsim_from_similarities(cosines)
        matches_source = _matches(source, summary, cosines)
        matches_summary = _matches(summary, source, cosines.T)
        assert result.score is not None, "both sides have facts"
        components |= {
            "coverage": result.coverage,
            "consistency": result.consistency,
            "match": MATCH,
            "missing": _below(matches_source),
            "unsupported": _below(matches_summary),
            "matches_source": matches_source,
            "matches_summary": matches_summary,
        }
        return scored(record, result.score, components)

    return score_records(tables, _REQUIRES, score)


def facts_by_side(facts: pl.DataFrame) -> dict[tuple[str, str], list[str]]:
    """The facts of each record and side in order, as texts."""
    texts = (
        facts.sort("index", maintain_order=True)
        .group_by("id", "side", maintain_order=True)
        .agg(pl.concat_str("subject", "description", separator=" ").fill_null(""))
    )
    return {(record, side): of_side for record, side, of_side in texts.iter_rows()}


def similarities_by_record(similarities: pl.DataFrame) -> dict[str, Cells]:
    """The cosines of each record's source facts (rows) with its summary facts."""
    return cells_by_record(
        similarities.filter(
            (pl.col("unit") == "fact")
            & (pl.col("row_side") == "source")
            & (pl.col("column_side") == "summary")
        ).select("id", "similarity", row="row_index", column="column_index")
    )


def _matches(
    facts: list[str], others: list[str], cosines: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Each fact with its best match, of equally good ones the first, and max(0, cosine)."""
    best = cosines.argmax(axis=1)
    similarities = cosines.max(axis=1).clip(0, 1).round(6).tolist()
    return [
        {"fact": fact, "match": others[place], "similarity": similarity}
        for fact, place, similarity in zip(facts, best, similarities, strict=True)
    ]


def _below(matches: list[dict[str, Any]]) -> list[str]:
    return [item["fact"] for item in matches if item["similarity"] < MATCH]


def _make(name: str, options: FactSimOptions) -> Metric:
    return Metric(
        name=name,
        requires=_REQUIRES,
        score=functools.partial(_score, options),
        signature_keys=("facts", "embedder", "dtype", "claimscore"),
        higher_is="more facts in common",
        range=(0.0, 1.0),
        description="How far the facts of the sources and of the summary cover each other",
        reference=REFERENCE,
        facts=(("tuple", "subject description"), *option_facts(options)),
    )


FACTSIM = MetricFamily("factsim", FactSimOptions, _make)
