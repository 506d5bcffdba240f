"""Headers about limits and waiting, in all the spellings that servers have for them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.http_headers import duration_s, rate_limits, retry_after_s
from claimscore.types import LimitState, RateLimits

NOW = 1_790_000_000.0  # 2026-09-21T14:13:20Z


def named(what: str, *values: str | None) -> dict[str, str]:
    """Limit, remaining and reset of `what`, those that are given."""
    names = ("limit", "remaining", "reset")
    pairs = zip(names, values, strict=False)
    return {f"x-ratelimit-{name}-{what}": value for name, value in pairs if value is not None}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"content-type": "application/json"}, None, id="others"),
        pytest.param(
            {**named("requests", "30000", "29999", "2ms"), **named("tokens", "150000", "0", "60s")},
            RateLimits(LimitState(30000, 29999, 0.002), LimitState(150000, 0, 60.0)),
            id="openai",
        ),
        pytest.param(
            {**named("requests", None, "119"), **named("tokens", None, "119984")},
            RateLimits(LimitState(None, 119, None), LimitState(None, 119984, None)),
            id="azure",
        ),
        pytest.param(
            {**named("req-minute", "60", "59"), **named("tokens-minute", "500000", "499")},
            RateLimits(LimitState(60, 59, None), LimitState(500000, 499, None)),
            id="mistral",
        ),
        pytest.param(
            named("tokens", "6000", "5990", "100ms"),
            RateLimits(tokens=LimitState(6000, 5990, 0.1)),
            id="tokens only",
        ),
        pytest.param(
            named("requests", "14400", "14370", "2m59.56s"),
            RateLimits(LimitState(None, 14370, 179.56)),
            id="a day's, by its reset",
        ),
        pytest.param(
            named("requests", "14400", "14399", "6s"),
            RateLimits(LimitState(None, 14399, 6.0)),
            id="a day's, by its rate",
        ),
        pytest.param(
            named("requests", "3600", "3599", "1s"),
            RateLimits(LimitState(None, 3599, 1.0)),
            id="an hour's, by its rate",
        ),
        pytest.param(
            named("requests", "60", "59", "55"),
            RateLimits(LimitState(60, 59, 55.0)),
            id="a fixed window",
        ),
        pytest.param(
            named("requests", "60", "60", "0"), RateLimits(LimitState(60, 60, 0.0)), id="unused"
        ),
        pytest.param(
            named("requests", "60", "1", str(int(NOW) + 30)),
            RateLimits(LimitState(60, 1, 30.0)),
            id="a point in time",
        ),
        pytest.param(
            named("requests", "60", "1", str(int(NOW + 30) * 1000)),
            RateLimits(LimitState(60, 1, 30.0)),
            id="in milliseconds",
        ),
        pytest.param(
            named("requests", "60", "1", "2026-09-21T14:13:50Z"),
            RateLimits(LimitState(60, 1, 30.0)),
            id="in ISO form",
        ),
        pytest.param(
            named("requests", "60", "1", "2026-09-21T14:13:50"),
            RateLimits(LimitState(60, 1, 30.0)),
            id="in ISO form without a zone",
        ),
        pytest.param(
            named("requests", "60", "1", "2020-01-01T00:00:00Z"),
            RateLimits(LimitState(60, 1, 0.0)),
            id="in the past",
        ),
        pytest.param(
            named("requests", "unlimited", "-1", "soon"), None, id="no figure that can be used"
        ),
        pytest.param(named("requests", "0"), None, id="a limit of nothing is none"),
        pytest.param(named("requests", None, None, "1s"), None, id="a reset of nothing"),
        pytest.param(
            named("requests", "nan", "5", "inf"),
            RateLimits(LimitState(None, 5, None)),
            id="not numbers",
        ),
    ],
)
def test_limits_are_read(headers: dict[str, str], expected: RateLimits | None):
    """Units a minute, what is left, seconds until it is full; what makes no sense is left out."""
    assert rate_limits(headers, NOW) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("20ms", 0.02),
        ("1h2m3.5s", 3723.5),
        ("1d", 86_400.0),
        ("500us", 5e-4),
        ("500µs", 5e-4),
        ("250ns", 2.5e-7),
        ("22 seconds", 22.0),
        ("1 minute, 3 seconds", 63.0),
        (" 2H ", 7200.0),
        ("1", None),
        ("", None),
        ("s", None),
        ("-1s", None),
        ("1s ago", None),
        ("1 model", None),
        ("1e3s", None),
        ("١s", None),
    ],
)
def test_durations(text: str, seconds: float | None):
    """As Go prints them and as people write them; nothing is guessed."""
    assert duration_s(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("headers", "said", "seconds"),
    [
        pytest.param({"retry-after-ms": "250", "retry-after": "9"}, "", 0.25, id="ms first"),
        pytest.param({"retry-after-ms": "x", "retry-after": "9"}, "", 9.0, id="ms broken"),
        pytest.param({"retry-after": "7"}, "try again in 1s", 7.0, id="seconds"),
        pytest.param({"retry-after": " 1.5 "}, "", 1.5, id="fractions"),
        pytest.param({"retry-after": "20ms"}, "", 0.02, id="with a unit"),
        pytest.param({"retry-after": "0"}, "", 0.0, id="at once"),
        pytest.param({"retry-after": "-1"}, "", None, id="negative"),
        pytest.param({"retry-after": "soon"}, "", None, id="no figure"),
        pytest.param({"retry-after": "nan"}, "", None, id="not a number"),
        pytest.param({"retry-after": "9999999"}, "", 86_400.0, id="more than a day"),
        pytest.param(
            {
                "retry-after": "Wed, 21 Oct 2026 07:28:30 GMT",
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
            },
            "",
            30.0,
            id="a date, by the server's clock",
        ),
        pytest.param({"retry-after": "Wed, 21 Oct 2020 07:28:30 GMT"}, "", 0.0, id="past"),
        pytest.param({"retry-after": "Wed, 99 Oct 2026 07:28:30 GMT"}, "", None, id="no date"),
        pytest.param({}, "Please try again in 20ms. Visit https", 0.02, id="openai"),
        pytest.param({}, "Please try again in 1.2s.", 1.2, id="openai seconds"),
        pytest.param({}, "Please try again in 1m3s.", 63.0, id="openai minutes"),
        pytest.param({}, "Please try again in 7m12s", 432.0, id="openai a day's limit"),
        pytest.param({}, "Please retry after 22 seconds. Please go", 22.0, id="azure"),
        pytest.param({}, "Please retry in 36.5s.", 36.5, id="google"),
        pytest.param({}, '{"retryDelay": "36s"}', 36.0, id="google's details"),
        pytest.param({}, "Please wait 1 minute and", 60.0, id="wait"),
        pytest.param({}, "try again in 5 models", None, id="no unit"),
        pytest.param({}, "try again later", None, id="later"),
        pytest.param({}, "", None, id="nothing"),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], said: str, seconds: float | None):
    """Headers before words, milliseconds before seconds."""
    assert retry_after_s(headers, said) == (None if seconds is None else pytest.approx(seconds))


TEXTS = st.text(max_size=30) | st.from_regex(r"[-0-9.:eTZ+, smhdu]{0,30}", fullmatch=True)


@given(limit=TEXTS, remaining=TEXTS, reset=TEXTS, retry=TEXTS, date=TEXTS)
def test_no_text_is_more_than_nonsense(
    limit: str, remaining: str, reset: str, retry: str, date: str
):
    """Whatever stands in a header: a figure that can be waited for, or nothing."""
    found = rate_limits(named("requests", limit, remaining, reset), NOW)
    headers = {"retry-after": retry, "retry-after-ms": remaining, "date": date}
    figures = [retry_after_s(headers, reset), duration_s(retry)]
    if found is not None and found.requests is not None:
        state = found.requests
        figures += [state.limit, state.remaining, state.reset_s]
        assert state.limit != 0
    assert all(figure is None or 0 <= figure < math.inf for figure in figures)
