"""A fake OpenAI-compatible server for tests and benchmarks; README.md beside this file."""

from tests.fake_server.answers import plain_answer
from tests.fake_server.chat import AnswerFunction, Body
from tests.fake_server.server import FakeServer, text_answer

__all__ = ["AnswerFunction", "Body", "FakeServer", "plain_answer", "text_answer"]
