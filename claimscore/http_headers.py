"""Limits and waiting times in the headers of responses. Pure; nonsense counts as nothing."""

from __future__ import annotations

import datetime
import email.utils
import re
import time
from collections.abc import Mapping, Sequence

from claimscore.types import LimitState, RateLimits

#: A request waits for a day at most; a longer figure is cut.
LONGEST_WAIT_S = 86_400.0

_SPELLINGS = {  # OpenAI; Mistral; Cerebras; Anthropic, which limits questions and answers apart
    "requests": (
        "x-ratelimit-*-requests",
        "x-ratelimit-*-req-minute",
        "x-ratelimit-*-requests-minute",
        "anthropic-ratelimit-requests-*",
    ),
    "tokens": ("x-ratelimit-*-tokens", "x-ratelimit-*-tokens-minute"),
    "input": ("anthropic-ratelimit-input-tokens-*",),
    "output": ("anthropic-ratelimit-output-tokens-*",),
}
_NAMES = {
    what: [[name.replace("*", part) for part in ("limit", "remaining", "reset")] for name in names]
    for what, names in _SPELLINGS.items()
}

_UNITS_S = {
    **dict.fromkeys(("ns",), 1e-9),
    **dict.fromkeys(("us", "µs", "μs"), 1e-6),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
_UNIT = "|".join(sorted(_UNITS_S, key=len, reverse=True))
_PLAIN = re.compile(_NUMBER)
_PART = re.compile(rf"({_NUMBER})\s*({_UNIT})(?![a-z])[\s,]*")
_DURATION = rf"(?:{_NUMBER}\s*(?:{_UNIT})(?![a-z])[\s,]*)+"
_SAID = re.compile(
    rf"(?:again|retry|retrying|wait)\s+(?:(?:in|after|for)\s+)?({_DURATION})"
    rf'|"retrydelay"\s*:\s*"({_DURATION})"'  # Google
)

#: Above these a number is a point in time, in seconds or milliseconds since 1970.
_EPOCH_S, _EPOCH_MS = 1e9, 1e12
_HOUR_S, _DAY_S = 3600.0, 86_400.0


def rate_limits(
    headers: Mapping[str, str],
    now: float | None = None,
    *,
    shares: tuple[float, float] | None = None,
) -> RateLimits | None:
    """The limits that headers (names in lower case) tell of, else None.

    `now` is the time of day in seconds since 1970, for servers that give a point in time; else
    their own clock counts. `shares` are the parts of all tokens that count against a limit of
    questions and against one of answers: where these are apart, that of both together is the
    highest that exceeds neither.
    """
    now = _http_time(headers.get("date", "")) if now is None else now
    requests = _limit_state(headers, "requests", now)
    tokens = _limit_state(headers, "tokens", now)
    if tokens is None and shares is not None:
        apart = [_limit_state(headers, what, now) for what in ("input", "output")]
        tokens = _together(list(zip(apart, shares, strict=True)))
    return RateLimits(requests, tokens) if requests or tokens else None


def _together(limits: Sequence[tuple[LimitState | None, float]]) -> LimitState | None:
    """One limit of several, each of a share of the units.

    Two digits of it are enough, and do not change with every answer.
    """
    known = [(state, share) for state, share in limits if state is not None and share > 0]
    per_minute = [state.limit / share for state, share in known if state.limit is not None]
    left = [state.remaining / share for state, share in known if state.remaining is not None]
    resets = [state.reset_s for state, _ in known if state.reset_s is not None]
    if not per_minute:
        return None
    limit = float(f"{min(per_minute):.2g}")
    return LimitState(limit, min(left, default=None), max(resets, default=None))


def _limit_state(headers: Mapping[str, str], what: str, now: float | None) -> LimitState | None:
    for limit_name, remaining_name, reset_name in _NAMES[what]:
        if limit_name in headers or remaining_name in headers:
            limit = _number(headers.get(limit_name)) or None
            remaining = _number(headers.get(remaining_name))
            reset_s = _reset_s(headers.get(reset_name), now)
            if limit is not None and _is_not_a_minutes(limit, remaining, reset_s):
                limit = None
            if (limit, remaining, reset_s) != (None, None, None):
                return LimitState(limit, remaining, reset_s)
    return None


def _is_not_a_minutes(limit: float, remaining: float | None, reset_s: float | None) -> bool:
    """Whether a limit is one of an hour or a day: as a minute's it would be far too high.

    OpenAI and Groq send a limit of requests a day under the same name. Then it takes longer
    than a minute to be full again, or what is used comes back at just such a rate.
    """
    if reset_s is None:
        return False
    if reset_s > 90:
        return True
    used = limit - (limit if remaining is None else remaining)
    window_s = reset_s * limit / used if used > 0 else 0.0
    return any(abs(window_s - period_s) < 0.02 * period_s for period_s in (_HOUR_S, _DAY_S))


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and _PLAIN.fullmatch(text) else None


def _reset_s(text: str | None, now: float | None) -> float | None:
    """Seconds from a duration, a number of seconds, or a point in time."""
    if text is None:
        return None
    number = _number(text)
    if number is not None:
        return number if number < _EPOCH_S else _until(number, now)
    seconds = duration_s(text)
    if seconds is not None:
        return seconds
    at = _iso_time(text)
    return None if at is None else _until(at, now)


def _until(at: float, now: float | None) -> float:
    at = at / 1000 if at >= _EPOCH_MS else at
    return max(0.0, at - (time.time() if now is None else now))


def duration_s(text: str) -> float | None:
    """Seconds in "20ms", "1.2s", "6m0s", "1h2m3.5s" or "22 seconds"; None for anything else."""
    text = text.strip().lower()
    seconds, position = 0.0, 0
    while part := _PART.match(text, position):
        seconds += float(part[1]) * _UNITS_S[part[2]]
        position = part.end()
    return seconds if text and position == len(text) else None


def retry_after_s(headers: Mapping[str, str], words: str = "") -> float | None:
    """Seconds to wait: by the headers, else by what is said in the body; at most a day."""
    seconds = _retry_header_s(headers)
    if seconds is None:
        match = _SAID.search(words.lower())
        seconds = duration_s(match[1] or match[2]) if match else None
    return None if seconds is None else min(seconds, LONGEST_WAIT_S)


def _retry_header_s(headers: Mapping[str, str]) -> float | None:
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "").strip()
    number = _number(text)
    if number is not None:
        return number
    at = _http_time(text)
    if at is None:
        return duration_s(text)
    now = _http_time(headers.get("date", ""))  # the same clock, where the server gave it
    return _until(at, now)


def _http_time(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError, OSError):
        return None


def _iso_time(text: str) -> float | None:
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
