"""One request of a batch as a line of a file, and what the lines that come back say. Pure."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, NamedTuple

from claimscore.errors import ClaimscoreError, QuotaError, TransientError, UnknownModelError
from claimscore.pipeline.llm.providers.errors import Refusal, read_refusal, translate_error
from claimscore.pipeline.llm.providers.openai import OpenAIServer, decode_json
from claimscore.pipeline.llm.providers.schema import Dialect, chat_body, encode_json
from claimscore.types import JSON, Completion, Request

#: What some programs take for the end of a line; inside of a JSON text only.
_LINE_ENDS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))

#: The model timed out on the request: it may be billed. Other codes: it was not begun.
_TIMEOUTS = {"request_timeout"}


#: What servers say where a batch is too large, or too much waits already. OpenAI; LiteLLM.
_NO_ROOM = re.compile(r"token_limit_exceeded|enqueued|too_many_tasks|batch_limit_exceeded")

#: The server ended its work on a batch, one way or the other.
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})


class GoneError(Exception):
    """The server does not know a batch, a file or a path by this name (any more)."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerBatch:
    """What the server says of a batch. `faults` are why it was refused as a whole."""

    id: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    completed: int
    failed: int
    faults: tuple[JSON, ...]


class Result(NamedTuple):
    """What a line says of the request with this key; a complaint may teach a dialect."""

    key: str
    outcome: Completion | ClaimscoreError
    complaint: Refusal | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LineReader:
    """Reads lines that one server sent; the key is in nothing that it gives out."""

    base_url: str
    model: str
    key: str | None = dataclasses.field(repr=False)

    def read(self, line: bytes) -> Result | None:
        """None for an empty line; `TransientError` where the line is broken."""
        if not line.strip():
            return None
        item = decode_json(line)
        key = item.get("custom_id") if isinstance(item, dict) else None
        if not isinstance(key, str):
            raise TransientError(f"{self.base_url}: a broken line in the answers", "body")
        response = item.get("response")
        if not isinstance(response, dict) or not response.get("status_code"):
            return Result(key, self._not_done(item.get("error")))
        status, body = response["status_code"], response.get("body")
        if isinstance(status, int) and 200 <= status < 300:
            return Result(key, self._completion(body))
        complaint = self._complaint(status if isinstance(status, int) else 500, body)
        return Result(key, self._error(complaint), complaint)

    def refusal(self, fault: JSON) -> Result:
        """Why a whole batch was refused, as if each of its requests had been."""
        complaint = self._complaint(400, {"error": fault})
        return Result("", self._error(complaint), complaint)

    def _completion(self, body: object) -> Completion | ClaimscoreError:
        stand_in = Request("", "", self.model, ())  # only the model's name is taken from it
        try:
            return OpenAIServer(self.base_url, self.key, allow_http_key=True).completion(
                body, stand_in
            )
        except TransientError as exc:
            return exc

    def _not_done(self, error: object) -> ClaimscoreError:
        """A request that was not begun (the batch expired or was cancelled) or timed out."""
        complaint = self._complaint(400, {"error": error})
        meant = self._error(complaint)
        if isinstance(meant, QuotaError | UnknownModelError):
            return meant
        kind: Any = "timeout" if complaint.codes & _TIMEOUTS else "status"
        return TransientError(f"{self.base_url}: {complaint.message}", kind)

    def _complaint(self, status: int, body: object) -> Refusal:
        return read_refusal(status, {}, json.dumps(body).encode(), self.key)

    def _error(self, complaint: Refusal) -> ClaimscoreError:
        return translate_error(complaint, base_url=self.base_url, model=self.model)


def is_no_room(words: str) -> bool:
    """Whether a refusal says that a smaller batch, or a later one, would be taken."""
    return bool(_NO_ROOM.search(words.lower()))


def input_line(key: str, request: Request, dialect: Dialect) -> bytes:
    """A request as the server's file wants it; `custom_id` comes first, for `BatchFolder.keys`."""
    body = encode_json(chat_body(request, dialect)).decode()
    for character, escape in _LINE_ENDS:
        body = body.replace(character, escape)
    line = (
        f'{{"custom_id": "{key}", "method": "POST", "url": "/v1/chat/completions", '
        f'"body": {body}}}\n'
    )
    return line.encode()
