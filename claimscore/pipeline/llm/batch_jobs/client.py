"""A server's `/files` and `/batches`: what is sent there, and what the lines that come back say.

The home of OpenAI's SDK, whose own retries are off. Nothing is sent twice from here: whether a
job was made by a request whose answer was lost is for the caller to find out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import openai
from anyio import to_thread

from claimscore.atomic import os_errors
from claimscore.errors import ClaimscoreError, QuotaError, TransientError, UnknownModelError
from claimscore.pipeline.llm.providers.base import Keep
from claimscore.pipeline.llm.providers.errors import Refusal
from claimscore.pipeline.llm.providers.openai import OpenAIServer
from claimscore.pipeline.llm.providers.schema import Dialect, chat_body, encode_json
from claimscore.pipeline.llm.providers.server import decode_json
from claimscore.types import JSON, Completion, Request

T = TypeVar("T")

#: Answers that are kept at a time.
_GROUP = 1000

#: The name under which a job carries our uuid, so that it can be found again.
METADATA = "claimscore"

#: The server ended its work on a job, one way or the other.
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})

#: Characters that some programs take for the end of a line; inside of a JSON text only.
_LINE_ENDS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))

#: The model timed out on the request: it may be billed. Other codes: it was not begun.
_TIMEOUTS = {"request_timeout"}

#: What servers say where a job is too large, or too much waits already. OpenAI; LiteLLM.
_QUEUE_FULL = re.compile(r"token_limit_exceeded|enqueued|too_many_tasks|batch_limit_exceeded")


class NotFoundError(Exception):
    """The server does not know a job, a file or a path by this name (any more)."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerJob:
    """The server's view of a batch job. `faults` are why it was refused as a whole."""

    id: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    completed: int
    faults: tuple[JSON, ...]


class OutputLine(NamedTuple):
    """The outcome of the request with this key; a refusal may teach a dialect."""

    key: str
    outcome: Completion | ClaimscoreError
    refusal: Refusal | None = None


