"""How long a request waits before it is sent again."""

import pytest
from tenacity import RetryCallState

from claimscore.errors import RateLimitError, RejectedError, TransientError
from claimscore.retry import FIRST_BACKOFF_S, LONGEST_BACKOFF_S, POLICY, retry_wait_s


def nth_wait_s(n_failures: int, error: TransientError) -> float:
    state = RetryCallState(POLICY, None, (), {})
    state.attempt_number = n_failures
    state.set_exception((type(error), error, None))
    return retry_wait_s(state)


@pytest.mark.parametrize("n_failures", [1, 2, 5, 9, 40, 5_000])
def test_waits_are_random_and_their_bound_doubles_up_to_a_minute(n_failures: int) -> None:
    bound = min(FIRST_BACKOFF_S * 2.0 ** min(n_failures - 1, 99), LONGEST_BACKOFF_S)
    waits = [nth_wait_s(n_failures, TransientError("x")) for _ in range(300)]
    assert all(0 <= wait <= bound for wait in waits)
    assert min(waits) < 0.1 * bound < 0.9 * bound < max(waits)


def test_a_retry_after_is_obeyed() -> None:
    waits = [nth_wait_s(3, RateLimitError("x", 17.0)) for _ in range(300)]
    assert all(17.0 <= wait <= 17.0 + min(0.1 + 17.0 / 4, 4 * FIRST_BACKOFF_S) for wait in waits)
    assert len(set(waits)) > 200


@pytest.mark.parametrize(
    ("error", "n_calls"), [(TransientError("x"), 3), (RejectedError("x"), 1), (ValueError("x"), 1)]
)
@pytest.mark.anyio
async def test_the_policy_repeats_only_what_may_pass(error: Exception, n_calls: int) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    retrying = POLICY.copy(sleep=sleep, stop=lambda state: state.attempt_number == 3)
    calls = []

    async def call() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        await retrying(call)
    assert (len(calls), len(slept)) == (n_calls, n_calls - 1)
