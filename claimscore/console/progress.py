"""Progress of runs and maps on standard error: bars in a terminal, plain lines otherwise."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from claimscore.console.amounts import duration, engine_parts

if TYPE_CHECKING:
    from claimscore.pipeline.map import MapProgress
    from claimscore.pipeline.progress import Progress

P = TypeVar("P", "Progress", "MapProgress")

#: Seconds between two plain lines where there is no terminal.
LINE_INTERVAL_S = 10.0


@contextmanager
def collecting_less(show: Callable[[P], None] | None) -> Iterator[Callable[[P], None]]:
    """A listener that calls `show`, and leaves what is loaded once the work runs out of garbage
    collections.

    Modules and models are some 400,000 objects. To look through them again for the many answers
    to come takes a fifth of the time of a run whose answers are all cached. It concerns the whole
    process, so it is for commands, which have one to themselves.
    """
    is_frozen = False

    def tell(progress: P) -> None:
        nonlocal is_frozen
        if progress.phase == "running" and not is_frozen:
            gc.freeze()
            is_frozen = True
        if show is not None:
            show(progress)

    try:
        yield tell
    finally:
        if is_frozen:
            gc.unfreeze()


def plain_lines(quiet: bool) -> Callable[[str], None]:
    """Something to tell how far it is: the first line is printed, then one every few seconds."""
    last_time = -LINE_INTERVAL_S

    def tell(text: str) -> None:
        nonlocal last_time
        now = time.monotonic()
        if quiet or now - last_time < LINE_INTERVAL_S:
            return
        last_time = now
        print(f"claimscore: {text}", file=sys.stderr, flush=True)

    return tell


def counts_display(quiet: bool, what: str) -> Callable[[int, int], None]:
    """Something to call with how many of how many are done; `what` follows the numbers."""
    tell = plain_lines(quiet)
    return lambda done, total: tell(f"{done:,} of {total:,} {what}")


@contextmanager
def progress_display(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Something to call with the state of a run: bars, lines, or None when quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bars() as show:
            yield show
    else:
        yield _lines()


def _lines() -> Callable[[Progress], None]:
    last_phase, last_time, last_notice = "", 0.0, ""

    def show(progress: Progress) -> None:
        nonlocal last_phase, last_time, last_notice
        now = time.monotonic()
        known = (progress.phase, progress.notice) == (last_phase, last_notice)
        if known and now - last_time < LINE_INTERVAL_S:
            return
        last_phase, last_time = progress.phase, now
        text = _numbers(progress) if progress.phase == "running" else ""
        print(f"claimscore: {progress.phase} {text}".rstrip(), file=sys.stderr, flush=True)
        if progress.notice != last_notice:
            last_notice = progress.notice
            print(f"claimscore: {progress.notice}", file=sys.stderr, flush=True)

    return show


@contextmanager
def _bars() -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = [TextColumn("{task.description:<14}"), BarColumn(), MofNCompleteColumn()]
    if console.width >= 80:
        columns += [TimeElapsedColumn(), TextColumn("{task.fields[note]}")]
    with Bars(*columns, console=console, transient=True) as bars:
        llm = bars.add_task("language model", note="", visible=False)
        models = bars.add_task("NLI, encoders", note="", visible=False)
        phase = bars.add_task("reading", total=None, note="")
        notice = ""

        def show(progress: Progress) -> None:
            nonlocal notice
            if progress.notice != notice:
                notice = progress.notice
                bars.console.print(notice, markup=False, highlight=False)
            running = progress.phase == "running"
            bars.update(phase, description=progress.phase, visible=not running)
            bars.update(
                llm,
                total=progress.llm_chunks_todo,
                completed=progress.llm_chunks_done,
                visible=running and progress.llm_chunks_todo > 0,
                note=llm_note(progress),
            )
            bars.update(
                models,
                total=progress.model_chunks_todo,
                completed=progress.model_chunks_done + progress.model_chunk_share,
                visible=running and progress.model_chunks_todo > 0,
                note=f"{model_note(progress)} {_left(progress)}".strip(),
            )

        yield show


def _numbers(progress: Progress) -> str:
    parts = [
        f"LLM chunks {progress.llm_chunks_done}/{progress.llm_chunks_todo}",
        llm_note(progress),
        f"model chunks {progress.model_chunks_done}/{progress.model_chunks_todo}",
        model_note(progress),
        _left(progress),
    ]
    return " | ".join(part for part in parts if part)


def llm_note(progress: Progress) -> str:
    """Requests, their rate, cache hits, tokens, dollars, retries, failures, what it waits for."""
    engine = progress.engine
    if engine is None:
        return ""
    return ", ".join(engine_parts(engine.as_json(), progress.request_pace.per_second()))


def model_note(progress: Progress) -> str:
    """Text pairs judged so far, and how fast."""
    if not progress.model_chunks_todo:
        return ""
    rate = progress.pairs_done / max(progress.elapsed_s, 1e-9)
    return f"{progress.pairs_done:,} pairs, {rate:,.0f}/s"


def _left(progress: Progress) -> str:
    remaining = progress.remaining_s()
    return f"about {duration(remaining)} left" if remaining is not None else ""


@contextmanager
def map_display(quiet: bool) -> Iterator[Callable[[MapProgress], None] | None]:
    """Something to call with the state of a map: a bar, lines, or None when quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _map_bar() as show:
            yield show
    else:
        yield _map_lines()


def _map_lines() -> Callable[[MapProgress], None]:
    last, last_time = ("", ""), 0.0

    def show(progress: MapProgress) -> None:
        nonlocal last, last_time
        now = time.monotonic()
        seen = (progress.phase, progress.notice)
        if seen == last and now - last_time < LINE_INTERVAL_S:
            return
        rows = f"{progress.rows_done:,} of {progress.rows_total:,} rows"
        parts = [rows, llm_note(progress), _left(progress)] if progress.rows_total else []
        text = " | ".join(part for part in parts if part)
        print(f"claimscore: {progress.phase} {text}".rstrip(), file=sys.stderr, flush=True)
        if progress.notice != last[1]:
            print(f"claimscore: {progress.notice}", file=sys.stderr, flush=True)
        last, last_time = seen, now

    return show


@contextmanager
def _map_bar() -> Iterator[Callable[[MapProgress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = [TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn()]
    if console.width >= 80:
        columns += [TimeElapsedColumn(), TextColumn("{task.fields[note]}")]
    with Bars(*columns, console=console, transient=True) as bars:
        rows = bars.add_task("reading", total=None, note="")
        notice = ""

        def show(progress: MapProgress) -> None:
            nonlocal notice
            if progress.notice != notice:
                notice = progress.notice
                bars.console.print(notice, markup=False, highlight=False)
            bars.update(
                rows,
                description=progress.phase.partition(":")[0],
                total=progress.rows_total or None,
                completed=progress.rows_done,
                note=f"{llm_note(progress)} {_left(progress)}".strip(),
            )

        yield show
