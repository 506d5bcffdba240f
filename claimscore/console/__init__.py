"""Everything that people see in a terminal.

Progress goes to standard error, results to standard output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Lines that do nothing to a terminal, wherever they come from: a space for each control."""
    return _CONTROL.sub(" ", text)


def plain(text: str) -> str:
    """The same as one line."""
    return harmless(text).replace("\n", " ")


# Numbers and amounts as people read them


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
    digits = 0 if unit == 0 or amount >= 99.5 else 1
    return f"{amount:.{digits}f} {units[unit]}"


def dollars(usd: float | None) -> str:
    """An amount as people read it; said so where it is not known."""
    if usd is None:
        return "cost unknown"
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"


#: Kinds of errors (`claimscore.errors.TransientKind`) as people call them.
_PLAIN = {
    "body": "unreadable answer",
    "connect": "no connection",
    "dropped": "connection lost",
    "rate_limit": "rate limit",
    "status": "server error",
}


def cost(spent: Mapping[str, Any]) -> str:
    """The dollars that were spent; "at most" where the cost of some answers is a bound, and
    apart what requests without an answer may have cost."""
    bound = "at most " if spent["usd"] and spent.get("answers_at_most") else ""
    possibly = spent.get("possibly_billed_usd")
    besides = f", possibly {dollars(possibly)} for requests without an answer" if possibly else ""
    return bound + dollars(spent["usd"]) + besides


def price_note(spent: Mapping[str, Any]) -> str:
    """The options that tell the cost where it is unknown or a bound; empty where it is known."""
    options = "--input-price and --output-price set the price"
    if spent["requests"] and spent["usd"] is None:
        return options
    if spent["usd"] and (n := spent.get("answers_at_most")):
        what = f"of {many(n, 'answer')} the tokens or the exact price are not known"
        return f"at most: {what}; {options}"
    return ""


def tokens_text(spent: Mapping[str, Any]) -> str:
    """The tokens of prompts and answers, and how many of them the server had read before."""
    cached = spent.get("cached_prompt_tokens", 0)
    known = f" ({cached:,} from the server's cache)" if cached else ""
    return many(spent["prompt_tokens"] + spent["completion_tokens"], "token") + known


def many(count: int, noun: str) -> str:
    """`1 request`, `2,000 requests`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def counted(counts: Mapping[str, int]) -> str:
    """`3 rate limit, 1 timeout`, the most frequent first; what went wrong, in plain words."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {_PLAIN.get(name, name)}" for name, count in ranked)


def verdict_totals(metric: Mapping[str, Any]) -> list[str]:
    """`79 supported, 79 unmentioned; 12 of 158 are unsure`, of a metric that counts claims."""
    if not (totals := metric.get("verdicts")):
        return []
    counts = ", ".join(f"{n:,} {verdict}" for verdict, n in totals.items())
    return [f"{counts}; {metric['unsure']:,} of {sum(totals.values()):,} are unsure"]


def shared_notes(verdicts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The first sentence of what each metric says, and what comes after it, once, with the metrics
    that it is about."""
    of_notes: dict[str, list[str]] = {}
    first = {}
    for name, verdict in verdicts.items():
        first[name], _, note = verdict.partition(". ")
        of_notes.setdefault(note, []).append(name)
    of_notes.pop("", None)
    return first, [f"{note} ({', '.join(names)})" for note, names in of_notes.items()]


def limits_text(engine: Mapping[str, Any]) -> str:
    """`500 requests/min, 200,000 tokens/min (headers)`."""
    parts = [
        f"{engine[name]:{',.0f' if engine[name] >= 10 else '.2g'}} {unit}/min"
        for name, unit in (("rpm", "requests"), ("tpm", "tokens"))
        if engine[name] is not None
    ]
    return f"{', '.join(parts) or 'adapting'} ({engine['limits_from']})"


def engine_parts(engine: Mapping[str, Any], per_s: float) -> list[str]:
    """An engine's counts as short texts for people; zeros are left out."""
    tokens = engine["prompt_tokens"] + engine["completion_tokens"]
    retries = engine["retries"]
    parts = [many(engine["sent"], "request"), f"{per_s:,.1f}/s"]
    parts += [f"{engine['in_flight']:,} in flight"] if engine["in_flight"] else []
    parts.append(f"{engine['hits']:,} cached")
    parts += [tokens_text(engine)] if tokens else []
    parts += [cost(engine)] if engine["usd"] or (tokens and engine["usd"] is None) else []
    parts += [f"limit {limits_text(engine)}"] if engine["limits_from"] != "none" else []
    parts += [f"{sum(retries.values()):,} tried again ({counted(retries)})"] if retries else []
    parts += [f"{engine['failed']:,} failed"] if engine["failed"] else []
    parts += filter(None, [servers_text(engine.get("servers", ()))])
    if engine["why"]:
        waits = f"waiting ({duration(engine['waiting_s'])}): " if engine["waiting_s"] else ""
        parts.append(f"{waits}{engine['why'][:200]}")
    elif engine["last_error"]:
        parts.append(f"last error: {engine['last_error'][:120]}")
    return parts


def servers_text(servers: Sequence[Mapping[str, Any]]) -> str:
    """Each server's share of the answers, and for how long it is down: `gpu1:8000 57 %, ...`;
    empty where there is nothing to tell. What answers on this machine has no address."""
    servers = [server for server in servers if urlsplit(server["address"]).netloc]
    if len(servers) < 2:
        return ""
    answered = sum(server["answered"] for server in servers)
    hosts = [urlsplit(server["address"]).netloc for server in servers]
    distinct = len(set(hosts)) == len(hosts)
    shown = []
    for server, host in zip(servers, hosts, strict=True):
        share = f"{100 * server['answered'] / answered:.0f} %" if answered else ""
        down = f"down for {duration(server['down_s'])}" if server["down_s"] else ""
        name = host if distinct else server["address"]
        shown.append(" ".join(filter(None, [name, share, f"({down})" if down else ""])))
    is_news = answered or any(server["down_s"] for server in servers)
    return f"servers {', '.join(shown)}" if is_news else ""
