"""A made-up run for the report's tests: real sentences, random labels, some failures."""

import json
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pytest

from claimscore import tables
from claimscore.claim_checks import summarized
from claimscore.report import DetailChunk, ReportTables, RunFacts

SENTENCES: tuple[tuple[str, ...], ...] = (  # a sentence, then its claims
    (
        "The rooms are large, quiet and spotlessly clean.",
        "The rooms are large.",
        "The rooms are quiet.",
        "The rooms are spotlessly clean.",
    ),
    (
        "Breakfast was included but ended far too early.",
        "Breakfast was included.",
        "Breakfast ended far too early.",
    ),
    (
        "The staff were rude and did not help with the late checkout.",
        "The staff were rude.",
        "The staff did not help with the late checkout.",
    ),
    ("It is five minutes to the old town.", "The hotel is five minutes from the old town."),
    (
        "Parking costs $20 a night, i.e. more than the room's minibar.",
        "Parking costs $20 a night.",
        "Parking costs more than the room's minibar.",
    ),
    ("The beds are super comfortable.", "The beds are super comfortable."),
    (
        "The pool is really worth checking out, as well as the hot tub.",
        "The pool is worth checking out.",
        "The hot tub is worth checking out.",
    ),
    ("No one answered the phone after ten.", "No one answered the phone after ten."),
)
FACTS: dict[str, dict[str, Any]] = {
    "caspr": {
        **{"low": 70.8, "high": 81.2, "range": [0.0, 100.0]},
        "description": "Contrast of claims by natural language inference",
    },
    "ds": {"low": 63.9, "high": 68.1, "description": "Stemmed tokens not shared"},
    "bs-inverse": {"low": 82.6, "high": 85.4, "description": "One minus rescaled BERTScore"},
}
REASON = "decompose failed for summary_b: no JSON object in the answer"


def metric_row(scores: Sequence[dict[str, Any]] = (), **facts: Any) -> dict[str, Any]:
    """What `summary.json` says of a metric with these rows of scores."""
    values = [row["value"] for row in scores if row["value"] is not None]
    reasons = Counter(row["reason"].split(":")[0] for row in scores if row["value"] is None)
    return {
        **{"n": len(values), "null": reasons.total(), "reasons": dict(reasons)},
        **{"mean": statistics.fmean(values) if values else None, "low": None, "high": None},
        **{"range": [0.0, 100.0], "higher_is": "more contrastive", "worst": [], "verdict": ""},
        **{"worst_end": "lowest", "description": "", "reference": ""},
        "signature": scores[0]["signature"] if scores else "",
        **facts,
    }


