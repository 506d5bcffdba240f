"""Refusals as real servers word them, and the errors that they are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import (
    AuthenticationError,
    ClaimscoreError,
    ConfigError,
    QuotaError,
    RateLimitError,
    RejectedError,
    TransientError,
    UnknownModelError,
)
from claimscore.pipeline.llm.providers.errors import read_refusal, translate_error
from claimscore.types import LimitState, RateLimits

KEY = "sk-proj-abcdefghijklmnop"


def read(
    status: int, body: object = b"", headers: dict[str, str] | None = None, key: str | None = None
) -> ClaimscoreError:
    """The error of a response; a body that is not bytes is sent as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    complaint = read_refusal(status, headers or {}, raw, key)
    return translate_error(complaint, base_url="https://x/v1", model="m")


def openai(message: str = "no", **fields: Any) -> dict[str, Any]:
    """As OpenAI packs it, and most others."""
    return {"error": {"message": message, "type": None, "param": None, "code": None, **fields}}


PER_MINUTE = "in organization org-abc on tokens per min (TPM): Limit 30000, "
QUOTA = "You exceeded your current quota, please check your plan and billing details."
PAGE = b"<!DOCTYPE html><html><head><title>\n503 Service Unavailable</title></head><body>nginx"


@pytest.mark.parametrize(
    ("status", "body", "expected", "words"),
    [
        # keys
        pytest.param(401, openai("Incorrect key"), AuthenticationError, "HTTP 401", id="401"),
        pytest.param(403, openai("region"), AuthenticationError, "region", id="403"),
        pytest.param(403, b"<html>no", AuthenticationError, "Forbidden", id="403 page"),
        pytest.param(
            401,
            {"statusCode": 401, "message": "Unauthorized. Access token is missing"},
            AuthenticationError,
            "refused the key",
            id="azure key",
        ),
        # money
        pytest.param(402, openai("Insufficient credits"), QuotaError, "fill", id="openrouter"),
        pytest.param(
            429,
            openai(QUOTA, type="insufficient_quota", code="insufficient_quota"),
            QuotaError,
            "current quota",
            id="openai quota",
        ),
        pytest.param(429, openai(code="billing_hard_limit_reached"), QuotaError, "", id="billing"),
        pytest.param(429, openai(type="insufficient_quota"), QuotaError, "", id="quota by type"),
        pytest.param(
            429,
            openai("litellm.RateLimitError: {'code': 'insufficient_quota'}", code="429"),
            QuotaError,
            "",
            id="litellm quotes a quota",
        ),
        pytest.param(
            429,
            {"error": {"message": "x", "innererror": {"code": "insufficient_quota"}}},
            QuotaError,
            "",
            id="nested quota",
        ),
        pytest.param(400, openai(type="budget_exceeded"), QuotaError, "", id="litellm budget"),
        pytest.param(
            400,
            openai("Your credit balance is too low to access the API."),
            QuotaError,
            "credit",
            id="anthropic credit",
        ),
        pytest.param(402, openai("Insufficient Balance"), QuotaError, "Balance", id="deepseek"),
        # models
        pytest.param(
            404, openai(code="model_not_found"), UnknownModelError, "no model 'm'", id="openai"
        ),
        pytest.param(
            403,
            openai("Project `p` does not have access to model `m`", code="model_not_found"),
            UnknownModelError,
            "access",
            id="openai rights",
        ),
        pytest.param(
            404,
            {"error": {"code": "DeploymentNotFound", "message": "The API deployment does not .."}},
            UnknownModelError,
            "deployment",
            id="azure deployment",
        ),
        pytest.param(
            404,
            {"object": "error", "message": "The model `m` does not exist.", "code": 404},
            UnknownModelError,
            "exist",
            id="vllm",
        ),
        pytest.param(
            400, openai("The model 'm' does not exist"), UnknownModelError, "exist", id="vllm 400"
        ),
        pytest.param(
            400,
            {"detail": "Server is pinned to 'a'; requested 'm'."},
            UnknownModelError,
            "pinned",
            id="transformers serve",
        ),
        pytest.param(
            400, openai("m is not a valid model ID", code=400), UnknownModelError, "", id="router"
        ),
        pytest.param(
            404, openai("No endpoints found for m."), UnknownModelError, "m", id="router 404"
        ),
        pytest.param(400, openai("Model Not Exist"), UnknownModelError, "", id="deepseek model"),
        pytest.param(
            400,
            openai("Invalid model name passed in model=m."),
            UnknownModelError,
            "",
            id="litellm",
        ),
        pytest.param(
            400,
            {"message": "Invalid model: m", "type": "invalid_model"},
            UnknownModelError,
            "Invalid",
            id="mistral",
        ),
        pytest.param(
            404, openai('model "m" not found, try pulling it'), UnknownModelError, "", id="ollama"
        ),
        # URLs
        pytest.param(404, {"detail": "Not Found"}, ConfigError, "--base-url", id="404"),
        pytest.param(405, b"", ConfigError, "Method Not Allowed", id="405"),
        pytest.param(410, b"gone", ConfigError, "gone", id="410"),
        # too fast
        pytest.param(
            429,
            openai(
                f"Rate limit reached for m {PER_MINUTE}Used 29500, Requested 1000. Please try "
                "again in 1s.",
                type="tokens",
                code="rate_limit_exceeded",
            ),
            RateLimitError,
            "Rate limit",
            id="openai limit",
        ),
        pytest.param(429, b"", RateLimitError, "Too Many Requests", id="429"),
        pytest.param(
            429,
            openai(f"Request too large for m {PER_MINUTE}Requested 546. The input .."),
            RateLimitError,
            "546",
            id="too large for now",
        ),
        pytest.param(
            429,
            [{"error": {"code": 429, "message": QUOTA, "status": "RESOURCE_EXHAUSTED"}}],
            RateLimitError,
            "quota",
            id="google means its rate",
        ),
        pytest.param(
            429,
            {"error": "Model is overloaded", "error_type": "overloaded"},
            RateLimitError,
            "overloaded",
            id="tgi",
        ),
        # come again
        pytest.param(408, b"", TransientError, "Timeout", id="408"),
        pytest.param(409, openai("lock"), TransientError, "lock", id="409"),
        pytest.param(424, {"error": "failed"}, TransientError, "failed", id="tgi generation"),
        pytest.param(425, b"", TransientError, "425", id="425"),
        pytest.param(498, openai("capacity"), TransientError, "capacity", id="groq flex"),
        pytest.param(500, openai("had an error"), TransientError, "had an error", id="500"),
        pytest.param(503, PAGE, TransientError, "503 Service Unavailable$", id="page"),
        pytest.param(
            503,
            openai("Loading model", type="unavailable_error", code=503),
            TransientError,
            "Loading",
            id="llama.cpp loads",
        ),
        pytest.param(529, openai("Overloaded"), TransientError, "Overloaded", id="529"),
        pytest.param(599, b"", TransientError, "no reason given", id="no phrase"),
    ],
)
def test_what_a_refusal_means(
    status: int, body: object, expected: type[ClaimscoreError], words: str
):
    """The class decides what happens next; the message quotes the server."""
    error = read(status, body)
    assert type(error) is expected, error
    assert str(error).startswith("https://x/v1")
    assert re.search(words, str(error))


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        pytest.param(400, openai(code="context_length_exceeded"), "context_length", id="openai"),
        pytest.param(
            400,
            {"object": "error", "message": "This model's maximum context length is 4096 tokens."},
            "context_length",
            id="vllm",
        ),
        pytest.param(
            400,
            openai("The decoder prompt (length 9) is longer than the maximum model length of 4"),
            "context_length",
            id="vllm decoder",
        ),
        pytest.param(
            400,
            openai("the request exceeds the available context size", n_ctx=256),
            "context_length",
            id="llama.cpp",
        ),
        pytest.param(
            500,
            openai("the request exceeds ..", type="exceed_context_size_error", code=500),
            "context_length",
            id="llama.cpp says 500",
        ),
        pytest.param(
            422,
            {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096"},
            "context_length",
            id="tgi",
        ),
        pytest.param(
            400,
            openai("Prompt contains 40000 tokens, too large for model with 32768 maximum context"),
            "context_length",
            id="mistral",
        ),
        pytest.param(
            400, openai("prompt is too long: 210000 tokens > 200000"), "context_length", id="claude"
        ),
        pytest.param(
            400,
            openai(
                "Provider returned error",
                metadata={"raw": '{"error":{"message":"maximum context length is 8192"}}'},
            ),
            "context_length",
            id="openrouter quotes",
        ),
        pytest.param(400, openai(code="content_filter"), "content_filter", id="azure filter"),
        pytest.param(
            400,
            openai("filtered", innererror={"code": "ResponsibleAIPolicyViolation"}),
            "content_filter",
            id="azure inner",
        ),
        pytest.param(400, openai(code="content_policy_violation"), "content_filter", id="policy"),
        pytest.param(
            403,
            openai('m requires moderation. Your input was flagged for "x"', code=403),
            "content_filter",
            id="openrouter moderation",
        ),
        pytest.param(
            429,
            openai(f"Request too large for m {PER_MINUTE}Requested 37,313. Visit"),
            "too_large",
            id="more than a minute",
        ),
        pytest.param(
            413,
            openai(
                "Request too large for model `m` on tokens per minute: Limit 6000, Requested 7591"
            ),
            "too_large",
            id="groq",
        ),
        pytest.param(413, b"<html>", "too_large", id="413"),
        pytest.param(400, openai("max_tokens is too large"), "rejected", id="400"),
        pytest.param(400, openai("The prompt is odd for model 'm'"), "rejected", id="mentions"),
        pytest.param(400, openai("The model 'm' does not support images"), "rejected", id="images"),
        pytest.param(400, openai("Invalid model parameters"), "rejected", id="parameters"),
        pytest.param(400, openai("This model's answer: role not found"), "rejected", id="role"),
        pytest.param(422, {"detail": [{"loc": ["body", "n"], "msg": "x"}]}, "rejected", id="422"),
        pytest.param(418, b"", "rejected", id="418"),
    ],
)
def test_one_request_is_rejected(status: int, body: object, kind: str):
    """For its own content: a failure row, whose kind says why."""
    error = read(status, body)
    assert isinstance(error, RejectedError), error
    assert error.kind == kind


