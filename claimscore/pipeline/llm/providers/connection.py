"""Connections to one server, for the SDK of any vendor: what is sent, read, and what breaks.

An SDK gets `Connection.http` as its `http_client`. Whatever it does by itself, no redirect is
followed, no header is sent that the environment adds, and no answer fills the memory. Nothing is
sent twice from here: the server may have done, and billed, a request that it did not get to
answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import anyio
import httpx2

from claimscore import __version__
from claimscore.errors import TransientError
from claimscore.http_policy import no_answer, open_network, time_limits, translate_http_error

#: A larger answer is a broken one.
MAX_BODY_BYTES = 64 * 2**20

#: What a request keeps of an SDK's headers; all others are ours.
_KEPT = frozenset({b"accept", b"content-length", b"content-type", b"transfer-encoding"})

#: Whether an answer is written to disk as it comes, and so may be of any size.
_unbounded: ContextVar[bool] = ContextVar("unbounded", default=False)


class Reply(NamedTuple):
    """A response, read to its end. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One server's connections, and what breaks on them as errors of ours.

    `headers` go with every request, `host`, `user-agent` and `accept-encoding` besides; of an
    SDK's own headers only those that describe the body. `secrets` are left out of errors.
    `transport` replaces the network in tests. Raises `ConfigError` where the environment names a
    proxy that cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float,
        max_connections: int | None = None,
        headers: Mapping[str, str] | None = None,
        secrets: tuple[str, ...] = (),
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = base_url
        self.timeout_s = timeout_s
        self._secrets = secrets
        self._trusted = False
        sent = {
            "host": httpx2.URL(base_url).netloc.decode("ascii"),
            "user-agent": f"claimscore/{__version__}",
            **{name.lower(): value for name, value in (headers or {}).items()},
            "accept-encoding": "identity",
        }
        network = transport or open_network(
            httpx2.AsyncHTTPTransport, base_url, max_connections=max_connections
        )
        self.http = httpx2.AsyncClient(
            transport=_Guard(network, base_url, sent),
            timeout=time_limits(timeout_s),
            follow_redirects=False,
            trust_env=False,
        )

    async def call(
        self, send: Callable[[], Awaitable[httpx2.Response]], *, timeout_s: float | None = None
    ) -> Reply:
        """Make one request within `timeout_s` as a whole (None: the connection's own); a reply of
        any status comes back.

        `send` is a call of an SDK whose retries are off, or of `http`. Raises `TransientError` of
        kind connect (nothing was sent), dropped (no answer to what was sent), timeout or body
        (a broken answer), and `ConfigError`. No message quotes what was sent or received.
        """
        timeout_s = timeout_s or self.timeout_s
        with anyio.move_on_after(timeout_s), self.translated():
            try:
                response = await send()
            except Exception as exc:  # an SDK's own class for a refusal, with the response
                refused = getattr(exc, "response", None)
                if not isinstance(refused, httpx2.Response):
                    raise
                response = refused
            lines = response.headers.raw
            headers = {name.lower().decode(): value.decode("latin-1") for name, value in lines}
            return Reply(response.status_code, headers, response.content)
        raise no_answer(self.base_url, timeout_s)

    @contextlib.contextmanager
    def translated(self, *, unbounded: bool = False) -> Iterator[None]:
        """What breaks in a use of `http`, by an SDK or directly, as errors of ours.

        `unbounded`: the answer is written to disk as it comes. Causes are cut off (`from None`):
        they may quote headers or a key.
        """
        token = _unbounded.set(unbounded)
        try:
            yield
            self._trusted = True
        except Exception as exc:
            error = translate_http_error(
                exc,
                self.base_url,
                timeout_s=self.timeout_s,
                trusted=self._trusted,
                secrets=self._secrets,
            )
            if error is None:
                raise
            raise error from None
        finally:
            _unbounded.reset(token)

    async def aclose(self) -> None:
        """Close connections; may be called twice."""
        await self.http.aclose()


class _Guard(httpx2.AsyncBaseTransport):
    """Around a transport: sends our headers, and reads only what an answer may be."""

    def __init__(
        self, network: httpx2.AsyncBaseTransport, base_url: str, headers: Mapping[str, str]
    ) -> None:
        self._network = network
        self._base_url = base_url
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        kept = [line for line in request.headers.raw if line[0].lower() in _KEPT]
        sent = httpx2.Request(  # an SDK looks its own headers up again in the request
            request.method,
            request.url,
            headers=kept + self._headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        response = await self._network.handle_async_request(sent)
        is_plain = all(
            value.lower() == b"identity"
            for name, value in response.headers.raw
            if name.lower() == b"content-encoding"
        )
        if not response.is_success:  # an SDK decodes it, and a charset may name a way to unpack
            response.headers["content-type"] = "application/json"
        if is_plain:
            response.stream = _Body(response, self._base_url)
            return response
        await response.aclose()
        if response.is_success:
            raise TransientError(f"{self._base_url}: the answer cannot be decoded", "body")
        del response.headers["content-encoding"]
        return httpx2.Response(response.status_code, headers=response.headers, content=b"")

    async def aclose(self) -> None:
        await self._network.aclose()


class _Body(httpx2.AsyncByteStream):
    """A response's body; of a refusal that breaks off, what came."""

    def __init__(self, response: httpx2.Response, base_url: str) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._stream = response.stream
        self._network: Any = response.extensions.get("network_stream")
        self._is_answer = response.is_success
        self._base_url = base_url
        self._left = float("inf") if _unbounded.get() else MAX_BODY_BYTES

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                self._left -= len(part)
                if self._left < 0:
                    raise TransientError(
                        f"{self._base_url}: the answer is larger than {MAX_BODY_BYTES:,} bytes",
                        "body",
                    )
                yield part
        except (httpx2.NetworkError, httpx2.ProtocolError):
            if self._is_answer:
                raise TransientError(f"{self._base_url}: the answer broke off", "body") from None
        if self._network is not None and _read_beyond(self._stream):
            await self._network.aclose()  # so it is not used again

    async def aclose(self) -> None:
        await self._stream.aclose()


def _read_beyond(stream: object) -> bool:
    """Whether more was read than this response: httpx2 would take it for the next one.

    Nothing public tells. Where the way there is another one day, the answer is yes.
    """
    for name in ("_httpcore_stream", "_stream", "_connection", "_h11_state", "trailing_data"):
        stream = getattr(stream, name, None)
    return stream != (b"", False)
