"""Progress of runs and maps on standard error: bars in a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from claimscore.console import duration, engine_parts, harmless

if TYPE_CHECKING:
    from claimscore.pipeline.map.job import MapProgress
    from claimscore.pipeline.progress import Progress

P = TypeVar("P", "Progress", "MapProgress")

#: Seconds between two plain lines where there is no terminal.
LINE_INTERVAL_S = 10.0


def counts_display(quiet: bool, what: str) -> Callable[[int, int], None]:
    """Something to call with how many of how many are done; `what` follows the numbers.

    The first line is printed, then one every few seconds.
    """
    last_time = -LINE_INTERVAL_S

    def tell(done: int, total: int) -> None:
        nonlocal last_time
        now = time.monotonic()
        if quiet or now - last_time < LINE_INTERVAL_S:
            return
        last_time = now
        print(f"claimscore: {done:,} of {total:,} {what}", file=sys.stderr, flush=True)

    return tell


class _Bar(NamedTuple):
    """One bar: its name, how much of how much is done (None: not known), and a note."""

    name: str
    total: float | None = None
    completed: float = 0
    note: str = ""


@contextmanager
def _display(
    quiet: bool, numbers: Callable[[P], str], bars: Callable[[P], Sequence[_Bar]]
) -> Iterator[Callable[[P], None] | None]:
    """Bars in a terminal, lines elsewhere, None when quiet; notices stand above bars."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bars(bars) as show:
            yield show
    else:
        yield _lines(numbers)


def _lines(numbers: Callable[[P], str]) -> Callable[[P], None]:
    last, last_time = ("", ""), 0.0

    def show(progress: P) -> None:
        nonlocal last, last_time
        now, seen = time.monotonic(), (progress.phase, progress.notice)
        if seen[1] != last[1]:
            print(f"claimscore: {harmless(progress.notice)}", file=sys.stderr, flush=True)
        if seen[0] != last[0] or now - last_time >= LINE_INTERVAL_S:
            text = f"claimscore: {progress.phase} {numbers(progress)}"
            print(text.rstrip(), file=sys.stderr, flush=True)
            last_time = now
        last = seen

    return show


@contextmanager
def _bars(bars_of: Callable[[P], Sequence[_Bar]]) -> Iterator[Callable[[P], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.table import Column

    console = Console(stderr=True)
    bar, count = BarColumn(min(40, console.width // 6)), TextColumn("{task.fields[count]}")
    columns = [TextColumn("{task.description:<14}"), bar, count]
    if console.width >= 80:  # the note alone is cut where there is no room for all
        note = TextColumn("{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True))
        columns += [TimeElapsedColumn(), note]
    with Bars(*columns, console=console, transient=True, expand=True) as bars:
        tasks = {"reading": bars.add_task("reading", total=None, count="", note="")}
        notice = ""

        def show(progress: P) -> None:
            nonlocal notice
            if progress.notice != notice:
                notice = progress.notice
                bars.console.print(harmless(notice), markup=False, highlight=False)
            shown = {bar.name: bar for bar in bars_of(progress)}
            for name, bar in shown.items():
                if name not in tasks:
                    tasks[name] = bars.add_task(name, total=bar.total, count="", note="")
                done, total = bar.completed, bar.total
                count = f"{done:,}/{total:,}" if total else ""
                bars.update(tasks[name], total=total, completed=done, count=count, note=bar.note)
            for name, task in tasks.items():
                bars.update(task, visible=name in shown)

        yield show


def progress_display(quiet: bool) -> AbstractContextManager[Callable[[Progress], None] | None]:
    """Something to call with the state of a run: bars, lines, or None when quiet."""
    return _display(quiet, _run_numbers, _run_bars)


def map_display(quiet: bool) -> AbstractContextManager[Callable[[MapProgress], None] | None]:
    """Something to call with the state of a map: a bar, lines, or None when quiet."""
    return _display(quiet, _map_numbers, _map_bars)


def _run_bars(progress: Progress) -> Sequence[_Bar]:
    if progress.phase != "running":
        return [_Bar(progress.phase)]
    records = progress.records_of
    left = f"{model_note(progress)} {_left(progress)}".strip()
    asked = records(progress.llm_chunks_todo), records(progress.llm_chunks_done)
    judged = records(progress.model_chunks_todo), records(progress.model_chunks)
    both = [
        _Bar("language model", *asked, llm_note(progress)),
        _Bar("NLI, encoders", *judged, left),
    ]
    return [bar for bar in both if bar.total]


def _run_numbers(progress: Progress) -> str:
    if progress.phase != "running":
        return ""
    parts = [
        _records(progress, "asked about", progress.llm_chunks_done, progress.llm_chunks_todo),
        llm_note(progress),
        _records(progress, "judged", progress.model_chunks, progress.model_chunks_todo),
        model_note(progress),
        _left(progress),
    ]
    return " | ".join(filter(None, parts))


def _records(progress: Progress, done: str, chunks: float, todo: int) -> str:
    """`128 of 5,000 records asked about`; empty where there is nothing to do."""
    if not todo:
        return ""
    return f"{progress.records_of(chunks):,} of {progress.records_of(todo):,} records {done}"


def _map_bars(progress: MapProgress) -> Sequence[_Bar]:
    note = f"{llm_note(progress)} {_left(progress)}".strip()
    name = progress.phase.partition(":")[0]
    return [_Bar(name, progress.rows_total or None, progress.rows_known, note)]


def _map_numbers(progress: MapProgress) -> str:
    if not progress.rows_total:
        return ""
    rows = f"{progress.rows_known:,} of {progress.rows_total:,} rows"
    return " | ".join(filter(None, [rows, llm_note(progress), _left(progress)]))


def llm_note(progress: Progress) -> str:
    """Requests, their rate, cache hits, tokens, dollars, retries, failures, what it waits for."""
    engine = progress.engine
    if engine is None:
        return ""
    parts = engine_parts(engine.as_json(), progress.request_pace.per_second())
    if progress.requests_expected:
        parts[0] = f"{engine.sent:,} of about {progress.requests_expected:,} requests"
    return ", ".join(parts)


def model_note(progress: Progress) -> str:
    """Text pairs judged so far, and how fast."""
    if not progress.model_chunks_todo:
        return ""
    done, pace = f"{progress.pairs_done:,} pairs", progress.pair_pace.per_second()
    if not pace and progress.llm_chunks_done < progress.llm_chunks_todo:
        return f"{done}, waiting for answers"
    return f"{done}, {pace:,.0f}/s"


def _left(progress: Progress) -> str:
    remaining = progress.remaining_s()
    return f"about {duration(remaining)} left" if remaining is not None else ""
