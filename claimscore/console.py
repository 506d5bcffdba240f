"""What people see in a terminal: progress while a run works, and its result as a table.

Progress goes to standard error, as bars in a terminal and as plain lines otherwise;
results go to standard output.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from claimscore.pipeline.chunks import ChunkTodo
    from claimscore.pipeline.mapping import MapProgress
    from claimscore.pipeline.plan import Plan
    from claimscore.pipeline.progress import Progress
    from claimscore.training.evaluate_nli import NLITrainingResult
    from claimscore.training.ls_score import LSTrainingResult
    from claimscore.training.nli import Progress as TrainingProgress
    from claimscore.training.summac_conv import Progress as SummaCProgress
    from claimscore.training.summac_conv import SummaCTrainingResult

#: Seconds between two plain lines where there is no terminal.
LINE_INTERVAL_S = 10.0


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


def engine_parts(engine: Mapping[str, Any], per_s: float) -> list[str]:
    """What an engine has done, as the short texts that people read; what is zero is left out."""
    tokens = engine["prompt_tokens"] + engine["completion_tokens"]
    parts = [f"{engine['sent']:,} requests", f"{per_s:,.1f}/s"]
    parts += [f"{engine['in_flight']:,} in flight"] if engine["in_flight"] else []
    parts.append(f"{engine['hits']:,} cached")
    parts += [f"{tokens:,} tokens"] if tokens else []
    parts += [dollars(engine["usd"])] if engine["usd"] or (tokens and engine["usd"] is None) else []
    parts += [f"limit {limits_text(engine)}"] if engine["limits_from"] != "none" else []
    parts += [f"{counted(engine['retries'])} tried again"] if engine["retries"] else []
    parts += [f"{engine['failed']:,} failed"] if engine["failed"] else []
    if engine["why"]:
        parts.append(f"waiting ({duration(engine['waiting_s'])}): {engine['why'][:120]}")
    elif engine["last_error"]:
        parts.append(f"last error: {engine['last_error'][:120]}")
    return parts


def dollars(usd: float | None) -> str:
    """An amount as people read it; said so where it is not known."""
    if usd is None:
        return "cost unknown"
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"


def limits_text(engine: Mapping[str, Any]) -> str:
    """`500 requests/min, 200,000 tokens/min (headers)`."""
    told = [
        f"{engine[name]:{',.0f' if engine[name] >= 10 else '.2g'}} {unit}/min"
        for name, unit in (("rpm", "requests"), ("tpm", "tokens"))
        if engine[name] is not None
    ]
    return f"{', '.join(told) or 'adapting'} ({engine['limits_from']})"


def counted(counts: Mapping[str, int]) -> str:
    """`3 rate_limit, 1 timeout`, the most frequent first."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ranked)


def model_note(progress: Progress) -> str:
    """Text pairs judged so far, and how fast."""
    if not progress.model_chunks_todo:
        return ""
    rate = progress.pairs_done / max(progress.elapsed_s, 1e-9)
    return f"{progress.pairs_done:,} pairs, {rate:,.0f}/s"


def _left(progress: Progress) -> str:
    remaining = progress.remaining_s()
    return f"about {duration(remaining)} left" if remaining is not None else ""


