"""One number for a limit: what it costs to take units, and when they may be used."""

from __future__ import annotations

import pytest

from claimscore.pipeline.llm.limits.cell_rate import Account, taken


@pytest.mark.parametrize(
    ("account", "now", "depth_s", "wait_s", "free_at"),
    [
        pytest.param(None, 100, 0, 0, 102, id="the first one"),
        pytest.param(None, 100, 5, 0, 97, id="the first one finds a full bucket"),
        pytest.param(Account(90, 80, 60), 100, 5, 0, 97, id="idle time is caught up to the depth"),
        pytest.param(Account(97, 96, 60), 100, 5, 0, 99, id="what was caught up is gone"),
        pytest.param(Account(110, 100, 60), 100, 5, 10, 112, id="given away ahead"),
        pytest.param(Account(900, 100, 60), 100, 5, 800, 902, id="minutes ahead at the same rate"),
        pytest.param(
            Account(900, 100, 6), 100, 5, 80, 182, id="minutes ahead, a tenth of the rate"
        ),
        pytest.param(Account(200, 100, 6), 100, 5, 100, 202, id="less than that is left alone"),
        pytest.param(Account(9010, 9000, 60), 100, 0, 10, 112, id="the clock began anew"),
        pytest.param(Account(8000, 9000, 60), 100, 5, 0, 97, id="the clock began anew, idle"),
        pytest.param(Account(110, 100, 60), 9000, 5, 0, 8997, id="the clock jumped forward"),
    ],
)
def test_what_two_units_at_one_a_second_cost(
    account: Account | None, now: float, depth_s: float, wait_s: float, free_at: float
):
    """The account moves forward by the cost of the lease, from where it may begin."""
    assert taken(account, 2, 60, depth_s, now) == (Account(free_at, now, 60), wait_s)
