"""The work that a run would do: `estimate`, and what `run` and `score` say before they begin."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from claimscore.console import dollars, duration, many
from claimscore.console.table import print_rows, print_text

if TYPE_CHECKING:
    from claimscore.pipeline.estimate import Estimate
    from claimscore.pipeline.plan import Plan

logger = logging.getLogger(__name__)

_UNKNOWN_COST = "unknown (name --input-price and --output-price)"


def print_preflight(plan: Plan, estimate: Estimate, *, reads_no_prompt: str = "") -> None:
    """What each model will be asked, a line each, and what it costs. Prompts and assumptions are
    logged.

    `reads_no_prompt` is a model of rules, for which a prompt was chosen that it does not look at.
    """
    figures = estimate.to_json()
    prompts = plan.asked
    versions = {name: prompt.version for name, prompt in prompts.items()}
    lines = [*_preflight_lines(versions, figures, estimate.about)]
    if reads_no_prompt:
        lines.append(
            f"{reads_no_prompt} answers by rules and reads no prompt: another prompt changes the "
            "signature, not the answers"
        )
    print("\n".join(f"claimscore: {line}" for line in lines), file=sys.stderr, flush=True)
    for name, prompt in prompts.items():
        logger.info("%s: prompt %s @%s", name, prompt.version, prompt.digest)
    for note in figures["assumptions"]:
        logger.info("assumed: %s", note)


def _preflight_lines(
    versions: Mapping[str, str], figures: Mapping[str, Any], about: frozenset[str]
) -> Iterator[str]:
    parts = {
        name: f"{name} {versions[name]}, {_new_requests(task, 'about ' * (name in about))}"
        for task in figures["tasks"]
        for name in [task["task"]]
    }
    for model in figures["models"]:
        yield f"asks {model['llm']}: {'; '.join(parts[name] for name in model['tasks'])}"
    total = figures["total"]
    if not (total["requests"] or about):
        yield "cost: nothing, no request will be sent"
    else:
        yield _cost_line(total, figures["models"])


def _new_requests(task: Mapping[str, Any], about: str) -> str:
    """`48 requests for 48 of 54 questions (6 have stored answers)`."""
    left = task["questions"] - task["answered"] - task["given_up"]
    known = many(left, "question")
    if (repeated := left - task["requests"]) > 0:
        known += f" ({repeated:,} repeat others)"
    if task["answered"]:
        stored = f"{task['answered']:,} have stored answers"
        known = f"{left:,} of {many(task['questions'], 'question')} ({stored})"
    if task["given_up"]:
        known += f", {task['given_up']:,} given up: --retry-failed asks again"
    return f"{about}{many(task['requests'], 'request')} for {known}"


def print_estimate(figures: Mapping[str, Any]) -> None:
    """Print model passes, requests task by task, cost, hours and assumptions."""
    _print_passes(figures["passes"])
    header = ("task", "questions", "answered", "requests", "prompt tokens", "answer tokens", "cost")
    rows = [_estimate_row(part, part["task"]) for part in figures["tasks"]]
    print_rows(header, [*rows, _estimate_row(figures["total"], "total")])
    if len(figures["models"]) > 1:
        print()
        names = [f"{one['llm']} ({', '.join(one['tasks'])})" for one in figures["models"]]
        by_model = map(_estimate_row, figures["models"], names)
        print_rows(("model", *header[1:]), list(by_model))
    total = figures["total"]
    if total["given_up"]:
        print_text(f"{total['given_up']:,} given up; --retry-failed would ask them again")
    left = total["questions"] - total["answered"] - total["given_up"]
    if (repeated := left - total["requests"]) > 0:
        print_text(f"{many(repeated, 'question')} repeat others and are asked once")
    if total["requests"]:
        print_text(_cost_line(total, figures["models"]))
    else:
        print_text("nothing is missing: a run would send no request")
    if figures["hours"]:
        print_text(f"hours: about {duration(figures['hours'] * 3600)} at the server's limits")
    for assumption in figures["assumptions"]:
        print_text(f"assumed: {assumption}")


def _print_passes(passes: Sequence[Mapping[str, Any]]) -> None:
    if not passes:
        return
    rows = []
    is_known = any(one["per_second"] is not None for one in passes)
    for one in passes:
        option = f"--{one['role'].replace('_', '-')}"
        model = f"{option} {one['model']}" if one["model"] else f"{option} is missing"
        items = f"{'about ' * one['is_about']}{one['items']:,} {one['unit']}"
        pace = one["per_second"]
        known = "not known" if pace is None else f"{pace:,.{0 if pace >= 10 else 2}f}"
        rows.append([one["step"], items, *[known] * is_known, model])
    print_rows(("judged by models", "how many", *["a second here"] * is_known, "model"), rows)
    print()


def _estimate_row(part: Mapping[str, Any], name: str) -> list[str]:
    counts = ("questions", "answered", "requests", "prompt_tokens", "completion_tokens")
    cost = "unknown" if part["usd"] is None else dollars(part["usd"])
    return [name, *(f"{part[count]:,}" for count in counts), cost]


def _cost_line(total: Mapping[str, Any], models: Sequence[Mapping[str, Any]]) -> str:
    several = len(models) > 1
    if total["usd"] is None:
        unknown = [model["llm"] for model in models if model["usd"] is None]
        return f"cost: {_UNKNOWN_COST}" + f", of {', '.join(unknown)}" * several
    prices = {model["llm"]: model["price"] for model in models if model["price"] is not None}
    if not total["usd_at_most"]:
        return f"cost: nothing ({', '.join({price['source']: 0 for price in prices.values()})})"
    named = [
        f"{llm}: " * several
        + f"${price['input_per_mtok']:g} and ${price['output_per_mtok']:g} a million tokens, "
        + price["source"]
        for llm, price in prices.items()
    ]
    return f"cost: about {dollars(total['usd'])} ({'; '.join(named)})"
