"""Numbers, amounts and columns as people read them."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

#: The narrowest text that is still wrapped; in less the terminal breaks lines itself.
MIN_TEXT_WIDTH = 12
#: The narrowest last column of a table that is still wrapped beside the others.
MIN_COLUMN_WIDTH = 24

_INDENT = "  "


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
    """An engine's counts as short texts for people; zeros are left out."""
    tokens = engine["prompt_tokens"] + engine["completion_tokens"]
    parts = [f"{engine['sent']:,} requests", f"{per_s:,.1f}/s"]
    parts += [f"{engine['in_flight']:,} in flight"] if engine["in_flight"] else []
    parts.append(f"{engine['hits']:,} cached")
    parts += [f"{tokens:,} tokens"] if tokens else []
    parts += [dollars(engine["usd"])] if engine["usd"] or (tokens and engine["usd"] is None) else []
    parts += [f"limit {limits_text(engine)}"] if engine["limits_from"] != "none" else []
    parts += [f"{counted(engine['retries'])} tried again"] if engine["retries"] else []
    parts += [f"{engine['failed']:,} failed"] if engine["failed"] else []
    parts += filter(None, [servers_text(engine.get("servers", ()))])
    if engine["why"]:
        parts.append(f"waiting ({duration(engine['waiting_s'])}): {engine['why'][:120]}")
    elif engine["last_error"]:
        parts.append(f"last error: {engine['last_error'][:120]}")
    return parts


def servers_text(servers: Sequence[Mapping[str, Any]]) -> str:
    """Each server's share of the answers, and for how long it is down: `gpu1:8000 57 %, ...`;
    empty where there is nothing to tell."""
    answered = sum(server["answered"] for server in servers)
    hosts = [urlsplit(server["address"]).netloc for server in servers]
    distinct = len(set(hosts)) == len(hosts)
    told = []
    for server, host in zip(servers, hosts, strict=True):
        share = f"{100 * server['answered'] / answered:.0f} %" if answered else ""
        down = f"down for {duration(server['down_s'])}" if server["down_s"] else ""
        name = host if distinct else server["address"]
        told.append(" ".join(filter(None, [name, share, f"({down})" if down else ""])))
    is_news = answered or any(server["down_s"] for server in servers)
    return f"servers {', '.join(told)}" if is_news else ""


def print_text(text: str) -> None:
    """A sentence; in a terminal broken at spaces, and what follows is indented."""
    first, *rest = _wrapped(text, 0)
    print(first)
    for line in _wrapped(" ".join(rest), len(_INDENT)) if rest else ():
        print(f"{_INDENT}{line}")


def print_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Plain columns, aligned, for people and for `cut`.

    In a terminal that is too narrow for them, the last column is broken at spaces; where too
    little is left for it, each row becomes lines of two columns, the header's name and the cell.
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    indent = sum(widths[:-1]) + 2 * len(widths[:-1])
    terminal = terminal_width()
    if terminal is not None and terminal - indent < min(widths[-1], MIN_COLUMN_WIDTH):
        _print_blocks(header, rows)
        return
    for row in (header, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False))
        before = "".join(f"{cell}  " for cell in cells)
        for i, line in enumerate(_wrapped(row[-1], indent)):
            print(f"{before if i == 0 else ' ' * indent}{line}".rstrip())


def _print_blocks(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Each row by itself, a line or more a cell; empty cells are left out."""
    indent = max(map(len, header)) + 2
    terminal = terminal_width()
    longest = max((len(word) for row in rows for cell in row for word in cell.split()), default=0)
    own_lines = terminal is not None and terminal - indent < max(MIN_TEXT_WIDTH, longest)
    for number, row in enumerate(rows):
        if number:
            print()
        facts = [(name, cell) for name, cell in zip(header, row, strict=True) if cell]
        if not own_lines:
            print_facts(facts)
            continue
        for name, cell in facts:
            if name:
                print(name)
            for line in _wrapped(cell, len(_INDENT)):
                print(f"{_INDENT}{line}")
