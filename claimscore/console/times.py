"""How long a run takes, part by part, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from claimscore.console.text import dollars, duration, print_rows, print_text

#: A part that takes less than this share of the whole is not shown.
SHOWN_SHARE = 0.01


def print_time(time: Mapping[str, Any], passes: Sequence[Mapping[str, Any]]) -> None:
    """The whole, the slowest part, and each part that matters; an unknown time says so."""
    print_text(_whole(time))
    rows = list(_rows(time, passes))
    if rows:
        print_rows(("part", "busy for", "by"), rows)
    if time.get("machine_usd") is not None:
        print_text(f"machine: about {dollars(time['machine_usd'])} for that time")


def machine_usd(time: Mapping[str, Any], price: float | None) -> float | None:
    """The cost of the run on a machine of `price` dollars an hour; None where price or time is
    not known."""
    return None if price is None or time["total_s"] is None else price * time["total_s"] / 3600


def _whole(time: Mapping[str, Any]) -> str:
    if time["total_s"] is None:
        least, unknown = duration(time["known_s"]), ", ".join(time["unknown"])
        return f"time: at least {least}; how long the {unknown} will take is not known"
    slowest = time["bottleneck"]
    why = f"; the slowest part: {slowest}" if slowest else ""
    return f"time: about {duration(time['total_s'])} in all, stages at work at the same time{why}"


def _rows(time: Mapping[str, Any], passes: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for stage in time["stages"]:
        name, seconds = stage["name"], stage["seconds"]
        if seconds is None:
            yield [name, "not known", stage["what"]]
        elif seconds >= SHOWN_SHARE * time["known_s"]:
            yield [name, duration(seconds), stage["what"]]
        if name == "models":
            yield from _pass_rows(passes)


def _pass_rows(passes: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Each pass with work for a model: how much, and how fast the model was."""
    for one in passes:
        if not one["tokens"]:
            continue
        work = f"about {one['expected_items']:,} {one['unit']}, {one['tokens']:,} tokens"
        if one["seconds"] is None:
            yield [f"  {one['step']}", "not known", work]
        else:
            pace = f"{one['tokens_per_s']:,.0f} tokens a second"
            yield [f"  {one['step']}", duration(one["seconds"]), f"{work}, {pace}"]
