"""How far a run or a map is and how it ended, on standard output: counts that add up, cost, where
things are, what to do next."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from claimscore.console import (
    cost,
    counted,
    duration,
    engine_parts,
    many,
    plain,
    price_note,
    servers_text,
    shared_notes,
    tokens_text,
    verdict_totals,
)
from claimscore.console.table import print_facts, print_table, print_text

Facts = Iterator[tuple[str, str]]

#: Kinds of failures that no request was sent for: asking again is of no use.
_UNASKED = ("null_input", "too_many_items")


def print_result(summary: Mapping[str, Any], out: str, quiet: bool = False) -> None:
    """The metrics with their intervals, unless `quiet` their verdicts and records to look at first,
    then what was done, spent and made, and what to do next."""
    if summary["metrics"]:
        print_metrics(summary["metrics"])
    if quiet:
        return
    if summary["metrics"]:
        print_facts(list(_verdicts(summary["metrics"])))
        print()
    print_facts(
        [
            *_records(summary["records"], summary["failures"]),
            *(("texts", check["text"]) for check in summary.get("text_checks", ())),
            *claims_facts(summary.get("claim_checks")),
            *([("calibration", summary["calibration"])] if "calibration" in summary else ()),
            *_answers(summary["last_call"], summary.get("spent")),
            *_models(summary["last_call"], summary.get("truncated", {})),
            *(("warning", notice) for notice in summary.get("notices", ())),
            ("time", duration(summary["last_call"]["seconds"])),
            ("scores", f"{out}/scores.parquet") if summary["metrics"] else ("tables", out),
            ("report", f"{out}/report.html"),
            *_next_steps(summary, out),
        ]
    )


def print_metrics(metrics: Mapping[str, Mapping[str, Any]]) -> None:
    """Mean, 95 % interval and counts of each metric, then why values are missing; `n` and `null`
    are all records."""
    print_table(
        ("metric", "mean", "95 % interval", "n", "null"),
        [
            (name, _mean(row), _interval(row), f"{row['n']:,}", f"{row['null']:,}")
            for name, row in metrics.items()
        ],
    )
    of_reasons: dict[str, list[str]] = {}  # what several metrics share is said once
    for name, row in metrics.items():
        for why, count in row["reasons"].items():
            of_reasons.setdefault(f"{count:,} without a value: {why}", []).append(name)
    for why, names in of_reasons.items():
        print_text(f"{', '.join(names)}: {why}")
    if of_reasons:
        print()


def _mean(row: Mapping[str, Any]) -> str:
    return "none" if row["mean"] is None else f"{row['mean']:.2f}"


def _interval(row: Mapping[str, Any]) -> str:
    """Bounds of the mean; a mean of too few values has none."""
    from claimscore.stats.bootstrap import interval_text  # with numpy, which a map does not need

    if row["mean"] is None:
        return ""
    return "too few" if row["low"] is None else interval_text(row["low"], row["high"])


def _verdicts(metrics: Mapping[str, Mapping[str, Any]]) -> Facts:
    """Of each metric what it says, the verdicts on claims, and the records at its worst end; what
    several metrics share is said once."""
    verdicts, notes = shared_notes({name: row["verdict"] for name, row in metrics.items()})
    for name, row in metrics.items():
        yield name, verdicts[name]
        yield from (("", f"claims: {totals}") for totals in verdict_totals(row))
        if row["worst"]:
            ends = ", ".join(f"{plain(one['id'])[:60]} {one['value']:.2f}" for one in row["worst"])
            yield "", f"look first at: {ends}"
    yield from (("note", note) for note in notes)


def _records(records: Mapping[str, int], failures: list[Mapping[str, Any]]) -> Facts:
    counts = f"{records['done']:,} done, {records['failed']:,} with failures"
    yield "records", f"{records['total']:,}: {counts}"
    for failure in failures:
        example = failure["example"].partition("\n")[0][:100]
        yield "", f"{failure['count']:,} x {failure['stage']}: {failure['kind']}, e.g. {example}"


def claims_facts(checks: Mapping[str, Any] | None) -> Facts:
    """What checks found about the claims, and warnings where that is much."""
    if checks is None:
        return
    yield "claims", checks["text"]
    for warning in checks["warnings"]:
        yield "warning", warning


def _answers(call: Mapping[str, Any], in_all: Mapping[str, Any] | None) -> Facts:
    """The language model's requests of this call, and of all calls where that is more."""
    if not (call["requests"] or call["cache_hits"]):
        return
    asked = f"{many(call['requests'], 'request')}{_paid(call)}"
    yield "answers", f"{asked}, {call['cache_hits']:,} from the cache"
    if note := price_note(in_all or call):
        yield "", note
    if read_before := call.get("cached_prompt_tokens"):
        share = read_before / call["prompt_tokens"]
        yield "", f"{read_before:,} prompt tokens ({share:.0%}) were in the server's own cache"
    if shares := servers_text(call.get("servers", ())):
        yield "", shares
    if in_all and in_all["requests"] > call["requests"]:
        yield "", f"in all calls: {many(in_all['requests'], 'request')}{_paid(in_all)}"


