"""How long a request waits before it is sent again."""

from __future__ import annotations

import pytest

from claimscore.errors import RateLimitError, TransientError
from claimscore.retry import FIRST_BACKOFF_S, LONGEST_BACKOFF_S, retry_wait_s


@pytest.mark.parametrize("n_failures", [1, 2, 5, 9, 10_000])
def test_waits_are_random_and_their_bound_doubles_up_to_a_minute(n_failures: int) -> None:
    """Full jitter: anything between zero and the bound."""
    bound = min(FIRST_BACKOFF_S * 2.0 ** min(n_failures - 1, 20), LONGEST_BACKOFF_S)
    waits = [retry_wait_s(TransientError("x"), n_failures) for _ in range(500)]
    assert all(0 <= wait <= bound for wait in waits)
    assert min(waits) < 0.1 * bound < 0.9 * bound < max(waits)


def test_a_retry_after_is_obeyed() -> None:
    """Never earlier than the server said, and a little later, not all at the same time."""
    waits = [retry_wait_s(RateLimitError("x", 17.0), 3) for _ in range(500)]
    assert all(17.0 <= wait <= 17.0 + min(0.1 + 17.0 / 4, 4 * FIRST_BACKOFF_S) for wait in waits)
    assert len(set(waits)) > 400
