"""Headers about limits and waiting, in all the spellings that servers have for them."""

import pytest

from claimscore.http_headers import rate_limits, retry_after_s
from claimscore.types import LimitState, RateLimits

NOW = 1_790_000_000.0  # 2026-09-21T14:13:20Z


def named(what: str, *values: str | None) -> dict[str, str]:
    """Limit, remaining and reset of `what`, those that are given."""
    names = ("limit", "remaining", "reset")
    pairs = zip(names, values, strict=False)
    return {f"x-ratelimit-{name}-{what}": value for name, value in pairs if value is not None}


@pytest.mark.parametrize(
    ("headers", "requests", "tokens"),
    [
        ({}, None, None),
        (  # OpenAI
            {**named("requests", "30000", "29999", "2ms"), **named("tokens", "150000", "0", "60s")},
            LimitState(30000, 29999, 0.002),
            LimitState(150000, 0, 60.0),
        ),
        (  # Azure
            {**named("requests", None, "119"), **named("tokens", None, "119984")},
            LimitState(None, 119, None),
            LimitState(None, 119984, None),
        ),
        (  # Mistral
            {**named("req-minute", "60", "59"), **named("tokens-minute", "500000", "499")},
            LimitState(60, 59, None),
            LimitState(500000, 499, None),
        ),
        # a day's by its reset, a day's and an hour's by their rate, a fixed window
        (named("requests", "14400", "14370", "2m59.56s"), LimitState(None, 14370, 179.56), None),
        (named("requests", "3600", "3599", "1s"), LimitState(None, 3599, 1.0), None),
        (named("requests", "60", "59", "55"), LimitState(60, 59, 55.0), None),
        # points in time
        (named("requests", "60", "1", str(int(NOW) + 30)), LimitState(60, 1, 30.0), None),
        (named("requests", "60", "1", str(int(NOW + 30) * 1000)), LimitState(60, 1, 30.0), None),
        (named("requests", "60", "1", "2026-09-21T14:13:50Z"), LimitState(60, 1, 30.0), None),
        (named("requests", "60", "1", "2020-01-01T00:00:00Z"), LimitState(60, 1, 0.0), None),
        # what makes no sense
        (named("requests", "unlimited", "-1", "soon"), None, None),
        (named("requests", "0"), None, None),
        (named("requests", None, None, "1s"), None, None),
        (named("requests", "nan", "5", "inf"), LimitState(None, 5, None), None),
    ],
    ids=str,
)
def test_limits_are_read(
    headers: dict[str, str], requests: LimitState | None, tokens: LimitState | None
):
    """Units a minute, what is left, seconds until it is full; what makes no sense is left out."""
    expected = RateLimits(requests, tokens) if requests or tokens else None
    assert rate_limits(headers, NOW) == expected


def test_limits_of_questions_and_of_answers_are_one() -> None:
    """Anthropic's: with a fifth of all tokens in answers, those are what comes to an end."""
    values = {
        "requests": (50, 49, "2026-09-21T14:13:21Z"),
        "tokens": (49_000, 40_000, "2026-09-21T14:13:30Z"),
        "input-tokens": (40_000, 32_000, "2026-09-21T14:13:32Z"),
        "output-tokens": (8_000, 1_000, "2026-09-21T14:13:50Z"),
    }
    headers = {
        f"anthropic-ratelimit-{name}-{part}": str(value)
        for name, parts in values.items()
        for part, value in zip(("limit", "remaining", "reset"), parts, strict=True)
    }
    requests = LimitState(50, 49, 1.0)
    assert rate_limits(headers, NOW) == RateLimits(requests, None)
    by_answers = RateLimits(requests, LimitState(40_000, 5_000, 30.0))
    assert rate_limits(headers, NOW, shares=(0.8, 0.2)) == by_answers
    all_cached = RateLimits(requests, LimitState(8_100, 1_000 / 0.99, 30.0))
    assert rate_limits(headers, NOW, shares=(0.0, 0.99)) == all_cached
    headers["date"] = "Mon, 21 Sep 2026 14:13:20 GMT"
    assert rate_limits(headers) == RateLimits(requests, None)


THEN = "Wed, 21 Oct 2026 07:28:30 GMT"


@pytest.mark.parametrize(
    ("headers", "said", "seconds"),
    [
        ({"retry-after-ms": "250", "retry-after": "9"}, "", 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, "", 9.0),
        ({"retry-after": "7"}, "try again in 1s", 7.0),
        ({"retry-after": " 1.5 "}, "", 1.5),
        ({"retry-after": "0"}, "", 0.0),
        ({"retry-after": "-1"}, "", None),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after": "9999999"}, "", 86_400.0),
        ({"retry-after": THEN, "date": THEN.replace("30 G", "00 G")}, "", 30.0),
        ({"retry-after": THEN.replace("2026", "2020")}, "", 0.0),
        ({"retry-after": THEN.replace("21", "99")}, "", None),
        ({}, "Please try again in 20ms. Visit https", 0.02),  # OpenAI
        ({}, "Please try again in 7m12s", 432.0),
        ({}, "Please retry after 22 seconds. Please go", 22.0),  # Azure
        ({}, "Please retry in 36.5s.", 36.5),  # Google
        ({}, '{"retryDelay": "36s"}', 36.0),
        ({}, "Please wait 1 minute, 3 seconds and", 63.0),
        ({}, "try again in 1h2m3.5s", 3723.5),
        ({}, "try again in 1d", 86_400.0),
        ({}, "try again in 5 models", None),
        ({}, "", None),
    ],
    ids=str,
)
def test_how_long_to_wait(headers: dict[str, str], said: str, seconds: float | None):
    assert retry_after_s(headers, said) == (None if seconds is None else pytest.approx(seconds))
