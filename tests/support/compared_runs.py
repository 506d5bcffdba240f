"""Small run directories with claims and facts, made from plain lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from claimscore import tables
from claimscore.evaluation.comparison import CompareConfig, Comparison, compare
from claimscore.runs import RunDirectory

Values = Mapping[str, Sequence[float | None]]

#: Record, side -> claims; a claim's sentence is its place.
Claims = Mapping[tuple[str, str], Sequence[str]]


def claim_rows(claims: Claims) -> list[dict[str, Any]]:
    return [
        {"id": record, "side": side, "sentence_index": place, "claim_index": 0, "text": text}
        for (record, side), texts in claims.items()
        for place, text in enumerate(texts)
    ]


def fact_rows(facts: Mapping[tuple[str, str], Sequence[tuple[str, str]]]) -> list[dict[str, Any]]:
    return [
        {"id": record, "side": side, "index": place, "subject": subject, "description": text}
        for (record, side), pairs in facts.items()
        for place, (subject, text) in enumerate(pairs)
    ]


def score_rows(ids: Sequence[str], values: Values, signature: str = "v1") -> list[dict[str, Any]]:
    """A None is a null score, with a reason."""
    return [
        {
            "id": record,
            "metric": metric,
            "value": value,
            "reason": "decompose failed: no answer" if value is None else None,
            "signature": f"{metric}|{signature}",
        }
        for metric, of_metric in values.items()
        for record, value in zip(ids, of_metric, strict=True)
    ]


def write_run(
    path: Path,
    ids: Sequence[str],
    values: Values | None = None,
    *,
    claims: Claims | None = None,
    facts: Mapping[tuple[str, str], Sequence[tuple[str, str]]] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
    signature: str = "v1",
) -> Path:
    """A finished run; without `values` one that has no scores yet."""
    with RunDirectory(path) as run:
        given = {"seed": 0, "records": {"count": len(ids), "digest": "d"}, **(settings or {})}
        run.check_settings(given)
        run.write_parts(0, "records", {"records": pl.DataFrame({"id": ids, **(columns or {})})})
        if claims:
            run.write_parts(0, "decompose", {"claims": tables.CLAIMS.frame(claim_rows(claims))})
        if facts:
            run.write_parts(0, "facts", {"facts": tables.FACTS.frame(fact_rows(facts))})
        if values is not None:
            run.write_scores([tables.SCORES.frame(score_rows(ids, values, signature))])
    return path


def compared(*runs: Path, **options: Any) -> Comparison:
    """The runs, with few bootstrap samples."""
    return compare(CompareConfig(tuple(map(str, runs)), **{"samples": 400, **options}))