def _models(call: Mapping[str, Any], truncated: Mapping[str, Mapping[str, Any]]) -> Facts:
    if call["nli_pairs"]:
        stored = (call.get("model_items") or {}).get("stored")
        taken = f", {stored:,} of the different ones from stored results" if stored else ""
        yield "models", f"{call['nli_pairs']:,} pairs and texts{taken}"
    of_metrics: dict[str, list[str]] = {}
    for name, cut in truncated.items():  # what several metrics share is said once
        of_metrics.setdefault(_cut(cut), []).append(name)
    for remark, names in of_metrics.items():
        yield "warning", f"{', '.join(names)}: {remark}"


def _cut(cut: Mapping[str, Any]) -> str:
    """How many inputs a model read in part, and up to which limit."""
    if not cut["rows"]:
        return f"not known: the model does not tell which of its {cut['unknown']:,} inputs it cut"
    limit = f"{' or '.join(map(str, cut['limits']))} tokens" if cut["limits"] else "token limit"
    return (
        f"the model read {cut['rows']:,} of its inputs, in {many(cut['records'], 'record')}, "
        f"only up to its {'limit of ' if cut['limits'] else ''}{limit} (column truncated)"
    )


def _paid(spent: Mapping[str, Any]) -> str:
    return f", {cost(spent)}" if spent["requests"] and spent["usd"] != 0 else ""


def _next_steps(summary: Mapping[str, Any], out: str) -> Facts:
    steps = []
    if summary["records"]["failed"]:
        steps.append("the same command with --retry-failed tries the failed records again")
    if worst := next((row["worst"] for row in summary["metrics"].values() if row["worst"]), None):
        record = worst[0]["id"]
        steps += [
            f"open report.html#record-{quote(record)} in a browser: its claims and their evidence",
            f"claimscore status {out} --record {plain(shlex.quote(record))} prints them",
            f"claimscore compare {out} OTHER_RUN says what another prompt or model changes",
        ]
    for number, step in enumerate(steps):
        yield ("" if number else "next"), step


def print_map_result(summary: Mapping[str, Any]) -> None:
    """Rows answered and failed, what was spent, and where things are."""
    facts = [*_rows_of_map(summary)]
    if summary["was_finished"]:
        print("finished before with these settings: nothing was done")
    else:
        facts += [*_answers(summary, summary["spent_in_all"])]
        facts.append(("time", duration(summary["seconds"])))
    print_facts([*facts, ("table", summary["out"])])


def _rows_of_map(summary: Mapping[str, Any]) -> Facts:
    n_failed = summary["rows"] - summary["answered"]
    yield "rows", f"{summary['rows']:,}: {summary['answered']:,} answered, {n_failed:,} failed"
    if not n_failed:
        return
    yield "", f"failed: {counted(summary['failed'])}; see {summary['failures']}"
    for kind, message in summary["failure_examples"].items():
        yield "", f"{kind}, e.g. {message[:200]}"
    if not all(kind.endswith(_UNASKED) for kind in summary["failed"]):
        yield "", "the same command with --retry-failed tries them again"


# Status


def print_status(state: Mapping[str, Any]) -> None:
    """Print what is done, failed, spent and left of a run or of a map, and what to do next."""
    is_run = "records" in state
    print(f"{state['out']}: {'complete' if state['complete'] else 'not complete'}")
    if state.get("metrics"):
        print_metrics(state["metrics"])
    print_facts(
        [
            *([("folder here", state["folder"])] if "folder" in state else ()),
            *(_run_facts(state) if is_run else _map(state)),
            *_failed(state["failures"]),
            *claims_facts(state.get("claim_checks")),
            *(_spent(state["spent"]) if "spent" in state else ()),
            *(_work(state["last_call"], is_run) if state["running"] else ()),
            *_next_step(state, is_run),
        ]
    )


