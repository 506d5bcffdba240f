"""What people see: numbers as they say them, tables that add up."""

import io
import re
import sys
from collections import Counter
from typing import Any

import pytest

from claimscore.console import duration, result, table
from claimscore.console.progress import llm_note, model_note, progress_display
from claimscore.console.result import print_result
from claimscore.console.table import print_rows
from claimscore.pipeline.llm.stats import EngineStats
from claimscore.pipeline.progress import Progress


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (7800, "2 h 10 min")]
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("stats", "said"),
    [
        ({"hits": 3}, "3 cached"),
        ({"sent": 1, "prompt_tokens": 1}, "1 request, 0.0/s, 0 cached, 1 token"),
        (
            {
                **{"failed": 2, "retries": Counter(timeout=1, rate_limit=3)},
                **{"prompt_tokens": 1500, "usd": 0.25},
            },
            "1,500 tokens, $0.2500, 4 tried again (3 rate limit, 1 timeout), 2 failed",
        ),
        ({"last_error": "connection refused"}, "last error: connection refused"),
        ({"why": "no answers: HTTP 503", "waiting_s": 61}, "waiting (1 min 1 s): no answers: HTTP"),
        ({"prompt_tokens": 10, "usd": None}, "cost unknown"),
        ({"prompt_tokens": 10, "usd": 12.5}, "$12.50"),
        ({"usd": 0.5, "answers_at_most": 1}, "at most $0.5000"),
        ({"usd": 2, "possibly_billed_usd": 0.1}, "$2.00, possibly $0.1000 for requests without"),
        ({"why": "2 batch jobs under way"}, ", 2 batch jobs under way"),
        (
            {"rpm": 500, "tpm": 200_000, "limits_from": "headers"},
            "limit 500 requests/min, 200,000 tokens/min (headers)",
        ),
    ],
)
def test_notes_say_what_matters_and_nothing_that_is_zero(stats: dict[str, Any], said: str) -> None:
    """Tokens, retries and failures appear when there are any; an unknown cost is never zero."""
    progress = Progress(engine=EngineStats(**{"sent": 10, **stats}))
    note = llm_note(progress)
    assert said in note
    assert ("failed" in note) is ("failed" in said)
    assert model_note(progress) == ""


def test_progress_is_in_records_and_requests_with_an_end_before_the_first_chunk() -> None:
    """The models have not begun."""
    progress = Progress(phase="running", records_total=100, chunk_records=64, requests_expected=400)
    progress.llm_chunks_todo = progress.model_chunks_todo = 2
    progress.engine = EngineStats()
    for second in range(66):
        progress.engine.sent = second if second < 50 else 50 + 5 * (second - 50)
        progress.request_pace.see(progress.engine.sent, float(second))
    (line,) = shown_lines(progress)
    assert "0 of 100 records asked about | 125 of about 400 requests, 1.9/s" in line
    assert "0 of 100 records judged | 0 pairs, waiting for answers" in line
    assert line.endswith("about 2 min 23 s left")
    progress.llm_chunks_done = progress.model_chunks_done = 1
    (line,) = shown_lines(progress)
    assert "64 of 100 records asked about" in line
    assert line.endswith("about 2 min 23 s left"), "the first chunk, all at once, tells no pace"


def test_bars_cut_a_note_before_a_count_and_have_none_of_an_unknown_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    progress = Progress(phase="running", records_total=5000, llm_chunks_todo=5000)
    progress.llm_chunks_done = 130
    progress.engine = EngineStats(sent=1300, prompt_tokens=10**9, usd=1234.5)
    with progress_display(quiet=False) as show:
        assert show is not None
        show(Progress(phase="counting"))
        show(progress)
    shown = re.sub(r"\x1b\[[?\d;]*\w", "", terminal.getvalue())
    assert "counting" in shown
    assert re.search(r"130/5,?000 0:00:00 1,300 requests", shown)
    assert "/?" not in shown


