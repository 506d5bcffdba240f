"""A token bucket."""

from __future__ import annotations

import bisect

from hypothesis import given
from hypothesis import strategies as st

from claimscore.pipeline.llm.ratelimit.bucket import BURST_S, TokenBucket


def make_bucket(rate: float) -> TokenBucket:
    return TokenBucket(rate, BURST_S * rate)


def send_times(bucket: TokenBucket, n: int, units: float = 1, start: float = 0.0) -> list[float]:
    now, times = start, []
    for _ in range(n):
        while (wait_s := bucket.wait_s(now)) > 0:
            now += wait_s
        bucket.level -= units
        times.append(now)
    return times


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 5)), min_size=1, max_size=60),
    st.floats(0.5, 1000),
)
def test_no_window_holds_more_than_its_rate_and_the_capacity(
    sends: list[tuple[int, float]], rate: float
):
    bucket, now, times, sums = make_bucket(rate), 0.0, [], [0.0]
    for units, idle_s in sends:
        times += send_times(bucket, 1, units, now + idle_s)
        now = times[-1]
        sums.append(sums[-1] + units)
    for begin, start in enumerate(times):
        for window_s in (0.1, 1.0, 60.0):
            last = bisect.bisect_left(times, start + window_s) - 1
            assert sums[last] - sums[begin] <= rate * (window_s + BURST_S) + 1e-3
