"""Azure's form of OpenAI's chat, as its REST reference and SDK describe it.

`POST /openai/deployments/NAME/chat/completions?api-version=VERSION` has the fate of a chat
request: only its words differ.
"""

import re
from typing import Any
from urllib.parse import parse_qs, unquote

from claimscore.types import Completion

Body = dict[str, Any]

API_VERSIONS = {"2024-06-01", "2024-10-21"}

_PATH = re.compile(r"/(?:v1/)?openai/deployments/([^/]+)/chat/completions")
_SAFE = {"hate": {"filtered": False, "severity": "safe"}}
_WRONG_KEY = (
    "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a "
    "valid key for an active subscription and use a correct regional API endpoint for your "
    "resource."
)
_FILTERED = (
    "The response was filtered due to the prompt triggering Azure OpenAI's content management "
    "policy. Please modify your prompt and retry."
)
_NO_DEPLOYMENT = (
    "The API deployment for this resource does not exist. If you created the deployment within "
    "the last 5 minutes, please wait a moment and try again."
)


class Azure:
    """The words of one request's protocol; `deployment` is what it asks."""

    def __init__(self, path: str, query: str) -> None:
        self.deployment = unquote(_PATH.fullmatch(path)[1])  # type: ignore[index] # `is_for` said so
        self._version = parse_qs(query).get("api-version", [""])[0]

    @staticmethod
    def is_for(path: str) -> bool:
        """Whether a path is one of this protocol."""
        return _PATH.fullmatch(path) is not None

    def problem(self, body: Body, headers: dict[str, str]) -> str | None:
        """Why the API refuses a request as it came; None where it does not."""
        return None if self._version in API_VERSIONS else "API version not supported"

    def chat_body(self, body: Body) -> Body:
        """The request as OpenAI's chat has it; the model in its body counts for nothing."""
        return {**body, "model": self.deployment}

    def answer(self, asked: Body, reply: Body, completion: Completion | None) -> Body:
        """The completion with what the filters say of it."""
        choices = [{**choice, "content_filter_results": _SAFE} for choice in reply["choices"]]
        prompt = {"prompt_index": 0, "content_filter_results": _SAFE}
        return {**reply, "choices": choices, "prompt_filter_results": [prompt]}

    def refusal(self, fault: str, status: int, message: str) -> tuple[int, Body]:
        """Status and body of a refusal."""
        error: Body = {"code": str(status), "message": message}
        if fault == "401":
            error["message"] = _WRONG_KEY
        elif fault == "model":
            error = {"code": "DeploymentNotFound", "message": _NO_DEPLOYMENT}
        elif fault == "filter":
            error = {"message": _FILTERED, "param": "prompt", "code": "content_filter"}
            inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": _SAFE}
            error |= {"status": 400, "innererror": inner}
        elif fault == "quota":
            error["code"] = "insufficient_quota"
        elif fault == "":
            error["code"] = "BadRequest"
        return status, {"error": error}

    def limits(self, budget: dict[str, str]) -> dict[str, str]:
        """Azure uses OpenAI's names."""
        return budget