def duration(seconds: float) -> str:
    """Seconds as people say them: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def from_store(call: Mapping[str, Any]) -> str:
    """How many pairs and texts no model had to compute again."""
    stored = (call.get("model_items") or {}).get("stored")
    return f" ({stored:,} pairs and texts from stored results)" if stored else ""


def print_result(summary: Mapping[str, Any], out: str) -> None:
    """The table of metrics, counts that add up, and where things are."""
    from rich.console import Console

    if summary["metrics"]:
        Console(highlight=False, soft_wrap=False).print(metrics_table(summary["metrics"]))
    for name, row in summary["metrics"].items():
        for why, count in row["reasons"].items():
            print(f"{name}: {count} x null: {why}")
    records = summary["records"]
    noun = "record" if records["total"] == 1 else "records"
    print(f"{records['total']} {noun}: {records['done']} done, {records['failed']} with failures")
    for failure in summary["failures"]:
        example = failure["example"].partition("\n")[0][:100]
        print(f"  {failure['count']} x {failure['stage']}: {failure['kind']}, e.g. {example}")
    for name, cut in summary.get("truncated", {}).items():
        many = "record" if cut["records"] == 1 else "records"
        print(
            f"{name}: the model read {cut['rows']:,} of its inputs, in {cut['records']:,} {many}, "
            "only up to its token limit (column truncated)"
        )
    if records["failed"]:
        print("the same command with --retry-failed tries them again")
    call = summary["last_call"]
    paid = f", {dollars(call['usd'])}" if call["requests"] and call["usd"] != 0 else ""
    print(
        f"{call['requests']:,} requests{paid}, {call['cache_hits']:,} from the cache, "
        f"{call['nli_pairs']:,} text pairs{from_store(call)} in {duration(call['seconds'])}"
    )
    made = f"scores: {out}/scores.parquet" if summary["metrics"] else f"tables: {out}"
    print(f"{made}   report: {out}/report.html")


def metrics_table(metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    """Mean, 95 % interval and counts of each metric."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric")
    for column in ("mean", "95 % interval", "n", "null"):
        table.add_column(column, justify="right")
    for name, row in metrics.items():
        if row["mean"] is None:
            table.add_row(name, "none", "", "0", str(row["null"]))
        else:
            interval = f"{row['low']:.2f} to {row['high']:.2f}"
            table.add_row(name, f"{row['mean']:.2f}", interval, str(row["n"]), str(row["null"]))
    return table


def print_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Plain columns, aligned, for people and for `cut`."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def print_plan(plan: Plan, todo: Sequence[ChunkTodo]) -> None:
    """What `score` is about to do, on standard error."""
    lines = [f"metrics: {', '.join(metric.name for metric in plan.metrics)}"]
    if not todo:
        lines.append("nothing is missing: no LLM and no model is asked")
    for name in {planned.task.name: None for item in todo for planned in item.tasks}:
        chunks = sum(any(p.task.name == name for p in item.tasks) for item in todo)
        lines.append(f"LLM task {name}: {chunks} chunks of records")
    for step in {planned.step: None for item in todo for planned in item.passes}:
        chunks = sum(any(p.step == step for p in item.passes) for item in todo)
        lines.append(f"model pass {step}: {chunks} chunks of records")
    print("\n".join(f"claimscore: {line}" for line in lines), file=sys.stderr)


def training_display(quiet: bool) -> Callable[[TrainingProgress], None]:
    """Plain lines about a training, one every few seconds."""
    last_time = 0.0

    def show(progress: TrainingProgress) -> None:
        nonlocal last_time
        now = time.monotonic()
        if quiet or now - last_time < LINE_INTERVAL_S:
            return
        last_time = now
        line = f"step {progress.step:,} of {progress.steps:,}, loss {progress.loss:.4f}"
        print(f"claimscore: {line}", file=sys.stderr, flush=True)

    return show


def stage_display(quiet: bool) -> Callable[[SummaCProgress], None]:
    """Plain lines about a training of several stages, one every few seconds."""
    last_time = 0.0

    def show(progress: SummaCProgress) -> None:
        nonlocal last_time
        now = time.monotonic()
        if quiet or now - last_time < LINE_INTERVAL_S:
            return
        last_time = now
        loss = "" if progress.loss is None else f", loss {progress.loss:.4f}"
        line = f"{progress.stage}: {progress.step:,} of {progress.steps:,}{loss}"
        print(f"claimscore: {line}", file=sys.stderr, flush=True)

    return show


def print_summac_training(result: SummaCTrainingResult, as_json: bool) -> None:
    """Where the weights are, and what they were made from."""
    if as_json:
        print(json.dumps({**dataclasses.asdict(result), "weights": str(result.weights)}))
        return
    held_out = "" if result.validation_loss is None else f", held out {result.validation_loss:.4f}"
    print(
        f"{result.examples:,} summaries, {result.consistent:,} consistent; "
        f"{result.validation_examples:,} held out; {result.without_image:,} without text to compare"
    )
    print(f"weights: {result.weights}   epoch {result.epoch}")
    print(f"cross-entropy: {result.train_loss:.4f}{held_out}")


def print_training(result: NLITrainingResult, as_json: bool) -> None:
    """Where the adapter is, and its accuracy on each dev set."""
    if as_json:
        print(json.dumps({**dataclasses.asdict(result), "adapter": str(result.adapter)}))
        return
    rows = [
        (dev.name, f"{dev.pairs:,}", f"{100 * dev.accuracy:.1f}", f"{100 * dev.ece:.1f}")
        for dev in result.dev
    ]
    print_rows(("set", "pairs", "accuracy", "calibration error"), rows)
    print(f"adapter: {result.adapter}   temperature: {result.temperature:.3f}")