def shown_lines(progress: Progress) -> list[str]:
    """What is printed of this state where there is no terminal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", io.StringIO())
        with progress_display(quiet=False) as show:
            assert show is not None
            show(progress)
        return sys.stderr.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_record_without_scores_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    result.print_record({"id": "7", "scores": [], "failures": [], "claims": []})
    assert "none: the record is not scored" in capsys.readouterr().out


def test_a_notice_does_not_repeat_the_phase(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_display(quiet=False) as show:
        assert show is not None
        show(Progress(phase="reading"))
        show(Progress(phase="reading", notice="metrics: ds"))
        show(Progress(phase="scoring", notice="metrics: ds"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"claimscore: {said}" for said in ("reading", "metrics: ds", "scoring")]


def test_ctrl_c_ends_watching_and_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(_: float) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(result, "print_status", lambda state: None)
    monkeypatch.setattr("time.sleep", pressed)
    result.watch_status(lambda: {"running": True}, 2.0)
    result.watch_status(lambda: pressed(0.0), 2.0)  # also while the folder is read


NONE: dict[str, Any] = {"verdict": "no record has a value", "worst": []}
DS = {"verdict": "50 % of the words differ", "worst": [{"id": "a\nb", "value": 61.234}]}
METRICS = {
    "caspr": NONE | {"n": 0, "null": 2, "reasons": {"no claims in summary_b": 2}, "mean": None},
    "ds": DS | {"n": 2, "null": 0, "reasons": {}, "mean": 50.0, "low": 40.0, "high": 60.0},
}
ALIKE = {"verdict": "0.5; more. By itself nothing", "n": 0, "reasons": {}, "null": 0}
FEW = DS | {"n": 1, "null": 0, "reasons": {}, "mean": 75.0, "low": None, "high": None}
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


def server(address: str) -> dict[str, Any]:
    return {"address": address, "answered": 2, "down_s": 0.0}


@pytest.mark.parametrize(
    ("changed", "said", "not_said"),
    [
        pytest.param(
            {},
            [
                "caspr: 2 without a value: no claims in summary_b",
                "40.00 to 60.00",
                "ds     50 % of the words differ\n       look first at: a b 61.23",
                "report.html#record-a%0Ab",
                "records  2: 1 done, 1 with failures",
                "3 x decompose: parse, e.g. no JSON",
                "--retry-failed",
                "answers  5 requests, cost unknown, 1 from the cache",
                "scores   runs/x/scores.parquet",
            ],
            "in all calls",
            id="nulls with their reason",
        ),
        pytest.param(
            {"metrics": dict.fromkeys(("rouge-1", "rouge-2"), NONE | ALIKE | {"mean": None})},
            ["rouge-2  0.5; more\nnote     By itself nothing (rouge-1, rouge-2)\n"],
            "more. By",
            id="what several metrics share",
        ),
        pytest.param({"metrics": {"ds": FEW}}, ["75.00", "too few"], "75.00 to", id="few records"),
        pytest.param(
            {"spent": {"requests": 20, "usd": 0.5}},
            ["in all calls: 20 requests, $0.5000"],
            "nothing",
            id="spent in all calls, where it is more",
        ),
        pytest.param({"spent": {"requests": 5, "usd": 0.5}}, [], "in all calls", id="in this one"),
        pytest.param(
            {"last_call": {**CALL, "servers": [server("builtin"), server("http://gpu:8000/v1")]}},
            [],
            "servers",
            id="one server beside builtin",
        ),
        pytest.param(
            {"last_call": {**CALL, "servers": [server(f"http://gpu{i}/v1") for i in (1, 2)]}},
            ["servers gpu1 50 %, gpu2 50 %"],
            "nothing",
            id="two servers",
        ),
    ],
)
def test_the_result(changed: dict[str, Any], said: list[str], not_said: str, capsys: Any) -> None:
    print_result(summary_of(**changed), "runs/x")
    out = capsys.readouterr().out
    assert all(text in out for text in said)
    assert not_said not in out


ROWS = (
    ("task", "LLM tasks (sides)", "", "changes"),
    [("decompose", "1,234,567", "default", "one two three four five " * 4), ("facts", "5", "", "")],
)


@pytest.mark.parametrize("width", [20, 30, 48, 64, 80, 200])
def test_rows_fit_the_terminal(width: int, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "terminal_width", lambda: width)
    print_rows(*ROWS)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    words = out.split()
    assert words.count("five") == 4
    assert {"decompose", "1,234,567", "default", "facts", "task", "changes"} <= set(words)
    beside = any(line.startswith("decompose  1,234,567") for line in out.splitlines())
    assert beside == (width >= 64)


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
