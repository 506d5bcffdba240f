"""The requests that a run is about to send, on standard error, before it sends them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from claimscore.console.amounts import dollars

if TYPE_CHECKING:
    from claimscore.pipeline.estimate import Estimate
    from claimscore.pipeline.plan import Plan


def print_preflight(plan: Plan, estimate: Estimate, *, reads_no_prompt: bool = False) -> None:
    """Task by task: the prompt, how many requests are answered already and how many are new.

    `reads_no_prompt`: a prompt was chosen for rules, which do not look at it.
    """
    prompts = {
        planned.task.name: f"{planned.prompt.version} @{planned.prompt.digest}"
        for planned in plan.tasks
        if planned.prompt is not None
    }
    for line in preflight_lines(prompts, estimate.to_json()):
        print(f"claimscore: {line}", file=sys.stderr)
    if reads_no_prompt:
        print(
            "claimscore: builtin answers by rules and reads no prompt: another prompt changes the "
            "signature, not the answers",
            file=sys.stderr,
        )
    sys.stderr.flush()


def preflight_lines(prompts: Mapping[str, str], found: Mapping[str, Any]) -> Iterator[str]:
    """The lines of `print_preflight`, of an estimate as JSON."""
    sampled = [task for task in prompts if any(_is_sample(n, task) for n in found["assumptions"])]
    for task in found["tasks"]:
        name = task["task"]
        yield f"{name} {prompts[name]}: {_task(task, 'about ' if name in sampled else '')}"
    total, about = found["total"], "about " if sampled else ""
    if not (total["requests"] or sampled):
        yield "nothing new: no request will be sent"
    else:
        yield f"new: {about}{total['requests']:,} requests{_cost(total, found['price'])}"
    for note in found["assumptions"]:
        if "counted on" in note or "asks about" in note:
            yield f"assumed: {note}"
    known = [one["items"] for one in found["passes"]]
    if known:
        yield _passes(known)


def _is_sample(note: str, task: str) -> bool:
    """Whether a note says that the task was counted on some of the records."""
    return note.startswith(f"{task}: counted on")


def _task(task: Mapping[str, Any], about: str) -> str:
    parts = [f"{about}{task['answered']:,} of {task['questions']:,} questions answered before"]
    if task["given_up"]:
        parts.append(f"{task['given_up']:,} given up (--retry-failed would ask again)")
    if task["requests"]:
        tokens = f"{task['prompt_tokens']:,} prompt and {task['completion_tokens']:,} answer tokens"
        parts.append(f"{about}{task['requests']:,} requests to send, about {tokens}")
    return "; ".join(parts)


def _cost(total: Mapping[str, Any], price: Mapping[str, Any] | None) -> str:
    if price is None or total["usd"] is None:
        return ", cost unknown (name --input-price and --output-price)"
    if not total["usd_at_most"]:
        return ", at no cost"
    low, high = (dollars(usd) for usd in total["usd_range"])
    return f", about {dollars(total['usd'])} (between {low} and {high}; {price['source']})"


def _passes(known: list[int | None]) -> str:
    stored = "what they said before is taken from the store"
    if None in known:
        return f"models: which pairs and texts are new is known after the tasks; {stored}"
    return f"models: {sum(n or 0 for n in known):,} pairs and texts to judge; {stored}"
