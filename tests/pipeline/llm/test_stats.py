"""Numbers of several engines as those of one."""

from __future__ import annotations

import json
from collections import Counter

from claimscore.pipeline.llm.stats import EngineStats, ServerStats, merged

ONE = EngineStats(
    sent=5,
    answered=4,
    failed=1,
    failures=Counter(length=1),
    usd=0.5,
    waiting_s=2.0,
    why="slow",
    rpm=60.0,
    limits_from="headers",
    last_error="one",
)
TWO = EngineStats(sent=3, hits=2, failures=Counter(length=2, parse=1), usd=0.25, waiting_s=9.0)


def test_counts_are_summed_and_the_longest_wait_is_shown() -> None:
    """Limits and the last error are those of whichever engine has any."""
    total = merged([ONE, TWO])
    assert (total.sent, total.answered, total.hits, total.failed) == (8, 4, 2, 1)
    assert total.failures == {"length": 3, "parse": 1}
    assert total.usd == 0.75
    assert (total.waiting_s, total.why) == (9.0, "")
    assert (total.rpm, total.limits_from, total.last_error) == (60.0, "headers", "one")
    assert ONE.failures == {"length": 1}, "left as it was"


def test_a_cost_that_one_does_not_know_is_not_known() -> None:
    """And no engine at all has cost nobody knows how much."""
    assert merged([ONE, EngineStats()]).usd is None
    assert merged([]) == EngineStats()


def test_down_is_where_all_are_down() -> None:
    """One that is answered is enough."""
    down = EngineStats(is_down=True)
    assert merged([down, down]).is_down
    assert not merged([down, ONE]).is_down


def test_they_survive_json() -> None:
    """Counters included."""
    again = EngineStats.from_json(json.loads(json.dumps(ONE.as_json())))
    assert again == ONE
    again.failures["parse"] += 1


def engine(sent: int, *servers: ServerStats) -> EngineStats:
    return EngineStats(sent=sent, failures=Counter(parse=sent), servers=list(servers))


def test_servers_are_summed_and_down_only_for_all() -> None:
    """One engine has lost sight of a server that the other one still reaches."""
    first = engine(
        5, ServerStats("http://a", 3, 3, 0, 0.0, ""), ServerStats("http://b", 2, 0, 1, 4.0, "gone")
    )
    second = engine(7, ServerStats("http://b", 7, 6, 1, 0.0, ""))
    total = merged([first, second])
    assert (total.sent, total.failures) == (12, Counter(parse=12))
    assert total.servers == [
        ServerStats("http://a", 3, 3, 0, 0.0, ""),
        ServerStats("http://b", 9, 6, 2, 0.0, ""),
    ]


def test_servers_survive_json() -> None:
    """Those of several; of an only one there are none."""
    stats = engine(3, ServerStats("http://a", 3, 2, 1, 0.5, "no answer"))
    assert EngineStats.from_json(json.loads(json.dumps(stats.as_json()))) == stats