def test_a_request_that_is_too_large_for_now_only_waits():
    """Groq says 413 to both."""
    error = read(413, openai("Request too large: Limit 6000, Requested 591. try again in 3s"))
    assert isinstance(error, RateLimitError)
    assert error.retry_after_s == 3.0


@pytest.mark.parametrize(
    ("status", "kind", "billed"),
    [
        (500, "status", False),
        (503, "status", False),
        (504, "timeout", True),
        (524, "timeout", True),
    ],
)
def test_a_gateway_that_gave_up_waiting_may_have_let_work_be_done(
    status: int, kind: str, billed: bool
):
    """So it counts against the budget, as our own timeout does."""
    error = read(status)
    assert isinstance(error, TransientError)
    assert (error.kind, error.may_be_billed) == (kind, billed)


@pytest.mark.parametrize(
    ("status", "expected"), [(429, RateLimitError), (503, TransientError), (500, TransientError)]
)
def test_waits_and_limits_go_along(status: int, expected: type[TransientError]):
    """The server's own figures reach the tasks that wait."""
    headers = {"retry-after-ms": "1500", "x-ratelimit-remaining-tokens": "0"}
    error = read(status, openai(), headers)
    assert type(error) is expected
    assert isinstance(error, TransientError)
    assert error.retry_after_s == 1.5
    assert error.limits == RateLimits(tokens=LimitState(remaining=0.0))