class BatchClient:
    """One server's batch jobs for one model.

    Raises `TransientError`, the errors that stop a run, and `NotFoundError`; none of them holds
    the key.
    """

    def __init__(self, server: OpenAIServer, model: str) -> None:
        self.server = server
        self._model = model
        sdk = server.sdk
        self._contents = sdk.files.with_streaming_response
        self._files, self._batches = sdk.files.with_raw_response, sdk.batches.with_raw_response

    async def aclose(self) -> None:
        """Close connections; may be called twice."""
        await self.server.aclose()

    async def upload(self, path: Path, name: str) -> str:
        """Send a file of requests; its id. It is read while it is sent, not before."""
        with path.open("rb") as stream:
            uploaded = await self._answer(
                self._files.create(
                    file=(name, stream, "application/jsonl"),
                    purpose="batch",
                )
            )
        file_id = _field(uploaded, "id", "")
        if not file_id:
            raise self._odd()
        return file_id

    async def create(self, file_id: str, uuid: str) -> ServerJob:
        """Make a job of a file. After a `TransientError` there may be one all the same."""
        created = self._batches.create(
            input_file_id=file_id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={METADATA: uuid},
        )
        return self._job(await self._answer(created))

    async def find(self, uuid: str) -> ServerJob | None:
        """The job that carries this uuid, if there is one among all of the account's."""
        after: Any = openai.omit
        while True:
            listed = self._batches.list(limit=100, after=after)
            page = await self._answer(listed)
            batches = page.get("data")
            if not isinstance(batches, list):
                raise self._odd()
            for batch in batches:
                if _field(_field(batch, "metadata", {}), METADATA, "") == uuid:
                    return self._job(batch)
            if not batches or page.get("has_more") is False:
                return None
            after = self._job(batches[-1]).id

    async def retrieve(self, batch_id: str) -> ServerJob:
        """How a job stands."""
        looked = self._batches.retrieve(batch_id)
        return self._job(await self._answer(looked))

    async def read_output(
        self, file_id: str, folder: Path, keep: Keep, hand_out: Callable[[OutputLine], None]
    ) -> None:
        """Hand out the lines of an output or error file; its answers go to `keep` before.

        The file may be large: it lies in `folder` meanwhile. Lines may be handed out before an
        error, and again when this is called again.
        """
        with os_errors(folder), tempfile.TemporaryFile(dir=folder) as stream:
            with self._translated(unbounded=True):
                contents = self._contents.content(file_id)
                async with contents as response:
                    async for part in response.iter_bytes():
                        stream.write(part)
            stream.seek(0)
            while lines := await to_thread.run_sync(self._kept_lines, stream, keep):
                for line in lines:
                    hand_out(line)

    def _kept_lines(self, stream: IO[bytes], keep: Keep) -> list[OutputLine]:
        """The next lines of a file, their answers kept already; none at the end."""
        raw = itertools.islice((line for line in stream if line.strip()), _GROUP)
        lines = [self.read_line(line) for line in raw]
        answers = {line.key: line.outcome for line in lines if isinstance(line.outcome, Completion)}
        if answers:
            keep(answers)
        return lines

    def refusal(self, fault: JSON) -> OutputLine:
        """Why a whole job was refused, as if each of its requests had been."""
        return self._refused("", 400, {"error": fault})

    def read_line(self, line: bytes) -> OutputLine:
        """The outcome in a line of an output or error file; `TransientError` where it is broken."""
        item = decode_json(line)
        key = item.get("custom_id") if isinstance(item, dict) else None
        if not isinstance(key, str):
            raise TransientError(f"{self.server.base_url}: a broken line in the answers", "body")
        response = item.get("response")
        if not isinstance(response, dict) or not response.get("status_code"):
            return OutputLine(key, self._not_done(item.get("error")))
        status, body = response["status_code"], response.get("body")
        if not isinstance(status, int) or not 200 <= status < 300:
            return self._refused(key, status if isinstance(status, int) else 500, body)
        stand_in = Request("", "", self._model, ())  # only the model's name is taken from it
        try:
            return OutputLine(key, self.server.completion(body, stand_in))
        except TransientError as exc:
            return OutputLine(key, exc)

    def _refused(self, key: str, status: int, body: object) -> OutputLine:
        refusal = self.server.refusal(status, {}, json.dumps(body).encode())
        return OutputLine(key, self.server.error(refusal, self._model), refusal)

    def _not_done(self, error: object) -> ClaimscoreError:
        """A request that was not begun (the job expired or was cancelled) or timed out."""
        _, meant, refusal = self._refused("", 400, {"error": error})
        if isinstance(meant, QuotaError | UnknownModelError):
            return meant
        assert refusal is not None
        kind: Any = "timeout" if refusal.codes & _TIMEOUTS else "status"
        return TransientError(f"{self.server.base_url}: {refusal.message}", kind)

    async def _answer(self, call: Awaitable[Any]) -> JSON:
        with self._translated():
            answer = decode_json((await call).content)
        if not isinstance(answer, dict):
            raise self._odd()
        return answer

    @contextlib.contextmanager
    def _translated(self, *, unbounded: bool = False) -> Iterator[None]:
        """Errors of the SDK and of its connections as ours, without their causes."""
        try:
            with self.server.connection.translated(unbounded=unbounded):
                try:
                    yield
                    return
                except openai.APIStatusError as exc:
                    status, response = exc.status_code, exc.response
        except (openai.OpenAIError, ValueError):
            raise self._odd() from None
        refusal = self.server.refusal(status, dict(response.headers), response.content)
        error = self.server.error(refusal, self._model)
        if status == 404 and not isinstance(error, UnknownModelError):
            raise NotFoundError(str(error)) from None
        raise error from None

    def _job(self, batch: object) -> ServerJob:
        """Servers leave out what they do not count; without an id or a status it is no job."""
        faults: list[object] = _field(_field(batch, "errors", {}), "data", [])
        job = ServerJob(
            id=_field(batch, "id", ""),
            status=_field(batch, "status", ""),
            output_file_id=_field(batch, "output_file_id", "") or None,
            error_file_id=_field(batch, "error_file_id", "") or None,
            completed=_field(_field(batch, "request_counts", {}), "completed", 0),
            faults=tuple(fault for fault in faults if isinstance(fault, dict)),
        )
        if not job.id or not job.status:
            raise self._odd()
        return job

    def _odd(self) -> TransientError:
        return TransientError(f"{self.server.base_url}: an answer that is none", "body")


def _field(item: object, name: str, default: T) -> T:
    """A field, unless it is not there or of another type than the default."""
    value = item.get(name) if isinstance(item, dict) else None
    return value if isinstance(value, type(default)) else default


def is_queue_full(words: str) -> bool:
    """Whether a refusal says that a smaller job, or a later one, would be taken."""
    return bool(_QUEUE_FULL.search(words.lower()))


def request_line(key: str, request: Request, dialect: Dialect) -> bytes:
    """A request as the server's file wants it; `custom_id` comes first, for `JobJournal.keys`."""
    body = encode_json(chat_body(request, dialect)).decode()
    for character, escape in _LINE_ENDS:
        body = body.replace(character, escape)
    line = (
        f'{{"custom_id": "{key}", "method": "POST", "url": "/v1/chat/completions", '
        f'"body": {body}}}\n'
    )
    return line.encode()