def print_record(record: Mapping[str, Any]) -> None:
    """Print the scores of a record, its failures, and its claims with verdict and evidence.

    Unsure verdicts are first. A claim that does not count has the reason instead.
    """
    facts = [("record", record["id"])]
    if not record["scores"]:
        facts.append(("scores", "none: the record is not scored"))
    for row in record["scores"]:
        value = f"null: {row['reason']}" if row["value"] is None else f"{row['value']:.2f}"
        facts.append((row["metric"], value))
    facts += [("failed", f"{row['stage']}: {row['message']}") for row in record["failures"]]
    for row in sorted(record["claims"], key=lambda row: not row.get("unsure")):
        facts.append((f"claim of {row['column']}", row["claim"]))
        if row["left_out"]:
            facts.append(("", f"{row['left_out']}: left out of the scores"))
        if row["verdict"]:
            sure = f" (support {row['probability']:.2f})" if "probability" in row else ""
            sure += ", unsure" if row.get("unsure") else ""
            evidence = f": {row['evidence']}" if row["evidence"] else ""
            facts.append(("", f"{row['verdict']}{sure}{evidence}"))
    print_facts([(label, plain(text)) for label, text in facts])


def _run_facts(state: Mapping[str, Any]) -> Facts:
    if state["records"] is None:
        yield "records", "its records are not read yet"
        return
    left = state["records_left"]
    yield "records", f"{state['records']:,}: {state['records'] - left['all']:,} done"
    if left["all"]:
        asked, judged = f"{left['llm']:,}", f"{left['models']:,}"
        work = f"the language model is asked about {asked}, models judge {judged}"
        yield "left", f"{left['all']:,}: {work}"
    if state["llm"]:
        yield "asks", state["llm"]
    yield "rows", ", ".join(f"{n:,} {name}" for name, n in sorted(state["rows"].items()))


def _map(state: Mapping[str, Any]) -> Facts:
    rows = state["rows"]
    if rows is None:
        yield "rows", "its rows are not read yet"
        return
    yield "rows", f"{rows['done']:,} of {rows['total']:,} done, {rows['failed']:,} of them failed"
    if rows["left"]:
        yield "left", f"{rows['left']:,}"


def _failed(failures: list[Mapping[str, Any]]) -> Facts:
    for number, failure in enumerate(failures):
        label = "" if number else "failed"
        yield label, f"{failure['count']:,} x {failure['stage']}: {failure['kind']}"


def _spent(spent: Mapping[str, Any]) -> Facts:
    requests = many(spent["requests"], "request")
    yield "spent", f"{requests}, {tokens_text(spent)}{_paid(spent)} in all"


def _work(note: Mapping[str, Any] | None, is_run: bool) -> Facts:
    """The phase of the call that is at work."""
    if not note:
        yield "at work", ""
        return
    yield "at work", f"for {duration(note['elapsed_s'])}: {note['phase']}"
    yield "", ", ".join(engine_parts(note["engine"], note["requests_per_s"]))
    if is_run:
        yield "", f"{note['text_pairs']:,} text pairs"
    left = note["remaining_s"]
    yield "ends", "not known yet" if left is None else f"in about {duration(left)}"
    if note["notice"]:
        yield "notice", note["notice"]


def _next_step(state: Mapping[str, Any], is_run: bool) -> Facts:
    if state["running"]:
        return
    if not state["complete"]:
        if why := (state["last_call"] or {}).get("stopped"):
            yield "stopped", plain(why)
        yield "next", f"not running; the same `claimscore {'run' if is_run else 'map'}` goes on"
    elif not all(failure["kind"] in _UNASKED for failure in state["failures"]):
        yield "next", "the same command with --retry-failed tries the failed ones again"


def watch_status(read: Callable[[], Mapping[str, Any]], interval_s: float) -> None:
    """Print the status again and again, in place in a terminal, until the run is not at work or
    Ctrl-C is pressed, which is the one way to stop looking and no error."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            state = read()
            if sys.stdout.isatty():
                print("\x1b[2J\x1b[H", end="")
            print_status(state)
            if not state["running"]:
                return
            sys.stdout.flush()
            time.sleep(interval_s)
