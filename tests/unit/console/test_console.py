"""What people see: numbers as they say them, tables that add up."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from claimscore.cli import main
from claimscore.console import table
from claimscore.console.amounts import duration
from claimscore.console.estimate import preflight_lines
from claimscore.console.progress import collecting_less, llm_note, model_note
from claimscore.console.result import print_result
from claimscore.console.table import print_rows
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.progress import Progress


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (7800, "2 h 10 min")]
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    """Two units at most."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("stats", "said"),
    [
        ({"hits": 3}, "3 cached"),
        (
            {
                **{"failed": 2, "retries": Counter(timeout=1, rate_limit=3)},
                **{"prompt_tokens": 1500, "usd": 0.25},
            },
            "1,500 tokens, $0.2500, 3 rate_limit, 1 timeout tried again, 2 failed",
        ),
        ({"last_error": "connection refused"}, "last error: connection refused"),
        ({"why": "no answers: HTTP 503", "waiting_s": 61}, "waiting (1 min 1 s): no answers: HTTP"),
        ({"prompt_tokens": 10}, "cost unknown"),
        ({"prompt_tokens": 10, "usd": 12.5}, "$12.50"),
        (
            {"rpm": 500, "tpm": 200_000, "limits_from": "headers"},
            "limit 500 requests/min, 200,000 tokens/min (headers)",
        ),
    ],
)
def test_notes_say_what_matters_and_nothing_that_is_zero(stats: dict[str, Any], said: str) -> None:
    """Tokens, retries and failures appear when there are any; an unknown cost is never zero."""
    progress = Progress(engine=EngineStats(sent=10, **stats))
    note = llm_note(progress)
    assert said in note
    assert ("failed" in note) is ("failed" in said)
    assert model_note(progress) == ""


METRICS = {
    "caspr": {"n": 0, "null": 2, "reasons": {"no claims in summary_b": 2}, "mean": None},
    "ds": {"n": 2, "null": 0, "reasons": {}, "mean": 50.0, "low": 40.0, "high": 60.0},
}
CALL = {"requests": 5, "cache_hits": 1, "nli_pairs": 0, "seconds": 61, "usd": None}


def summary_of(**changed: Any) -> dict[str, Any]:
    """A summary as a run writes it, two records, one of them failed."""
    return {
        "records": {"total": 2, "done": 1, "failed": 1},
        "metrics": METRICS,
        "failures": [{"stage": "decompose", "kind": "parse", "count": 3, "example": "no JSON"}],
        "last_call": CALL,
        **changed,
    }


def test_the_result_shows_nulls_with_their_reason(capsys: Any) -> None:
    """A metric without a single value shows why, not a number."""
    print_result(summary_of(), "runs/x")
    out = capsys.readouterr().out
    assert "caspr  2 without a value: no claims in summary_b" in out
    assert "40.00 to 60.00" in out
    assert "records  2: 1 done, 1 with failures" in out
    assert "3 x decompose: parse, e.g. no JSON" in out
    assert "--retry-failed" in out
    assert "answers  5 requests, cost unknown, 1 from the cache" in out
    assert "scores   runs/x/scores.parquet" in out


@pytest.mark.parametrize("width", [None, 30])
def test_a_mean_of_few_records_stands_without_an_interval(
    width: int | None, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "terminal_width", lambda: width)
    one = {"n": 1, "null": 0, "reasons": {}, "mean": 75.0, "low": None, "high": None}
    print_result(summary_of(metrics={"ds": one}), "runs/x")
    out = capsys.readouterr().out
    assert ("75.00" in out, "75.00 to" in out, "too few" in out) == (True, False, True)


@pytest.mark.parametrize(("requests", "is_said"), [(20, True), (5, False)])
def test_what_all_calls_spent_is_said_where_it_is_more(
    requests: int, is_said: bool, capsys: Any
) -> None:
    """A run that was gone on with cost more than its last call."""
    print_result(summary_of(spent={"requests": requests, "usd": 0.5}), "runs/x")
    assert ("in all calls: 20 requests, $0.5000" in capsys.readouterr().out) is is_said


def test_a_run_without_metrics_names_its_tables(capsys: Any) -> None:
    """Nothing is said of scores, answers or models that there are none of."""
    call = CALL | {"requests": 0, "cache_hits": 0}
    print_result(
        summary_of(
            metrics={}, failures=[], last_call=call, records={"total": 1, "done": 1, "failed": 0}
        ),
        "x",
    )
    assert capsys.readouterr().out.splitlines() == [
        "records  1: 1 done, 0 with failures",
        "time     1 min 1 s",
        "tables   x",
        "report   x/report.html",
    ]


