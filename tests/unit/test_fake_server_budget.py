"""The limits of the fake server hold: tests and benchmarks of limits are measured against them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.fake_server.budget import Budget
from tests.fake_server.settings import Settings


@given(
    gaps=st.lists(st.floats(0, 3), min_size=1, max_size=60),
    depth_s=st.sampled_from([1.0, 5.0, 60.0]),
)
def test_no_interval_passes_more_than_depth_and_rate_allow(gaps: list[float], depth_s: float):
    """Whatever the arrivals; a request that waits as long as told passes."""
    budget = Budget(Settings(rpm=90, depth_s=depth_s), 0.0)
    passed, now = [], 0.0
    for gap in gaps:
        now += gap
        refused = budget.admit(1, now)
        if refused is None:
            passed.append(now)
        else:
            assert budget.buckets["requests"].wait_s(1, now + refused[1]) == 0.0
    for i, start in enumerate(passed):
        for n, end in enumerate(passed[i:], start=1):
            assert n <= max(90 * depth_s / 60, 1) + (end - start) * 90 / 60 + 1e-6