def test_a_wait_may_stand_in_the_message():
    """Azure and OpenAI say so."""
    said = "exceeded token rate limit of your current tier. Please retry after 22 seconds."
    error = read(429, openai(said, code="429"))
    assert isinstance(error, RateLimitError)
    assert error.retry_after_s == 22.0


def test_a_redirect_names_the_target():
    """It is not followed: the key goes where the user sends it."""
    error = read(307, b"", {"location": "https://b/v1"})
    assert type(error) is ConfigError
    assert str(error) == "https://x/v1 points to https://b/v1; name that as --base-url"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(openai("bad role"), "bad role", id="openai"),
        pytest.param({"detail": "bad role"}, "bad role", id="fastapi"),
        pytest.param({"message": "bad role"}, "bad role", id="plain"),
        pytest.param({"error": "bad role"}, "bad role", id="a text"),
        pytest.param(b"bad role", "bad role", id="no JSON"),
        pytest.param(b"<html><title>bad\n role</title>", "bad role", id="a page"),
        pytest.param(b"<html>bad", "Bad Request", id="a page without a title"),
        pytest.param(b"", "Bad Request", id="nothing"),
        pytest.param({"oops": 1}, '{"oops": 1}', id="something else"),
        pytest.param([], "[]", id="an empty list"),
        pytest.param(
            b'{"error":' * 9 + b'"x"' + b"}" * 9, '{"error":' * 9 + '"x"' + "}" * 9, id="too deep"
        ),
        pytest.param(
            {"detail": [{"loc": ["body", 0, "n"], "msg": "wrong", "input": "secret"}] * 2},
            "body.0.n: wrong; body.0.n: wrong",
            id="pydantic",
        ),
        pytest.param(
            {"object": "error", "message": {"detail": [{"loc": ["body"], "msg": "extra"}]}},
            "body: extra",
            id="mistral",
        ),
        pytest.param(openai("a\x1b[2J\nb\x00"), "a [2J b", id="control characters"),
        pytest.param(openai("x" * 9000), "x" * 500, id="long"),
    ],
)
def test_a_server_is_quoted_in_one_clean_line(body: object, message: str):
    """Whatever form it says it in; nothing that a terminal would obey."""
    assert str(read(400, body)) == f"https://x/v1: HTTP 400: {message}"


