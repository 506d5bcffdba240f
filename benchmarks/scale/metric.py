"""A metric that needs an LLM task and no model: claims a word of the summary."""

from __future__ import annotations

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    Requirements,
    Score,
    TaskRequirement,
    failure_reasons,
    scored,
    unscored,
)

NEEDS = Requirements(("summary",), tasks=(TaskRequirement("decompose", ("summary",)),))


def _score(tables: ChunkTables) -> list[Score]:
    failed = failure_reasons(tables, NEEDS)
    n_claims = dict(tables["claims"].group_by("id").len().iter_rows())
    found = []
    for record, summary in tables.records.select("id", "summary").iter_rows():
        if record in failed or record not in n_claims:
            found.append(unscored(record, failed.get(record, "no claims")))
        else:
            words = len(summary.split())
            found.append(scored(record, n_claims[record] / words, {"words": words}))
    return found


CLAIM_DENSITY = Metric(
    name="claim-density",
    version="v1",
    requires=NEEDS,
    score=_score,
    signature_keys=("decompose"),
    higher_is="more claims a word",
    range=(0.0, float("inf")),
    description="claims over words of the summary",
    reference="a benchmark's own",
)
