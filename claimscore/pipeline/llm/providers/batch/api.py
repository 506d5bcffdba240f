"""`/files` and `/batches` of OpenAI and of servers that have them. The only home of the SDK.

It is slow to import, so whoever may need it imports this module when the need is there.
Nothing is sent twice from here: whether a batch was made by a request whose answer was lost
is for the caller to find out.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import httpx2
import openai
from openai.pagination import AsyncCursorPage
from openai.types import Batch, FileObject

from claimscore.errors import (
    ClaimscoreError,
    ConfigError,
    RejectedError,
    TransientError,
    UnknownModelError,
)
from claimscore.http_policy import tls_context
from claimscore.pipeline.llm.providers.batch.lines import GoneError, ServerBatch
from claimscore.pipeline.llm.providers.errors import read_refusal, scrubbed, translate_error

T = TypeVar("T")

#: The name under which a batch carries our uuid, so that it can be found again.
METADATA = "claimscore"

_CONNECT_S = 15.0
_CHUNK_BYTES = 2**16


class BatchAPI:
    """One server and key. Raises `TransientError` and what stops a run, and `GoneError`."""

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None,
        model: str,
        timeout_s: float,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._base_url = base_url
        self._key = key
        self._model = model
        # Said outright: the SDK would look for credentials and names in the environment.
        self._headers: Any = {
            "Authorization": f"Bearer {key}" if key else openai.Omit(),
            "OpenAI-Organization": openai.Omit(),
            "OpenAI-Project": openai.Omit(),
        }
        self._client = openai.AsyncOpenAI(
            api_key=key or "",
            base_url=base_url,
            max_retries=0,
            timeout=httpx2.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s), pool=None),
            http_client=httpx2.AsyncClient(
                follow_redirects=False, transport=transport, verify=tls_context()
            ),
            _enforce_credentials=False,
        )

    async def aclose(self) -> None:
        await self._client.close()

    async def upload(self, path: Path, name: str) -> str:
        """Send a file of requests; its id. It is read while it is sent, not before."""
        with self._mapped(), path.open("rb") as stream:
            uploaded = await self._client.files.create(
                file=(name, stream, "application/jsonl"),
                purpose="batch",
                extra_headers=self._headers,
            )
            return _whole(uploaded, FileObject).id

    async def find_file(self, name: str, n_bytes: int) -> str | None:
        """The id of a whole file of this name; None also where the server lists no files."""
        try:
            with self._mapped():
                files = self._client.files.list(purpose="batch", extra_headers=self._headers)
                async for file in _all(files):
                    if file.filename == name and file.bytes == n_bytes:
                        found: str = _whole(file, FileObject).id
                        return found
        except (GoneError, ConfigError, RejectedError):
            pass  # then it is sent again, which costs nothing
        return None

    async def create(self, file_id: str, uuid: str) -> ServerBatch:
        """Make a batch of a file. After a `TransientError` there may be one all the same."""
        with self._mapped():
            return _server_batch(
                await self._client.batches.create(
                    input_file_id=file_id,
                    endpoint="/v1/chat/completions",
                    completion_window="24h",
                    metadata={METADATA: uuid},
                    extra_headers=self._headers,
                )
            )

    async def find_batch(self, uuid: str) -> ServerBatch | None:
        """The batch that carries this uuid, if there is one among all of the account's."""
        with self._mapped():
            batches = self._client.batches.list(limit=100, extra_headers=self._headers)
            async for batch in _all(batches):
                if (batch.metadata or {}).get(METADATA) == uuid:
                    return _server_batch(batch)
        return None

    async def retrieve(self, batch_id: str) -> ServerBatch:
        """How a batch stands."""
        with self._mapped():
            return _server_batch(
                await self._client.batches.retrieve(batch_id, extra_headers=self._headers)
            )

    async def download(self, file_id: str, stream: BinaryIO) -> None:
        """Write a file of the server's, which may be large, to `stream`."""
        with self._mapped():
            contents = self._client.files.with_streaming_response
            async with contents.content(file_id, extra_headers=self._headers) as response:
                async for part in response.iter_bytes(_CHUNK_BYTES):
                    stream.write(part)

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        """Errors of the SDK and of its transport as ours.

        Causes are cut off (`from None`): they may quote headers or a key.
        """
        try:
            yield
        except openai.NotFoundError as exc:
            error = self._refusal(exc)
            if isinstance(error, UnknownModelError):
                raise error from None
            raise GoneError(str(error)) from None
        except openai.APIStatusError as exc:
            raise self._refusal(exc) from None
        except (openai.APITimeoutError, httpx2.TimeoutException):
            raise TransientError(f"{self._base_url}: no answer in time", "timeout") from None
        except (openai.APIConnectionError, httpx2.TransportError) as exc:
            cause = exc.__cause__ or exc
            kind: Any = "connect" if isinstance(cause, httpx2.ConnectError) else "dropped"
            reason = scrubbed(str(cause) or "the connection broke", self._key)
            raise TransientError(f"{self._base_url}: connection failed: {reason}", kind) from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as exc:
            raise ConfigError(f"{self._base_url}: {scrubbed(str(exc), self._key)}") from None
        except (openai.OpenAIError, httpx2.HTTPError, ValueError):
            raise TransientError(f"{self._base_url}: an answer that is none", "body") from None

    def _refusal(self, exc: openai.APIStatusError) -> ClaimscoreError:
        response = exc.response
        headers = {name.lower(): value for name, value in response.headers.items()}
        complaint = read_refusal(exc.status_code, headers, response.content, self._key)
        return translate_error(complaint, base_url=self._base_url, model=self._model)


async def _all(first: Awaitable[Any]) -> AsyncIterator[Any]:
    """All items of a list that comes in pages."""
    page = await _page(first)
    while True:
        for item in page.data or []:
            yield item
        if not page.has_next_page():
            return
        page = await _page(page.get_next_page())


async def _page(listing: Awaitable[Any]) -> Any:
    try:
        return _whole(await listing, AsyncCursorPage)
    except AttributeError:  # the SDK's own, where the server sent no JSON
        raise ValueError("no list") from None


def _server_batch(batch: Any) -> ServerBatch:
    """Servers leave out what they do not count; without an id or a status it is no batch."""
    _whole(batch, Batch)
    if not isinstance(batch.status, str):
        raise ValueError("a batch without a status")
    counts, errors = batch.request_counts, batch.errors
    faults = (errors.data if errors is not None else None) or []
    return ServerBatch(
        id=batch.id,
        status=batch.status,
        output_file_id=batch.output_file_id or None,
        error_file_id=batch.error_file_id or None,
        completed=(counts.completed if counts is not None else None) or 0,
        failed=(counts.failed if counts is not None else None) or 0,
        faults=tuple({"code": f.code, "message": f.message, "param": f.param} for f in faults),
    )


def _whole(answer: T, kind: type[Any]) -> T:
    """The SDK hands on what it cannot read; `ValueError` where this is no `kind` with an id."""
    if not isinstance(answer, kind) or not isinstance(getattr(answer, "id", ""), str):
        raise ValueError(f"no {kind.__name__}")
    return answer
