"""What batch jobs ask of a vendor's server: to take requests, to say how a job stands, to answer.

A server repeats nothing and waits for nothing: that is the work of `BatchProvider`.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO, Any, NamedTuple, TypeVar

import anyio
import httpx2

from claimscore.errors import (
    AskAgain,
    ClaimscoreError,
    ConfigError,
    TransientError,
    UnknownModelError,
)
from claimscore.pipeline.llm.batch_jobs.journal import JobRecord
from claimscore.pipeline.llm.providers.connection import UNBOUNDED
from claimscore.pipeline.llm.providers.schema import Dialect, learn_dialect
from claimscore.pipeline.llm.providers.server import ServerProvider, decode_json
from claimscore.types import JSON, Completion, Request

T = TypeVar("T")

#: The answer to a request, or an error as one asked online has.
Outcome = Completion | ClaimscoreError

#: What servers say where a job is too large, or too much waits already: OpenAI; LiteLLM; Anthropic.
_QUEUE_FULL = re.compile(
    r"token_limit_exceeded|enqueued|too_many_tasks|batch_limit_exceeded|processing queue"
)

#: A file may take so many seconds.
_FILE_S = 3600.0


class NoSuchJobError(ClaimscoreError):
    """The server does not know a job, or its answers, by this name and for this key (any more)."""


class QueueFullError(TransientError):
    """The server takes no (such large) job now; nothing was paid."""


class ServerJob(NamedTuple):
    """The server's view of a job: its `status` in the server's words, and requests answered.

    `refusal` says why it was refused as a whole. `files` are paths of its results below the base
    URL, a result a line.
    """

    id: str
    status: str
    has_ended: bool
    n_answered: int = 0
    refusal: ClaimscoreError | None = None
    files: tuple[str, ...] = ()


class BatchServer(abc.ABC):
    """The batch jobs of a vendor's server; `provider` asks that server online.

    Methods raise `claimscore.errors`. After a `TransientError` that is neither `connect` nor
    `rate_limit`, `send` may have made the job all the same.
    """

    max_requests: int
    #: Fewer than any server allows: they are held in memory.
    max_bytes = 100_000_000

    def __init__(self, provider: ServerProvider) -> None:
        self.provider = provider
        self.dialect = Dialect()
        #: How the requests of a job were asked; of another process's job that is not known.
        self._asked: dict[str, Dialect] = {}

    @abc.abstractmethod
    def line(self, key: str, request: Request) -> bytes:
        """A request as `make` takes it."""

    @abc.abstractmethod
    async def make(self, name: str, lines: Sequence[bytes]) -> ServerJob:
        """Make a job of requests; `QueueFullError` where the server has no room for it."""

    @abc.abstractmethod
    async def find(self, record: JobRecord) -> list[str]:
        """The ids of the jobs that may be one whose `make` had no answer; empty where it was not
        made."""

    @abc.abstractmethod
    async def look(self, batch_id: str) -> ServerJob:
        """How a job stands; `NoSuchJobError` where there is none."""

    @abc.abstractmethod
    def read(self, line: bytes, batch_id: str) -> tuple[str, Outcome] | None:
        """Key and outcome of the request that a line is about; None where it cannot be read."""

    async def send(self, name: str, lines: Sequence[bytes]) -> str:
        """Make a job of requests; its id."""
        asked, online = self.dialect, f"{self.provider.family}:{self.provider.model}"
        try:
            batch_id = (await self.make(name, lines)).id
        except NoSuchJobError as exc:
            raise ConfigError(f"no Batch API there ({exc}); use --llm {online}") from None
        self._asked[batch_id] = asked
        return batch_id

    async def download(self, path: str, stream: IO[bytes]) -> None:
        """Write a file of results to a stream; `NoSuchJobError` where there is none."""
        connection = self.provider.server.connection
        url, extensions = connection.base_url + path, {UNBOUNDED: True}
        with anyio.move_on_after(_FILE_S), connection.translated():
            async with connection.http.stream("GET", url, extensions=extensions) as response:
                if not response.is_success:
                    body = await response.aread()
                    raise self._refused(response.status_code, response.headers, body)
                async for part in response.aiter_bytes():
                    stream.write(part)
                return
        raise self.odd()

    # -- for implementations

    async def ask(self, method: str, path: str, **options: Any) -> JSON:
        """The object with which the server answers a call of its SDK."""
        server = self.provider.server
        send = partial(getattr(server.sdk, method), path, cast_to=httpx2.Response, **options)
        reply = await server.connection.call(send, timeout_s=_FILE_S)
        if not 200 <= reply.status < 300:
            raise self._refused(*reply)
        answer = decode_json(reply.body)
        if not isinstance(answer, dict):
            raise self.odd()
        return answer

    def answer(self, body: object) -> Outcome:
        """What a decoded answer to one request is."""
        stand_in = Request("", "", self.provider.model, ())  # only the model's name is taken
        try:
            return self.provider.server.completion(body, stand_in)
        except TransientError as exc:
            return exc

    def odd(self) -> TransientError:
        """The error for an answer that is none."""
        return TransientError(f"{self.provider.base_url}: an answer that is none", "body")

    def error(
        self, status: int, body: bytes, batch_id: str = "", headers: Mapping[str, str] | None = None
    ) -> ClaimscoreError:
        """What a refusal of a call, of a job or of one of its requests means.

        Where it is about how the job's requests were asked, the next job asks otherwise.
        """
        server, model = self.provider.server, self.provider.model
        refusal = server.refusal(status, headers or {}, body)
        asked = self._asked.get(batch_id, Dialect())
        learnt = learn_dialect(refusal, asked) if batch_id else None
        if learnt is not None:
            if self.dialect == asked:  # else another job has taught it
                self.dialect = learnt
            return AskAgain(f"{server.base_url}: {refusal.message}")
        error: ClaimscoreError = server.error(refusal, model)
        is_full = status in (400, 413, 429) and _QUEUE_FULL.search(refusal.words)
        return QueueFullError(str(error)) if is_full else error

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes) -> ClaimscoreError:
        error = self.error(status, body, headers=headers)
        is_absent = status == 404 and not isinstance(error, UnknownModelError)
        return NoSuchJobError(str(error)) if is_absent else error


def field(item: object, name: str, default: T) -> T:
    """A field of a JSON object, unless it is not there or of another type than the default."""
    value = item.get(name) if isinstance(item, dict) else None
    return value if isinstance(value, type(default)) else default
