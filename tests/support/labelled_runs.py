"""Runs with verdicts on claims, and sheets of labels, for the tests of `label`."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from claimscore import tables
from claimscore.metrics.support import uncertainty
from claimscore.runs import RunDirectory
from tests.support.compared_runs import score_rows

#: Claim, verdict, probability of support.
Verdict = tuple[str, str, float]


def write_judged_run(path: Path, records: Mapping[str, Sequence[Verdict]]) -> Path:
    """A run with scores of faithfulness and of `m`, its claims judged by one source each."""
    ids = list(records)
    rows = [
        {
            "id": id,
            "side": "summary",
            "claim_position": place,
            "claim": claim,
            "source_side": "source",
            "source_index": 0,
            "read": "model.best",
            "verdict": verdict,
            "probability": probability,
            "contradiction": 0.0,
            "uncertainty": uncertainty(probability),
            "evidence": f"Source of {id}.",
            "verbatim": False,
        }
        for id, claims in records.items()
        for place, (claim, verdict, probability) in enumerate(claims)
    ]
    shares = [
        sum(verdict == "supported" for _, verdict, _ in claims) / len(claims)
        for claims in records.values()
    ]
    scores = score_rows(ids, {"faithfulness": shares, "m": [10 * share for share in shares]})
    with RunDirectory(path) as run:
        run.check_settings({"seed": 0, "records": {"count": len(ids), "digest": "d"}})
        sources = [f"Source of {id}. More." for id in ids]
        summaries = [" ".join(claim for claim, *_ in claims) for claims in records.values()]
        frame = pl.DataFrame({"id": ids, "source": sources, "summary": summaries})
        run.write_parts(0, "records", {"records": frame})
        run.write_parts(0, "support", {"support": tables.SUPPORT.frame(rows)})
        run.write_scores([tables.SCORES.frame(scores)])
    return path


def read_sheet(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))
