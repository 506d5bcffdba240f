"""How a run or a map ended, on standard output: counts that add up, cost, where things are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from claimscore.console.text import (
    counted,
    dollars,
    duration,
    print_facts,
    servers_text,
    terminal_width,
)

if TYPE_CHECKING:
    from rich.table import Table

#: What a table may fill where the output is a file: nothing is broken there.
FILE_WIDTH = 1_000

Facts = Iterator[tuple[str, str]]


def print_result(summary: Mapping[str, Any], out: str) -> None:
    """The metrics with their intervals, then what was done, spent and made, and what to do next."""
    if summary["metrics"]:
        print_metrics(summary["metrics"])
    print_facts(
        [
            *_records(summary["records"], summary["failures"]),
            *_answers(summary["last_call"], summary.get("spent")),
            *_models(summary["last_call"], summary.get("truncated", {})),
            ("time", duration(summary["last_call"]["seconds"])),
            *_places(summary, out),
            *_next_steps(summary, out),
        ]
    )


def print_metrics(metrics: Mapping[str, Mapping[str, Any]]) -> None:
    """The table of metrics; two lines each where the terminal is too narrow for it."""
    from rich.console import Console

    width = terminal_width()
    width = FILE_WIDTH if width is None else width
    console = Console(highlight=False, width=width)
    table = metrics_table(metrics)
    unbound = console.options.update(max_width=FILE_WIDTH)
    if console.measure(table, options=unbound).maximum <= width:  # a dumb one's is 80 to rich
        console.print(table)
    else:
        print_facts([fact for name, row in metrics.items() for fact in _narrow(name, row)])
        print()
    reasons = [
        (name, f"{count:,} without a value: {why}")
        for name, row in metrics.items()
        for why, count in row["reasons"].items()
    ]
    if reasons:
        print_facts(reasons)
        print()


def metrics_table(metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    """Mean, 95 % interval and counts of each metric; `n` and `null` are all records."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric", no_wrap=True)
    for column in ("mean", "95 % interval", "n", "null"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, row in metrics.items():
        table.add_row(name, _mean(row), _interval(row), f"{row['n']:,}", f"{row['null']:,}")
    return table


def _narrow(name: str, row: Mapping[str, Any]) -> Facts:
    yield name, _mean(row)
    if row["mean"] is not None:
        yield "", _interval(row)
    yield "", f"n {row['n']:,}, null {row['null']:,}"


def _mean(row: Mapping[str, Any]) -> str:
    return "none" if row["mean"] is None else f"{row['mean']:.2f}"


def _interval(row: Mapping[str, Any]) -> str:
    """Bounds of the mean; a mean of too few values has none."""
    if row["mean"] is None:
        return ""
    return "too few" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"


def _records(records: Mapping[str, int], failures: list[Mapping[str, Any]]) -> Facts:
    yield (
        "records",
        f"{records['total']:,}: {records['done']:,} done, {records['failed']:,} with failures",
    )
    for failure in failures:
        example = failure["example"].partition("\n")[0][:100]
        yield "", f"{failure['count']:,} x {failure['stage']}: {failure['kind']}, e.g. {example}"


def _answers(call: Mapping[str, Any], in_all: Mapping[str, Any] | None) -> Facts:
    """The language model's requests of this call, and of all calls where that is more."""
    if not (call["requests"] or call["cache_hits"]):
        return
    yield (
        "answers",
        f"{call['requests']:,} requests{_paid(call)}, {call['cache_hits']:,} from the cache",
    )
    if shares := servers_text(call.get("servers", ())):
        yield "", shares
    if in_all and in_all["requests"] > call["requests"]:
        yield "", f"in all calls: {in_all['requests']:,} requests{_paid(in_all)}"


def _models(call: Mapping[str, Any], truncated: Mapping[str, Mapping[str, int]]) -> Facts:
    if call["nli_pairs"]:
        stored = (call.get("model_items") or {}).get("stored")
        taken = f", {stored:,} of the different ones from stored results" if stored else ""
        yield "models", f"{call['nli_pairs']:,} pairs and texts{taken}"
    for name, cut in truncated.items():
        many = "record" if cut["records"] == 1 else "records"
        yield (
            "cut",
            f"{name}: the model read {cut['rows']:,} of its inputs, in {cut['records']:,} {many}, "
            "only up to its token limit (column truncated)",
        )


def _paid(spent: Mapping[str, Any]) -> str:
    return f", {dollars(spent['usd'])}" if spent["requests"] and spent["usd"] != 0 else ""


def _places(summary: Mapping[str, Any], out: str) -> Facts:
    if summary["metrics"]:
        yield "scores", f"{out}/scores.parquet"
    else:
        yield "tables", out
    yield "report", f"{out}/report.html"


def _next_steps(summary: Mapping[str, Any], out: str) -> Facts:
    steps = []
    if summary["records"]["failed"]:
        steps.append("the same command with --retry-failed tries the failed records again")
    if summary["metrics"]:
        steps.append(f"open the report in a browser, or: claimscore compare {out} OTHER_RUN")
    for number, step in enumerate(steps):
        yield ("" if number else "next"), step


def print_map_result(summary: Mapping[str, Any]) -> None:
    """Rows answered and failed, what was spent, and where things are."""
    if summary["was_finished"]:
        print("finished before with these settings: nothing was done")
    print_facts([*_rows_of_map(summary), *_spent_on_map(summary), ("table", summary["out"])])


def _rows_of_map(summary: Mapping[str, Any]) -> Facts:
    n_failed = sum(summary["failed"].values())
    yield "rows", f"{summary['rows']:,}: {summary['answered']:,} answered, {n_failed:,} failed"
    if not n_failed:
        return
    yield "", f"failed: {counted(summary['failed'])}; see {summary['failures']}"
    for kind, message in summary["failure_examples"].items():
        yield "", f"{kind}, e.g. {message[:200]}"
    if set(summary["failed"]) - {"null_input"}:
        yield "", "the same command with --retry-failed tries them again"


def _spent_on_map(summary: Mapping[str, Any]) -> Facts:
    if summary["was_finished"]:
        return
    yield from _answers(summary, summary["spent_in_all"])
    yield "time", duration(summary["seconds"])
