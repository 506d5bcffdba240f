"""Lines of a batch: what is written, and what the lines that come back say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claimscore.errors import QuotaError, RejectedError, TransientError, UnknownModelError
from claimscore.pipeline.llm.batch_jobs.client import BatchClient, request_line
from claimscore.pipeline.llm.providers.openai import OpenAIServer
from claimscore.pipeline.llm.providers.schema import Dialect, chat_body
from claimscore.types import Message, OutputSchema, Request

CLIENT = BatchClient(OpenAIServer("https://x/v1", "secret-key"), "m", timeout_s=1.0)


def line(**fields: Any) -> bytes:
    return json.dumps({"id": "r", "custom_id": "k", **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    "text", ["plain", "ü 😀", "a\nb\r\u2028\u2029\x85\x0b\x0c\x1c", 'quotes " and \\', "\ud800"]
)
def test_a_request_is_one_line(text: str):
    """For every program that splits files into lines; the body means the same."""
    output = OutputSchema("o", {"type": "object"})
    request = Request("openai", "n", "m", (Message("user", text),), output=output)
    for dialect in (Dialect(), Dialect(output_mode="text")):
        written = request_line("0" * 64, request, dialect)
        assert len(written.decode().splitlines()) == 1
        value = json.loads(written)
        assert next(iter(value.items())) == ("custom_id", "0" * 64)
        if text != "\ud800":
            assert value["body"] == chat_body(request, dialect)


@pytest.mark.parametrize(
    ("response", "error", "expected", "words"),
    [
        (None, {"code": "batch_expired", "message": "too late"}, TransientError, "too late"),
        (None, {"code": "insufficient_quota", "message": "pay"}, QuotaError, "pay"),
        (None, {"code": "model_not_found", "message": "no m"}, UnknownModelError, "no m"),
        (None, {"code": "x", "message": "context_length_exceeded"}, TransientError, "context"),
        (None, None, TransientError, ""),
        ({}, "odd", TransientError, "odd"),
        ({"status_code": 502, "body": "<html><title>Bad</title>"}, None, TransientError, "Bad"),
        ({"status_code": "x", "body": None}, None, TransientError, "500"),
        ({"status_code": 200, "body": None}, None, TransientError, "no chat"),
        (
            {"status_code": 400, "body": {"error": {"message": "secret-key"}}},
            None,
            RejectedError,
            "[key]",
        ),
    ],
    ids=str,
)
def test_what_is_no_answer(response: Any, error: Any, expected: type[Exception], words: str):
    result = CLIENT.read_line(line(response=response, error=error))
    assert type(result.outcome) is expected
    assert words in str(result.outcome)
