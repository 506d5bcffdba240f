"""Refusals as real servers word them, and the errors that they are."""

import json
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


def read(
    status: int, body: object = b"", headers: dict[str, str] | None = None, key: str | None = None
) -> ClaimscoreError:
    """The error of a response; a body that is not bytes is sent as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    refusal = read_refusal(status, headers or {}, raw, key)
    address, variable = "https://x/v1", "OPENAI_API_KEY"
    return translate_error(refusal, base_url=address, model="m", key_variable=variable)


def anthropic(kind: str, message: str = "no", **details: Any) -> dict[str, Any]:
    """As Anthropic packs it."""
    error = {"type": kind, "message": message, "details": details or None}
    return {"type": "error", "error": error, "request_id": "req_1"}


def openai(message: str = "no", **fields: Any) -> dict[str, Any]:
    """As OpenAI packs it, and most others."""
    return {"error": {"message": message, "type": None, "param": None, "code": None, **fields}}


PER_MINUTE = "in organization org-abc on tokens per min (TPM): Limit 30000, "
QUOTA = "You exceeded your current quota, please check your plan and billing details."

#: Each with the server that has said it; of a request that is refused for its own content the kind.
MEANINGS: dict[type[ClaimscoreError] | str, list[tuple[str, int, object]]] = {
    AuthenticationError: [
        ("openai", 401, openai("Incorrect key")),
        ("openai, region", 403, openai("region")),
        ("a page", 403, b"<html>no"),
        ("anthropic", 403, anthropic("permission_error")),
        ("azure", 401, {"statusCode": 401, "message": "Access token is missing"}),
        ("litellm", 400, openai("No connected db.", type="no_db_connection", code="400")),
    ],
    QuotaError: [
        ("openrouter", 402, openai("Insufficient credits")),
        ("openai by code", 429, openai(QUOTA, code="insufficient_quota")),
        ("openai by type", 429, openai(type="insufficient_quota")),
        ("openai billing", 429, openai(code="billing_hard_limit_reached")),
        ("litellm quotes", 429, openai("litellm.RateLimitError: {'code': 'insufficient_quota'}")),
        ("nested", 429, {"error": {"message": "x", "innererror": {"code": "insufficient_quota"}}}),
        ("litellm", 400, openai(type="budget_exceeded")),
        ("anthropic", 400, anthropic("invalid_request_error", "Your credit balance is too low.")),
        ("anthropic", 402, anthropic("billing_error")),
        (
            "anthropic's month",
            400,
            anthropic("invalid_request_error", "You have reached your specified API usage limits."),
        ),
        (
            "anthropic's workspace",
            429,
            anthropic("rate_limit_error", error_code="enforced_spend_limit_reached"),
        ),
    ],
    UnknownModelError: [
        ("openai", 404, openai(code="model_not_found")),
        ("openai rights", 403, openai("Project has no access to `m`", code="model_not_found")),
        ("azure", 404, {"error": {"code": "DeploymentNotFound", "message": "The deployment .."}}),
        ("vllm", 404, {"object": "error", "message": "The model `m` does not exist.", "code": 404}),
        ("vllm 400", 400, openai("The model 'm' does not exist")),
        ("transformers serve", 400, {"detail": "Server is pinned to 'a'; requested 'm'."}),
        ("openrouter 400", 400, openai("m is not a valid model ID", code=400)),
        ("openrouter", 404, openai("No endpoints found for m.")),
        ("deepseek", 400, openai("Model Not Exist")),
        ("litellm", 400, openai("Invalid model name passed in model=m.")),
        ("mistral", 400, {"message": "Invalid model: m", "type": "invalid_model"}),
        ("anthropic", 404, anthropic("not_found_error", "model: m")),
        ("ollama", 404, openai('model "m" not found, try pulling it')),
    ],
    ConfigError: [
        ("wrong path", 404, {"detail": "Not Found"}),
        ("wrong method", 405, b""),
        ("gone", 410, b"gone"),
        ("llama.cpp", 501, openai("This server does not support embeddings.", code=501)),
    ],
    RateLimitError: [
        ("openai", 429, openai(f"Rate limit reached for m {PER_MINUTE}Used 29500, Requested 1000")),
        ("nothing said", 429, b""),
        ("too large for now", 429, openai(f"Request too large for m {PER_MINUTE}Requested 546.")),
        ("groq", 413, openai("Request too large: Limit 6000, Requested 591. try again in 3s")),
        ("google's rate", 429, [{"error": {"message": QUOTA, "status": "RESOURCE_EXHAUSTED"}}]),
        ("anthropic", 429, anthropic("rate_limit_error", error_code="ramp_limit_exceeded")),
        ("tgi", 429, {"error": "Model is overloaded", "error_type": "overloaded"}),
    ],
    TransientError: [
        ("timeout", 408, b""),
        ("conflict", 409, openai("lock")),
        ("tgi", 424, {"error": "failed"}),
        ("early", 425, b""),
        ("groq flex", 498, openai("capacity")),
        ("openai", 500, openai("had an error")),
        ("nginx", 503, b"<!DOCTYPE html><html><head><title>503</title></head><body>nginx"),
        ("llama.cpp", 503, openai("Loading model", type="unavailable_error", code=503)),
        ("litellm", 503, openai("Service Unavailable", type="no_db_connection")),
        ("anthropic", 529, anthropic("overloaded_error", "Overloaded")),
        ("anthropic", 500, anthropic("api_error")),
        ("no phrase", 599, b""),
    ],
    "context_length": [
        ("openai", 400, openai(code="context_length_exceeded")),
        ("vllm", 400, {"message": "This model's maximum context length is 4096 tokens."}),
        ("vllm decoder", 400, openai("prompt (9) is longer than the maximum model length of 4")),
        ("llama.cpp", 400, openai("the request exceeds the available context size", n_ctx=256)),
        ("llama.cpp 500", 500, openai("it exceeds ..", type="exceed_context_size_error")),
        (
            "llama.cpp embeddings",
            500,
            openai("input (6001 tokens) is too large to process.", type="server_error"),
        ),
        ("tgi", 422, {"error": "error: `inputs` tokens + `max_new_tokens` must be <= 4096"}),
        ("mistral", 400, openai("40000 tokens, too large for model with 32768 maximum context")),
        ("anthropic", 400, anthropic("invalid_request_error", "prompt is too long: 9 > 8")),
        ("anthropic", 400, openai("input length and `max_tokens` exceed context limit: 9 + 8")),
        ("openrouter", 400, openai("error", metadata={"raw": "maximum context length is 8192"})),
    ],
    "content_filter": [
        ("azure", 400, openai(code="content_filter")),
        ("azure inner", 400, openai(innererror={"code": "ResponsibleAIPolicyViolation"})),
        ("openai", 400, openai(code="content_policy_violation")),
        ("openrouter", 403, openai("m requires moderation. Your input was flagged", code=403)),
    ],
    "too_large": [
        ("openai", 429, openai(f"Request too large for m {PER_MINUTE}Requested 37,313. Visit")),
        ("groq", 413, openai("Request too large on tokens: Limit 6000, Requested 7591")),
        ("a page", 413, b"<html>"),
        ("anthropic", 413, anthropic("request_too_large")),
    ],
    "rejected": [
        ("openai", 400, openai("max_tokens is too large")),
        ("about a model", 400, openai("The prompt is odd for model 'm'")),
        ("images", 400, openai("The model 'm' does not support images")),
        ("parameters", 400, openai("Invalid model parameters")),
        ("role", 400, openai("This model's answer: role not found")),
        ("fastapi", 422, {"detail": [{"loc": ["body", "n"], "msg": "x"}]}),
        ("teapot", 418, b""),
        (
            "fastapi quotes the request",
            400,
            {"detail": [{"msg": "wrong", "input": {"code": "insufficient_quota"}}]},
        ),
    ],
}


@pytest.mark.parametrize(
    ("expected", "status", "body"),
    [
        pytest.param(expected, status, body, id=f"{getattr(expected, '__name__', expected)}, {who}")
        for expected, refusals in MEANINGS.items()
        for who, status, body in refusals
    ],
)
def test_what_a_refusal_means(expected: type[ClaimscoreError] | str, status: int, body: object):
    error = read(status, body)
    meaning = error.kind if isinstance(error, RejectedError) else type(error)
    assert meaning == expected, error
    assert "https://x/v1" in str(error)


@pytest.mark.parametrize(
    ("status", "kind", "billed"),
    [(500, "status", False), (504, "timeout", True), (524, "timeout", True)],
)
def test_a_gateway_that_gave_up_waiting_may_have_let_work_be_done(
    status: int, kind: str, billed: bool
):
    """So it counts against the budget, as our own timeout does."""
    error = read(status)
    assert isinstance(error, TransientError)
    assert (error.kind, error.may_be_billed) == (kind, billed)


@pytest.mark.parametrize("status", [429, 503, 500])
def test_waits_and_limits_go_along(status: int):
    """The server's own figures reach the tasks that wait; a wait may stand in the message."""
    limits = {"x-ratelimit-remaining-tokens": "0"}
    for message, more in (("no", {"retry-after-ms": "1500"}), ("Please retry after 1.5 s.", {})):
        error = read(status, openai(message), limits | more)
        assert isinstance(error, TransientError)
        assert error.retry_after_s == 1.5
        assert error.limits == RateLimits(tokens=LimitState(remaining=0.0))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (openai("bad role"), "bad role"),
        ({"detail": "bad role"}, "bad role"),
        ({"error": "bad role"}, "bad role"),
        (b"bad role", "bad role"),
        (b"<html><title>bad\n role</title>", "bad role"),
        (b"<html>bad", "Bad Request"),
        (b"<html>" + b" " * 9000 + b"<title>late</title>", "Bad Request"),
        (b"", "Bad Request"),
        ({"oops": 1}, '{"oops": 1}'),
        ([], "[]"),
        (b'{"error":' * 9 + b'"x"' + b"}" * 9, '{"error":' * 9 + '"x"' + "}" * 9),
        ({"detail": [{"loc": ["body", 0, "n"], "msg": "x"}] * 2}, "body.0.n: x; body.0.n: x"),
        ({"message": {"detail": [{"loc": ["body"], "msg": "extra"}]}}, "body: extra"),
        (openai("a\x1b[2J\nb\x00"), "a [2J b"),
        (openai("x" * 9000), "x" * 500),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_server_is_quoted_in_one_clean_line(body: object, message: str):
    assert str(read(400, body)) == f"https://x/v1: HTTP 400: {message}"


def test_little_of_a_refusal_is_searched():
    """Some patterns take the square of what they search: a page of 200 KB would stop all work."""
    body = {"code": "limit 1 " * 9000, "error": [{"code": n} for n in range(5000)]}
    assert len(read_refusal(413, {}, json.dumps(body).encode()).words) < 5000


NAMES = ["error", "message", "detail", "msg", "loc", "code", "type", "metadata"]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    status=st.integers(300, 599),
    body=st.binary(max_size=100) | JSON_VALUES.map(lambda value: json.dumps(value).encode()),
    said=st.text(max_size=40),
)
def test_every_refusal_is_some_error(status: int, body: bytes, said: str):
    for data in (body, json.dumps(openai(said)).encode()):
        assert isinstance(read(status, data, {"retry-after": said}), ClaimscoreError)


@pytest.mark.parametrize("n_levels", [100, 900, 980, 3000, 100_000])
def test_nesting_without_end_is_no_harm(n_levels: int):
    for opening, closing in ((b"[", b"]"), (b'{"error":', b"}")):
        body = opening * n_levels + b"1" + closing * n_levels
        assert isinstance(read(400, body), RejectedError)
