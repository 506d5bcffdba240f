"""The registry, signatures and what failures mean for every metric."""

from claimscore.metrics.base import (
    PassRequirement,
    Requirements,
    TaskRequirement,
    failure_reasons,
)
from tests.support.frames import tables


def test_the_first_failure_is_the_reason():
    """Earlier stages come first, then sides and indices, whatever the order of the rows."""
    needs = Requirements(
        ("summary_a", "summary_b"),
        (TaskRequirement("decompose", ("a", "b")),),
        (PassRequirement("nli", ("a", "b")),),
    )
    failures = [
        {"id": "x", "stage": "nli", "message": "late"},
        {"id": "x", "stage": "decompose", "side": "b", "message": "second"},
        {"id": "x", "stage": "decompose", "side": "a", "index": 4, "message": "not first"},
        {"id": "x", "stage": "decompose", "side": "a", "index": 2, "message": "first"},
        {"id": "y", "stage": "token_scores", "message": "not needed"},
    ]
    reasons = failure_reasons(tables([{"id": "x"}], failures=failures), needs)
    assert reasons == {"x": "decompose failed for summary_a: first"}
