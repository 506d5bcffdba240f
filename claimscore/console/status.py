"""The text of `status`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from claimscore.console import plain
from claimscore.console.amounts import cost, duration, engine_parts, many, tokens_text
from claimscore.console.result import claims_facts, print_metrics
from claimscore.console.table import print_facts

Facts = Iterator[tuple[str, str]]


def print_status(state: Mapping[str, Any]) -> None:
    """Print what is done, failed, spent and left of a run or of a map, and what to do next."""
    is_run = "records" in state
    print(f"{state['out']}: {'complete' if state['complete'] else 'not complete'}")
    if state.get("metrics"):
        print_metrics(state["metrics"])
    print_facts(
        [
            *(_run(state) if is_run else _map(state)),
            *_failed(state["failures"]),
            *claims_facts(state.get("claim_checks")),
            *(_spent(state["spent"]) if "spent" in state else ()),
            *(_work(state["last_call"], is_run) if state["running"] else ()),
            *_next_step(state, is_run),
        ]
    )


def print_record(found: Mapping[str, Any]) -> None:
    """Print the scores of a record, its failures, and its claims with verdict and evidence."""
    facts = [("record", found["id"])]
    for row in found["scores"]:
        value = f"null: {row['reason']}" if row["value"] is None else f"{row['value']:.2f}"
        facts.append((row["metric"], value))
    facts += [("failed", f"{row['stage']}: {row['message']}") for row in found["failures"]]
    for row in found["claims"]:
        facts.append((f"claim of {row['side']}", row["claim"]))
        if row["verdict"]:
            sure = f" (support {row['probability']:.2f})" if "probability" in row else ""
            evidence = f": {row['evidence']}" if row["evidence"] else ""
            facts.append(("", f"{row['verdict']}{sure}{evidence}"))
    print_facts([(label, plain(text)) for label, text in facts])


def _run(state: Mapping[str, Any]) -> Facts:
    if state["records"] is None:
        yield "records", "its records are not read yet"
        return
    left = state["records_left"]
    yield "records", f"{state['records']:,}: {state['records'] - left['all']:,} done"
    if left["all"]:
        asked, judged = f"{left['llm']:,}", f"{left['models']:,}"
        yield (
            "left",
            f"{left['all']:,}: the language model is asked about {asked}, models judge {judged}",
        )
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
    paid = f", {cost(spent)}" if spent["requests"] and spent["usd"] != 0 else ""
    yield "spent", f"{many(spent['requests'], 'request')}, {tokens_text(spent)}{paid} in all"


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
        command = "run" if is_run else "map"
        yield "next", f"not running; the same `claimscore {command}` goes on"
    elif any(failure["kind"] != "null_input" for failure in state["failures"]):
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
