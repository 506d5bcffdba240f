"""Lines of a batch: what is written, and what the lines that come back say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claimscore.errors import QuotaError, RejectedError, TransientError, UnknownModelError
from claimscore.pipeline.llm.batch_jobs.client import BatchClient, is_queue_full, request_line
from claimscore.pipeline.llm.providers.openai import OpenAIServer
from claimscore.pipeline.llm.providers.schema import Dialect, chat_body
from claimscore.types import Completion, Message, OutputSchema, Request, Usage

CLIENT = BatchClient(OpenAIServer("https://x/v1", "secret-key"), "m", timeout_s=1.0)
BODY = {
    "model": "m-1",
    "choices": [{"message": {"content": "hi"}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}


def line(**fields: Any) -> bytes:
    return json.dumps({"id": "r", "custom_id": "k", **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    "text", ["plain", "ü 😀", "a\nb\r\u2028\u2029\x85\x0b\x0c\x1c", 'quotes " and \\', "\ud800"]
)
def test_a_request_is_one_line(text: str):
    """For every program that splits files into lines; the body means the same."""
    request = Request(
        "openai", "n", "m", (Message("user", text),), output=OutputSchema("o", {"type": "object"})
    )
    for dialect in (Dialect(), Dialect(output_mode="text")):
        written = request_line("0" * 64, request, dialect)
        assert len(written.decode().splitlines()) == 1
        value = json.loads(written)
        assert value["custom_id"] == "0" * 64
        assert next(iter(value)) == "custom_id"
        expected = chat_body(request, dialect)
        if text != "\ud800":
            assert value["body"] == expected


def test_an_answer_is_read_like_an_online_one():
    """Text, model, finish reason, usage."""
    result = CLIENT.read_line(line(response={"status_code": 200, "body": BODY}, error=None))
    assert result is not None
    assert result.key == "k"
    assert result.outcome == Completion("hi", "m-1", "length", Usage(3, 2))


@pytest.mark.parametrize(
    ("fields", "expected", "words"),
    [
        pytest.param(
            {"response": None, "error": {"code": "batch_expired", "message": "too late"}},
            TransientError,
            "too late",
            id="expired",
        ),
        pytest.param(
            {"response": None, "error": {"code": "insufficient_quota", "message": "pay"}},
            QuotaError,
            "pay",
            id="quota",
        ),
        pytest.param(
            {"response": None, "error": {"code": "model_not_found", "message": "no m"}},
            UnknownModelError,
            "no m",
            id="model",
        ),
        pytest.param(
            {"response": None, "error": {"code": "bad", "message": "context_length_exceeded"}},
            TransientError,
            "context",
            id="not begun, whatever it says",
        ),
        pytest.param({"response": None, "error": None}, TransientError, "", id="nothing"),
        pytest.param({"response": {}, "error": "odd"}, TransientError, "odd", id="odd"),
        pytest.param(
            {"response": {"status_code": 502, "body": "<html><title>Bad</title>"}},
            TransientError,
            "Bad",
            id="a page",
        ),
        pytest.param(
            {"response": {"status_code": "x", "body": None}}, TransientError, "500", id="odd status"
        ),
        pytest.param(
            {"response": {"status_code": 200, "body": None}}, TransientError, "no chat", id="empty"
        ),
        pytest.param(
            {"response": {"status_code": 400, "body": {"error": {"message": "secret-key"}}}},
            RejectedError,
            "[key]",
            id="quotes the key",
        ),
    ],
)
def test_what_is_no_answer(fields: dict[str, Any], expected: type[Exception], words: str):
    """The error says what the server said."""
    result = CLIENT.read_line(line(**fields))
    assert result is not None
    assert type(result.outcome) is expected
    assert words in str(result.outcome)


def test_the_key_is_in_no_answer():
    """A server may echo it."""
    body = {"model": "secret-key", "choices": [{"message": {"content": "a secret-key"}}]}
    result = CLIENT.read_line(line(response={"status_code": 200, "body": body}))
    assert result is not None
    assert result.outcome == Completion("a [key]", "[key]", "stop", Usage())


@pytest.mark.parametrize("broken", [b"{", b"[]", b'{"custom_id": 3}', b"\xff\xfe"])
def test_a_broken_line_is_a_broken_file(broken: bytes):
    """It is fetched again, not taken for a request that was not answered."""
    with pytest.raises(TransientError):
        CLIENT.read_line(broken)


def test_empty_lines_are_nothing():
    """At the end of a file, for instance."""
    assert CLIENT.read_line(b" \n") is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("token_limit_exceeded", True),
        ("Enqueued token limit reached for m", True),
        ("too_many_tasks", True),
        ("This model's maximum context length is 8192 tokens", False),
        ("invalid_json_line", False),
    ],
)
def test_want_of_room_is_recognised(words: str, expected: bool):
    """A smaller batch, or a later one, may be taken."""
    assert is_queue_full(words) is expected
