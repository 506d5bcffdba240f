"""Two metrics of one's own: claimscore run ... --metric-file own_metrics.py"""

from claimscore.metrics.base import (
    Metric,
    Requirements,
    TaskRequirement,
    failure_reasons,
    scored,
    unscored,
)

CLAIMS = Requirements(("summary_a", "summary_b"), tasks=(TaskRequirement("decompose", ("a", "b")),))


def score_claims(tables):
    failed = failure_reasons(tables, CLAIMS)
    counts = {row[:2]: row[2] for row in tables["claims"].group_by("id", "side").len().rows()}
    for record in tables.records["id"]:
        a, b = counts.get((record, "a"), 0), counts.get((record, "b"), 0)
        if record in failed or not (a and b):
            yield unscored(record, failed.get(record, "no claims"))
        else:
            yield scored(record, min(a, b) / max(a, b), {"n_a": a, "n_b": b})


CLAIM_BALANCE = Metric(
    name="claim-balance",
    version="v1",
    requires=CLAIMS,
    score=score_claims,
    signature_keys=("decompose", "granularity", "units"),
    higher_is="more alike in their number of claims",
    range=(0.0, 1.0),
    description="the smaller number of claims over the larger",
    reference="our own",
)


def score_words(tables):
    for record, a, b in tables.records.select("id", "summary_a", "summary_b").rows():
        yield scored(record, float(len(a.split()) - len(b.split())), {})


WORDS = Metric(
    name="more-words",
    version="v1",
    requires=Requirements(("summary_a", "summary_b")),
    score=score_words,
    signature_keys=(),
    higher_is="longer",
    range=(float("-inf"), float("inf")),
    description="words of summary_a less those of summary_b",
    reference="our own",
)