def print_ls_training(result: LSTrainingResult, as_json: bool) -> None:
    """Where the checkpoint is, and how each epoch ranks the held-out records."""
    if as_json:
        epochs = [
            epoch._asdict() | {"kinds": [kind._asdict() for kind in epoch.kinds]}
            for epoch in result.epochs
        ]
        shown = {**dataclasses.asdict(result), "checkpoint": str(result.checkpoint)}
        print(json.dumps({**shown, "epochs": epochs}))
        return
    rows = [
        (
            str(epoch.epoch),
            "" if epoch.train_loss is None else f"{epoch.train_loss:.4f}",
            f"{epoch.validation_loss:.4f}",
            f"{100 * epoch.first_share:.1f}",
        )
        for epoch in result.epochs
    ]
    print_rows(("epoch", "loss", "held-out loss", "good summary first, %"), rows)
    shares = [
        (str(epoch.epoch), kind.kind, str(kind.negatives), *map(_percent, kind[2:]))
        for epoch in (result.epochs[number] for number in sorted({0, result.best_epoch}))
        for kind in epoch.kinds
    ]
    print_rows(("epoch", "held-out negatives", "n", "below, %", "by L", "by S"), shares)
    print(
        f"model: {result.checkpoint}   epoch {result.best_epoch} of {result.records:,} records, "
        f"{result.validation_records:,} held out, {result.skipped:,} could not be used"
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def print_status(state: Mapping[str, Any]) -> None:
    """What is done, failed and left of a run or of a map."""
    print(f"{state['out']}: {'complete' if state['complete'] else 'not complete'}")
    is_run = "records" in state
    print("\n".join(_run_lines(state) if is_run else _map_lines_of(state)))
    for failure in state["failures"]:
        print(f"failed: {failure['count']} x {failure['stage']}: {failure['kind']}")
    if "spent" in state:
        print("\n".join(_spending_lines(state, "run" if is_run else "map")))


def _run_lines(state: Mapping[str, Any]) -> list[str]:
    if state["records"] is None:
        return ["its records are not read yet"]
    chunks = state["chunks"]
    lines = [f"{state['records']:,} records in {chunks['total']:,} chunks: {chunks['done']:,} done"]
    if chunks["left"]:
        lines.append(
            f"left: {state['llm_chunks_left']:,} chunks for the language model, "
            f"{state['model_chunks_left']:,} for the encoders"
        )
    rows = (f"{n:,} {name}" for name, n in sorted(state["rows"].items()))
    return [*lines, "rows: " + ", ".join(rows)]


def _map_lines_of(state: Mapping[str, Any]) -> list[str]:
    rows = state["rows"]
    if rows is None:
        return ["its rows are not read yet"]
    done = f"{rows['done']:,} of {rows['total']:,} rows done, {rows['failed']:,} of them failed"
    return [done, f"left: {rows['left']:,}"] if rows["left"] else [done]


def _spending_lines(state: Mapping[str, Any], command: str) -> list[str]:
    """What was spent in all, and what the call that is at work, or was the last, does."""
    spent, note = state["spent"], state["last_call"]
    tokens = spent["prompt_tokens"] + spent["completion_tokens"]
    cost = f", {dollars(spent['usd'])}" if spent["requests"] and spent["usd"] != 0 else ""
    lines = [f"spent in all: {spent['requests']:,} requests, {tokens:,} tokens{cost}"]
    if state["running"] and not note:
        lines.append("at work")
    elif state["running"]:
        left = note["remaining_s"]
        lines.append(f"at work for {duration(note['elapsed_s'])}: {note['phase']}")
        lines.append("  " + ", ".join(engine_parts(note["engine"], note["requests_per_s"])))
        lines += [f"  {note['text_pairs']:,} text pairs"] if command == "run" else []
        lines.append(
            f"  about {duration(left)} left" if left is not None else "  time left unknown"
        )
        lines += [f"  {note['notice']}"] if note["notice"] else []
    elif not state["complete"]:
        lines.append(f"not running; the same `claimscore {command}` goes on")
    return lines


def watch_status(read: Callable[[], Mapping[str, Any]], interval_s: float) -> Mapping[str, Any]:
    """Print the status again and again, in place in a terminal, until the run is not at work."""
    while True:
        state = read()
        if sys.stdout.isatty():
            print("\x1b[2J\x1b[H", end="")
        print_status(state)
        if not state["running"]:
            return state
        sys.stdout.flush()
        time.sleep(interval_s)


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


def print_map_result(summary: Mapping[str, Any]) -> None:
    """Rows answered and failed, what was spent, and where things are."""
    if summary["was_finished"]:
        print("finished before with these settings: nothing was done")
    n_failed = sum(summary["failed"].values())
    print(f"{summary['rows']:,} rows: {summary['answered']:,} answered, {n_failed:,} failed")
    if n_failed:
        print(f"failed: {counted(summary['failed'])}; see {summary['failures']}")
        for kind, message in summary["failure_examples"].items():
            print(f"  {kind}, e.g. {message[:200]}")
        if set(summary["failed"]) - {"null_input"}:
            print("the same command with --retry-failed tries them again")
    if not summary["was_finished"]:
        paid = f", {dollars(summary['usd'])}" if summary["requests"] and summary["usd"] != 0 else ""
        print(
            f"{summary['requests']:,} requests{paid}, {summary['cache_hits']:,} from the cache, "
            f"in {duration(summary['seconds'])}"
        )
        in_all = summary["spent_in_all"]
        if in_all and in_all["requests"] > summary["requests"]:
            cost = f", {dollars(in_all['usd'])}" if in_all["usd"] != 0 else ""
            print(f"in all calls: {in_all['requests']:,} requests{cost}")
    print(f"rows: {summary['out']}")


def print_estimate(found: Mapping[str, Any]) -> None:
    """Who needs what; what a run would ask, task by task; what it would cost; what was assumed."""
    _print_needs(found.get("metrics", ()))
    _print_passes(found.get("passes", ()))
    header = ("task", "questions", "answered", "requests", "prompt tokens", "answer tokens", "cost")
    parts = [*found["tasks"], {"task": "total", **found["total"]}]
    print_rows(header, [_estimate_row(part) for part in parts])
    total = found["total"]
    if total["given_up"]:
        print(f"{total['given_up']:,} given up; --retry-failed would ask them again")
    if not total["requests"]:
        print("nothing is missing: a run would send no request")
        return
    print(_cost_line(total, found["price"]))
    hours = found["hours"]
    time = "not known" if hours is None else f"about {duration(hours * 3600)}"
    print(f"time: {time} (for the language model; the encoders' time is not in it)")
    for assumption in found["assumptions"]:
        print(f"assumed: {assumption}")


def _print_needs(metrics: Sequence[Mapping[str, Any]]) -> None:
    """Each metric with its tasks and its model passes; shared ones are done once."""
    if not metrics:
        return
    rows = []
    for needs in metrics:
        tasks = [f"{need['task']} ({', '.join(need['sides'])})" for need in needs["tasks"]]
        rows.append([needs["metric"], "; ".join(tasks) or "-", "; ".join(needs["passes"]) or "-"])
    print_rows(("metric", "LLM tasks (sides)", "model passes"), rows)
    print()


def _print_passes(passes: Sequence[Mapping[str, Any]]) -> None:
    if not passes:
        return
    rows = []
    for one in passes:
        option = f"--{one['role'].replace('_', '-')}"
        model = f"{option} {one['model']}" if one["model"] else f"{option} is missing"
        items = one["items"]
        known = "known after the tasks" if items is None else f"{items:,} {one['unit']}"
        rows.append([one["step"], model, known])
    print_rows(("model pass", "model", "items to judge"), rows)
    print()


def _estimate_row(part: Mapping[str, Any]) -> list[str]:
    counts = ("questions", "answered", "requests", "prompt_tokens", "completion_tokens")
    cost = "unknown" if part["usd"] is None else dollars(part["usd"])
    return [part["task"], *(f"{part[name]:,}" for name in counts), cost]


def _cost_line(total: Mapping[str, Any], price: Mapping[str, Any] | None) -> str:
    if price is None:
        return "cost: unknown (name --input-price and --output-price)"
    if not total["usd_at_most"]:
        return f"cost: nothing ({price['source']})"
    low, high = (dollars(usd) for usd in total["usd_range"])
    return (
        f"cost: about {dollars(total['usd'])}, between {low} and {high} "
        f"(${price['input_per_mtok']:g} and ${price['output_per_mtok']:g} a million tokens, "
        f"{price['source']})"
    )
