"""Lines of a batch: what is written, and what the lines that come back say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claimscore.errors import TransientError
from claimscore.pipeline.llm.batch_jobs.client import BatchClient, request_line
from claimscore.pipeline.llm.providers.openai import OpenAIServer
from claimscore.pipeline.llm.providers.schema import Dialect, chat_body
from claimscore.types import Message, OutputSchema, Request

CLIENT = BatchClient(OpenAIServer("https://x/v1", "secret-key"), "m", timeout_s=1.0)


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
    ("response", "error", "words"),
    [
        (None, {"code": "x", "message": "context_length_exceeded"}, "context"),
        ({}, "odd", "odd"),
        ({"status_code": 502, "body": "<html><title>Bad</title>"}, None, "Bad"),
        ({"status_code": "x", "body": None}, None, "500"),
        ({"status_code": 200, "body": None}, None, "no chat"),
    ],
    ids=str,
)
def test_an_odd_line_is_asked_again(response: Any, error: Any, words: str):
    """Lines of the usual form are in `test_faults.py`."""
    fields = {"id": "r", "custom_id": "k", "response": response, "error": error}
    result = CLIENT.read_line(json.dumps(fields).encode() + b"\n")
    assert type(result.outcome) is TransientError
    assert words in str(result.outcome)
