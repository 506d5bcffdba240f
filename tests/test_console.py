"""What people see: numbers as they say them, tables that add up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from claimscore.console import duration, llm_note, model_note, print_result, print_rows
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.progress import Progress


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(0.2, "0 s", id="moment"),
        pytest.param(59.4, "59 s", id="seconds"),
        pytest.param(61, "1 min 1 s", id="minutes"),
        pytest.param(7800, "2 h 10 min", id="hours"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    """Two units at most."""
    assert duration(seconds) == text


def test_notes_say_what_matters_and_nothing_that_is_zero() -> None:
    """Tokens, retries and failures appear when there are any."""
    progress = Progress(engine=EngineStats(sent=10, hits=3))
    assert "3 cached" in llm_note(progress)
    assert "failed" not in llm_note(progress)
    retries = Counter(timeout=1, rate_limit=3)
    progress.engine = EngineStats(sent=10, failed=2, retries=retries, prompt_tokens=1500, usd=0.25)
    expected = "1,500 tokens, $0.2500, 3 rate_limit, 1 timeout tried again, 2 failed"
    assert expected in llm_note(progress)
    assert model_note(progress) == ""
    progress.engine.last_error = "connection refused"
    assert "last error: connection refused" in llm_note(progress)
    progress.engine.why, progress.engine.waiting_s = "no answers: HTTP 503", 61
    assert "waiting (1 min 1 s): no answers: HTTP 503" in llm_note(progress)


def test_an_unknown_cost_is_said_to_be_unknown() -> None:
    """Never zero dollars for a model without a price."""
    progress = Progress(engine=EngineStats(sent=1, prompt_tokens=10))
    assert "cost unknown" in llm_note(progress)
    progress.engine = EngineStats(sent=1, prompt_tokens=10, usd=12.5)
    assert "$12.50" in llm_note(progress)


def test_limits_are_shown_with_where_they_are_known_from() -> None:
    """What is kept, and whether the user, the server or trying said so."""
    stats = EngineStats(rpm=500, tpm=200_000, limits_from="headers")
    assert "limit 500 requests/min, 200,000 tokens/min (headers)" in llm_note(
        Progress(engine=stats)
    )


def test_the_result_shows_nulls_with_their_reason(capsys: Any) -> None:
    """A metric without a single value shows why, not a number."""
    metrics = {
        "caspr": {"n": 0, "null": 2, "reasons": {"no claims in summary_b": 2}, "mean": None},
        "ds": {"n": 2, "null": 0, "reasons": {}, "mean": 50.0, "low": 40.0, "high": 60.0},
    }
    summary = {
        "records": {"total": 2, "done": 1, "failed": 1},
        "metrics": metrics,
        "failures": [{"stage": "decompose", "kind": "parse", "count": 3, "example": "no JSON"}],
        "last_call": {
            "requests": 5,
            "cache_hits": 1,
            "nli_pairs": 0,
            "seconds": 61,
            "usd": None,
        },
    }
    print_result(summary, "runs/x")
    out = capsys.readouterr().out
    assert "no claims in summary_b" in out
    assert "40.00 to 60.00" in out
    assert "2 records: 1 done, 1 with failures" in out
    assert "3 x decompose: parse, e.g. no JSON" in out
    assert "--retry-failed" in out
    assert "5 requests, cost unknown, 1 from the cache" in out


def test_rows_are_aligned(capsys: Any) -> None:
    """Columns for people and for `cut`."""
    print_rows(("a", "b"), [("long cell", "x")])
    assert capsys.readouterr().out == "a          b\nlong cell  x\n"