@pytest.mark.parametrize("width", [25, 40, 60, 100])
def test_nothing_is_wider_than_the_terminal(
    width: int, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables become two columns where they do not fit, texts are broken at spaces."""
    monkeypatch.setattr(table, "terminal_width", lambda: width)
    print_result(summary_of(), "runs/x")
    lines = capsys.readouterr().out.splitlines()
    longest_word = max(len(word) for line in lines for word in line.split()) + len("records  ")
    assert max(map(len, lines)) <= max(width, longest_word)
    assert "40.00 to 60.00" in " ".join(lines)


ROWS = (
    ("task", "LLM tasks (sides)", "", "changes"),
    [
        ("decompose", "1,234,567", "default", "one two three four five " * 4),
        ("facts", "5", "", ""),
    ],
)


@pytest.mark.parametrize("width", [20, 30, 48, 64, 80, 200])
def test_rows_fit_into_the_terminal(
    width: int, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last column is broken, or each row is written by itself; nothing is lost."""
    monkeypatch.setattr(table, "terminal_width", lambda: width)
    print_rows(*ROWS)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    words = out.split()
    assert words.count("five") == 4
    assert {"decompose", "1,234,567", "default", "facts", "task", "changes"} <= set(words)
    beside = any(line.startswith("decompose  1,234,567") for line in out.splitlines())
    assert beside == (width >= 64)


def test_an_estimate_fits_into_the_terminal(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and sentences, down to thirty columns."""
    monkeypatch.setattr(table, "terminal_width", lambda: 30)
    record = Path(__file__).parents[3] / "examples" / "hotels.jsonl"
    prices = ("--input-price", "1", "--output-price", "2", "--rpm", "10")
    call = ("estimate", str(record), "--llm", "openai:m", "--base-url", "http://localhost:1/v1")
    assert main([*call, *prices]) == 0
    assert main(["prompts", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    too_long = [line for line in lines if len(line) > 30]
    assert all(" " not in line.strip() for line in too_long), too_long


def test_a_file_is_never_folded(capsys: Any) -> None:
    """No width is taken from a terminal that the output does not go to; columns are aligned, for
    people and for `cut`."""
    example = "long words " * 40
    failure = {"stage": "decompose", "kind": "parse", "count": 3, "example": example}
    print_result(summary_of(failures=[failure]), "runs/" + "x" * 300)
    out = capsys.readouterr().out
    assert f"3 x decompose: parse, e.g. {example[:100].rstrip()}\n" in out
    assert "x" * 300 + "/report.html" in out
    assert "\x1b" not in out
    print_rows(("a", "b"), [("long cell", "x")])
    assert capsys.readouterr().out == "a          b\nlong cell  x\n"


@pytest.mark.parametrize(
    ("notes", "requests", "said"),
    [
        pytest.param([], 7, ["1 of 8 questions", "7 requests to send", "new: 7 r"], id="all"),
        pytest.param([], 0, ["1 of 8 questions", "nothing new"], id="nothing"),
        pytest.param(
            ["decompose: counted on 5 of 9 records"],
            7,
            ["about 1 of 8 questions", "about 7 requests to send", "new: about 7 requests"],
            id="sampled",
        ),
        pytest.param(
            ["decompose: counted on 5 of 9 records"], 0, ["new: about 0 requests"], id="none-seen"
        ),
    ],
)
def test_what_was_counted_on_a_sample_is_said_to_be_about_so_much(
    notes: list[str], requests: int, said: list[str]
) -> None:
    """A run of a million records is not gone through before it begins."""
    counts = {"answered": 1, "questions": 8, "given_up": 0, "requests": requests}
    task = {"task": "decompose", **counts, "prompt_tokens": 3, "completion_tokens": 4}
    total = {"requests": requests, "usd": None}
    found = {
        "tasks": [task], "total": total, "price": None, "assumptions": notes, "passes": []
    }  # fmt: skip
    lines = "\n".join(preflight_lines({"decompose": "v2 @x"}, found))
    assert all(part in lines for part in said)
    assert ("about 1 of" in lines) is bool(notes)


def test_a_command_collects_less_garbage_while_it_works() -> None:
    """What is loaded when the work begins is not looked through again; afterwards it is as it
    was. An engine of one's own leaves the process alone."""
    heard: list[str] = []
    before = gc.get_freeze_count()
    with collecting_less(lambda progress: heard.append(progress.phase)) as tell:
        for phase in ("reading", "running", "running"):
            tell(Progress(phase=phase))
            assert (gc.get_freeze_count() > before) == (phase == "running")
    assert gc.get_freeze_count() == 0
    assert heard == ["reading", "running", "running"]
