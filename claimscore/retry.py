"""How long to wait before a request is sent again: the one policy of all that asks servers."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from claimscore.errors import TransientError

Sleep = Callable[[float], Awaitable[None]]

#: The bound of the first random wait, and the longest one.
FIRST_BACKOFF_S = 0.25
LONGEST_BACKOFF_S = 60.0


def retry_wait_s(error: TransientError, n_failures: int) -> float:
    """Seconds to wait after the `n_failures`-th failure of a request in a row (from 1).

    Exponential backoff with full jitter: uniform between 0 and 0.25 * 2 ** (n - 1), at most
    60 s (M. Brooker, "Exponential Backoff And Jitter", 2015). Where the server gave a
    `retry-after`, never less than that, and a little more, so that not all requests that were
    refused together come back together.
    """
    longest_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(n_failures - 1, 16))
    backoff_s = random.uniform(0.0, longest_s)
    if error.retry_after_s is None:
        return backoff_s
    return error.retry_after_s + min(backoff_s, 0.1 + error.retry_after_s / 4)
