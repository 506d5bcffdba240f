"""How long to wait before a request is sent again: the one policy of all that asks servers.

The home of tenacity.
"""

from __future__ import annotations

import anyio
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    wait_random_exponential,
)

from claimscore.errors import TransientError

#: The bound of the first random wait, and the longest one.
FIRST_BACKOFF_S = 0.25
LONGEST_BACKOFF_S = 60.0

_backoff = wait_random_exponential(multiplier=FIRST_BACKOFF_S, max=LONGEST_BACKOFF_S)


def retry_wait_s(state: RetryCallState) -> float:
    """Seconds to wait after a failed attempt: a wait strategy of tenacity.

    Exponential backoff with full jitter: after the n-th failure in a row uniform between 0 and
    0.25 * 2 ** (n - 1), at most 60 s (M. Brooker, "Exponential Backoff And Jitter", 2015). Where
    the server gave a `retry-after`, never less than that, and a little more, so that not all
    requests that were refused together come back together.
    """
    backoff_s = _backoff(state)
    error = state.outcome.exception() if state.outcome is not None else None
    least_s = error.retry_after_s if isinstance(error, TransientError) else None
    return backoff_s if least_s is None else least_s + min(backoff_s, 0.1 + least_s / 4)


_transient = retry_if_exception_type(TransientError)

#: The policy; `await POLICY.copy(sleep=..., stop=...)(call)` repeats a call until it is answered,
#: and raises the last error where `stop` says so. A copy is for one call at a time.
POLICY = AsyncRetrying(sleep=anyio.sleep, wait=retry_wait_s, retry=_transient, reraise=True)
