"""What people see: numbers as they say them, tables that add up."""

from __future__ import annotations

from typing import Any

import pytest

from claimscore.console import duration, llm_note, model_note, print_result, print_rows
from claimscore.pipeline.llm.engine import EngineStats
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
    progress.engine = EngineStats(sent=10, failed=2, retries=1, prompt_tokens=1500)
    assert "1,500 tokens, 1 retries, 2 failed" in llm_note(progress)
    assert model_note(progress) == ""
    progress.engine.last_error = "connection refused"
    assert "last error: connection refused" in llm_note(progress)


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
        "last_call": {"requests": 5, "cache_hits": 1, "nli_pairs": 0, "seconds": 61},
    }
    print_result(summary, "runs/x")
    out = capsys.readouterr().out
    assert "no claims in summary_b" in out
    assert "40.00 to 60.00" in out
    assert "2 records: 1 done, 1 with failures" in out
    assert "3 x decompose: parse, e.g. no JSON" in out
    assert "--retry-failed" in out


def test_rows_are_aligned(capsys: Any) -> None:
    """Columns for people and for `cut`."""
    print_rows(("a", "b"), [("long cell", "x")])
    assert capsys.readouterr().out == "a          b\nlong cell  x\n"