@pytest.mark.parametrize("status", [302, 400, 402, 403, 404, 429, 500])
@pytest.mark.parametrize("key", [KEY, "0123-of-a-local-server"])
def test_no_part_of_a_key_is_quoted(status: int, key: str):
    """Whole, shortened, or another one."""
    said = f"bad key {key} (sk-proj-****mnop), Bearer {key}, or Bearer other-secret"
    error = read(status, openai(said, param=key), {"location": f"https://b/{key}"}, key=key)
    for secret in (key, "mnop", "other-secret"):
        assert secret not in str(error)


def test_what_was_sent_and_is_quoted_is_no_complaint():
    """FastAPI repeats the input: a text about a quota is not a quota that is gone."""
    item = {"loc": ["body"], "msg": "wrong", "input": {"code": "insufficient_quota"}}
    assert isinstance(read(400, {"detail": [item]}), RejectedError)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "detail", "msg", "loc", "code", "type", "metadata"]
            )
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    status=st.integers(300, 599),
    body=st.binary(max_size=100) | JSON_VALUES.map(lambda value: json.dumps(value).encode()),
    said=st.text(max_size=40),
)
def test_every_refusal_is_some_error(status: int, body: bytes, said: str):
    """No body, however odd, is more than one of our errors."""
    for data in (body, json.dumps(openai(said)).encode()):
        assert isinstance(read(status, data, {"retry-after": said}), ClaimscoreError)


@pytest.mark.parametrize("n_levels", [100, 3000, 100_000, *range(860, 1000, 20)])
def test_nesting_without_end_is_no_harm(n_levels: int):
    """Neither where JSON gives up nor a little before."""
    for opening, closing in ((b"[", b"]"), (b'{"error":', b"}")):
        body = opening * n_levels + b"1" + closing * n_levels
        assert isinstance(read(400, body), RejectedError)
