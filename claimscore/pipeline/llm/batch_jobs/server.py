"""What batch jobs ask of a vendor's server: to take requests, to say how a job stands, to answer.

A server repeats nothing and waits for nothing: that is the work of `BatchProvider`.
"""

from __future__ import annotations

import abc
import dataclasses
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from claimscore.errors import ClaimscoreError, ConfigError, TransientError, UnknownModelError
from claimscore.pipeline.llm.providers.schema import Dialect
from claimscore.pipeline.llm.providers.server import ServerProvider, decode_json
from claimscore.types import JSON, Completion, Request

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

#: The answer to a request, or an error as one asked online has.
Outcome = Completion | ClaimscoreError

#: What servers say where a job is too large, or too much waits already: OpenAI; LiteLLM; Anthropic.
_QUEUE_FULL = re.compile(
    r"token_limit_exceeded|enqueued|too_many_tasks|batch_limit_exceeded|processing queue"
)

#: A file may take so many seconds, and a file of answers have so many bytes.
_FILE_S, _FILE_BYTES = 3600.0, 2**29


class NoSuchJobError(ConfigError):
    """The server does not know a job, or its answers, by this name and for this key (any more)."""


class QueueFullError(TransientError):
    """The server takes no (such large) job now; nothing was paid."""


@dataclasses.dataclass(frozen=True, slots=True)
class JobRecord:
    """One batch job: `keys` are those of its requests, all to one model.

    The server was asked to make it at `sent_at`, in seconds since 1970. `batch_id` is the server's
    id of it; "" where only the server knows whether it was made.
    """

    name: str
    model: str
    keys: tuple[str, ...]
    sent_at: float
    batch_id: str = ""


class ServerJob(NamedTuple):
    """The server's view of a job: its `status` in the server's words.

    `refusal` says why it was refused as a whole. `files` are paths of its results below the base
    URL, a result a line.
    """

    id: str
    status: str
    has_ended: bool
    refusal: ClaimscoreError | None = None
    files: tuple[str, ...] = ()


class BatchServer(abc.ABC):
    """The batch jobs of a vendor's server; `provider` asks that server online.

    Methods raise `claimscore.errors`; `NoSuchJobError` where there is no such job, or no Batch API.
    """

    def __init__(self, provider: ServerProvider) -> None:
        self.provider = provider
        #: How the jobs of this process were asked, by their names.
        self.asked: dict[str, Dialect] = {}

    @abc.abstractmethod
    def line(self, key: str, request: Request) -> bytes:
        """A request as `make` takes it."""

    @abc.abstractmethod
    async def make(self, record: JobRecord, lines: Sequence[bytes]) -> ServerJob:
        """Make a job of requests; `QueueFullError` where the server has no room for it.

        After another `TransientError` than `connect` and `rate_limit` it may be made all the same.
        """

    @abc.abstractmethod
    async def find(self, record: JobRecord) -> list[str]:
        """The ids of the jobs that one whose `make` had no answer may be."""

    @abc.abstractmethod
    async def look(self, record: JobRecord) -> ServerJob:
        """How a job stands."""

    @abc.abstractmethod
    def read(self, line: bytes, record: JobRecord) -> tuple[str, Outcome] | None:
        """Key and outcome of the request that a line is about; None where it cannot be read."""

    async def download(self, path: str) -> bytes:
        """A file of results."""
        from claimscore.pipeline.llm.providers.connection import MOST_BYTES

        connection = self.provider.connection
        url, extensions = connection.base_url + path, {MOST_BYTES: _FILE_BYTES}
        return await self._call(lambda: connection.http.get(url, extensions=extensions))

    # -- for implementations

    async def jobs(self, path: str, cursor: str, limit: int) -> AsyncIterator[JSON]:
        """All jobs of the account, the newest first; `cursor` asks for those after an id."""
        query: JSON = {"limit": limit}
        while True:
            page = await self.ask("get", path, options={"params": query})
            jobs: list[JSON] | None = page.get("data")
            if not isinstance(jobs, list):
                raise self.odd()
            for job in jobs:
                yield job
            if not jobs or page.get("has_more") is False:
                return
            query[cursor] = field(jobs[-1], "id", "")

    async def ask(self, method: str, path: str, **options: Any) -> JSON:
        """The object with which the server answers a call of its SDK."""
        import httpx2

        sdk = self.provider.sdk
        send = partial(getattr(sdk, method), path, cast_to=httpx2.Response, **options)
        answer = decode_json(await self._call(send))
        if not isinstance(answer, dict):
            raise self.odd()
        return answer

    async def _call(self, send: Callable[[], Awaitable[httpx2.Response]]) -> bytes:
        reply = await self.provider.connection.call(send, timeout_s=_FILE_S)
        if not 200 <= reply.status < 300:
            raise self.error(*reply)
        return reply.body

    def answer(self, body: object) -> Outcome:
        """What a decoded answer to one request is."""
        stand_in = Request("", "", self.provider.model, ())  # only the model's name is taken
        try:
            return self.provider.completion(body, stand_in)
        except TransientError as exc:
            return exc

    def odd(self) -> TransientError:
        """The error for an answer that is none."""
        return TransientError(f"{self.provider.base_url}: an answer that is none", "body")

    def error(
        self, status: int, headers: Mapping[str, str], body: bytes, record: JobRecord | None = None
    ) -> ClaimscoreError:
        """What a refusal of a call means, or with `record` of that job or of a request in it.

        Where it is about how the job's requests were asked, the next job asks otherwise.
        """
        provider = self.provider
        refusal = provider.refusal(status, headers, body)
        error = provider.error(refusal, record.model if record else provider.model)
        if status in (400, 413, 429) and _QUEUE_FULL.search(refusal.words):
            return QueueFullError(str(error), "rate_limit")
        if record is not None:
            return provider.refused(refusal, record.model, self.asked.get(record.name, Dialect()))
        if status == 404 and not isinstance(error, UnknownModelError):
            where = f"{provider.base_url}: HTTP 404: {refusal.message}"
            return NoSuchJobError(f"{where}; no such batch, or no Batch API there")
        return error


def field(item: object, name: str, default: T) -> T:
    """A field of a JSON object, unless it is not there or of another type than the default."""
    value = item.get(name) if isinstance(item, dict) else None
    return value if isinstance(value, type(default)) else default
