"""The numbers of several engines as those of one."""

from __future__ import annotations

import json
from collections import Counter

from claimscore.pipeline.llm.stats import EngineStats, ServerStats, merged


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


def test_numbers_survive_json() -> None:
    """They travel between processes."""
    stats = engine(3, ServerStats("http://a", 3, 2, 1, 0.5, "no answer"))
    assert EngineStats.from_json(json.loads(json.dumps(stats.as_json()))) == stats
    assert EngineStats.from_json(json.loads(json.dumps(engine(1).as_json()))) == engine(1)
