"""A fake OpenAI-compatible server for tests and benchmarks; README.md beside this file."""

from __future__ import annotations

from tests.fake_server.chat import AnswerFunction, Body, content_digest
from tests.fake_server.server import FakeServer, builtin_answer, request_from_wire, text_answer
from tests.fake_server.settings import Settings

__all__ = [
    "AnswerFunction",
    "Body",
    "FakeServer",
    "Settings",
    "builtin_answer",
    "content_digest",
    "request_from_wire",
    "text_answer",
]
