"""Three metrics of one's own: claimscore run ... --metric-file own_metrics.py"""

from claimscore.metrics.base import (
    Metric,
    Requirements,
    TaskRequirement,
    failure_reasons,
    scored,
    unscored,
)
from claimscore.tables import texts_on_side

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


def score_sources(tables):
    for row in tables.records.iter_rows(named=True):
        sources = [set(text.lower().split()) for text in texts_on_side(row, "source")]
        words = set(row["summary"].lower().split())
        if words:
            value = len(words.intersection(*sources)) / len(words)
            yield scored(row["id"], value, {"n_sources": len(sources)})
        else:
            yield unscored(row["id"], "no words in summary")


IN_ALL_SOURCES = Metric(
    name="in-all-sources",
    version="v1",
    requires=Requirements(("summary", "source")),
    score=lambda tables: list(score_sources(tables)),
    signature_keys=(),
    higher_is="more words that all sources have",
    range=(0.0, 1.0),
    description="share of the summary's words that each source has",
    reference="our own",
)
