"""Numbers, amounts and columns as people read them."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: The narrowest text that is still wrapped; in less the terminal breaks lines itself.
MIN_TEXT_WIDTH = 12


def terminal_width() -> int | None:
    """Columns of the terminal on standard output; None where it is a file or a pipe, which
    have no width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Labels and texts in two columns; long texts are broken at spaces under themselves.

    An empty label goes on with the fact before it.
    """
    indent = max((len(label) for label, _ in facts), default=0) + 2
    for label, text in facts:
        for i, line in enumerate(_wrapped(text, indent)):
            print(f"{label if i == 0 else '':<{indent}}{line}".rstrip())


def _wrapped(text: str, indent: int) -> Iterator[str]:
    width = terminal_width()
    if width is None or width - indent < MIN_TEXT_WIDTH:
        yield text
        return
    yield from textwrap.wrap(
        text, width - indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


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


def size(n_bytes: float) -> str:
    """Bytes as people say them: `940 B`, `12.3 MB`, `1.4 TB`; 1,000 of each are the next."""
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    amount, unit = float(n_bytes), 0
    while amount >= 999.5 and unit < len(units) - 1:
        amount, unit = amount / 1000, unit + 1
    return (
        f"{amount:.0f} {units[unit]}"
        if unit == 0 or amount >= 99.5
        else (f"{amount:.1f} {units[unit]}")
    )


def dollars(usd: float | None) -> str:
    """An amount as people read it; said so where it is not known."""
    if usd is None:
        return "cost unknown"
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"


def counted(counts: Mapping[str, int]) -> str:
    """`3 rate_limit, 1 timeout`, the most frequent first."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ranked)


def limits_text(engine: Mapping[str, Any]) -> str:
    """`500 requests/min, 200,000 tokens/min (headers)`."""
    told = [
        f"{engine[name]:{',.0f' if engine[name] >= 10 else '.2g'}} {unit}/min"
        for name, unit in (("rpm", "requests"), ("tpm", "tokens"))
        if engine[name] is not None
    ]
    return f"{', '.join(told) or 'adapting'} ({engine['limits_from']})"


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


def print_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Plain columns, aligned, for people and for `cut`."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