class MadeUp:
    """Rows of a run; every eleventh record failed to decompose its second summary."""

    def __init__(self, sentences: int, seed: int) -> None:
        self.sentences = sentences
        self.random = random.Random(seed)
        self.chunks: list[DetailChunk] = []
        self.scores: list[dict[str, object]] = []
        self.failures: list[dict[str, object]] = []

    def add_chunk(self, start: int, stop: int) -> None:
        records, claims, nli, checks = [], [], [], list[dict[str, object]]()
        n_scores, n_failures = len(self.scores), len(self.failures)
        for number in range(start, stop):
            record_id, failed = f"hotel-{number:04d}", number % 11 == 10
            record: dict[str, object] = {"id": record_id, "system": f"system {number % 3}"}
            sides: dict[str, list[str]] = {}
            for side in "ab":
                chosen = self.random.choices(SENTENCES, k=self.sentences)
                record[f"summary_{side}"] = " ".join(sentence for sentence, *_ in chosen)
                rows = [] if failed and side == "b" else claim_rows(record_id, side, chosen)
                sides[side] = [str(row["text"]) for row in rows]
                claims += rows
                if number % 3 == 0 and side == "a":
                    place = {"id": record_id, "side": side, "sentence_index": 0}
                    checks.append({**place, "claim_index": 0, "check": "repeat", "value": 0.0})
                    checks.append({**place, "check": "uncovered_words", "value": 0.5})
            records.append(record)
            nli += self.nli_rows(record_id, sides)
            self.score(record_id, failed, sides)
        frame = pl.DataFrame(records)
        findings = tables.CLAIM_CHECKS.frame(checks)
        rows_of = {
            "scores": tables.SCORES.frame(self.scores[n_scores:]),
            "failures": tables.FAILURES.frame(self.failures[n_failures:]),
            "claims": tables.CLAIMS.frame(claims),
            "nli": tables.NLI.frame(nli),
        }
        self.chunks.append(DetailChunk(frame, **rows_of, claim_checks=findings))

    def nli_rows(self, record_id: str, sides: dict[str, list[str]]) -> list[dict[str, object]]:
        rows = []
        for premise, hypothesis in ("ab", "ba"):
            for i, one in enumerate(sides[premise]):
                for j, two in enumerate(sides[hypothesis]):
                    p = [self.random.random() ** power for power in (5, 1, 3)]
                    p[0] += 20.0 if one == two else 0.0
                    row = (record_id, premise, i, hypothesis, j, premise + hypothesis)
                    values = (*row, *(value / sum(p) for value in p))
                    rows.append(dict(zip(tables.NLI.schema, values, strict=False)))
        return rows

    def score(self, record_id: str, failed: bool, sides: dict[str, list[str]]) -> None:
        parts = {
            f"scores_{side}": [self.random.choice((-1, 1)) for _ in claims]
            for side, claims in sides.items()
        }
        for metric, mean in (("caspr", 76), ("ds", 66), ("bs-inverse", 84)):
            null = failed and metric == "caspr"
            self.scores.append(
                {
                    "id": record_id,
                    "metric": metric,
                    "value": None if null else min(100.0, self.random.gauss(mean, 9)),
                    "reason": REASON if null else None,
                    "components": json.dumps(parts if metric == "caspr" else {"shared": 11}),
                    "signature": f"{metric}|v1|decompose:v1@12ab|llm:builtin-parser-9",
                }
            )
        if failed:
            values = (record_id, "decompose", "b", 0, "parse", "no JSON object in the answer", 3)
            self.failures.append(dict(zip(tables.FAILURES.schema, values, strict=False)))


def claim_rows(
    record_id: str, side: str, sentences: list[tuple[str, ...]]
) -> list[dict[str, object]]:
    """Rows of the table claims for sentences given with their claims."""
    rows: list[dict[str, object]] = []
    for index, (sentence, *claims) in enumerate(sentences):
        for claim in claims:
            values = (record_id, side, index, len(rows), claim, sentence)
            rows.append(dict(zip(tables.CLAIMS.schema, values, strict=False)))
    return rows


def make_run(n: int, *, sentences: int = 4, seed: int = 0, **changes: Any) -> ReportTables:
    """A run of `n` records in chunks of 64."""
    made = MadeUp(sentences, seed)
    for start in range(0, n, 64):
        made.add_chunk(start, min(start + 64, n))
    run = RunFacts(
        title="hotels.jsonl",
        input="examples/hotels.jsonl",
        n_records=n,
        llm="builtin",
        models={"NLI model": "embedded@1f2e3d4 (float32)", "Token encoder": "embedded"},
        version="0.1.0",
        finished="2026-11-21 00:41 UTC",
        counts={"Duration": "14 s", "Requests sent": 1_180, "Answers from cache": 96},
        claim_checks=summarized({"repeat": n // 3, "uncovered_words": n // 3}, 12 * n, 8 * n),
        settings={"metrics": ["caspr", "ds"], "llm": {"model": "builtin", "rpm": None}},
    )
    fields: dict[str, Any] = {
        "run": run,
        "metrics": {
            name: metric_row([row for row in made.scores if row["metric"] == name], **facts)
            for name, facts in FACTS.items()
        },
        "scores": tables.SCORES.frame(made.scores),
        "failures": [
            {**{key: row[key] for key in ("stage", "kind")}, "count": n, "example": row["message"]}
            for n, row in [(len(made.failures), row) for row in made.failures[:1]]
        ],
        "chunks": lambda: iter(made.chunks),
        "records": pl.concat([chunk.records for chunk in made.chunks]) if made.chunks else None,
    }
    return ReportTables(**{**fields, **changes})


@pytest.fixture
def made_up() -> Callable[..., ReportTables]:
    """`made_up(n, **fields of ReportTables)`."""
    return make_run
