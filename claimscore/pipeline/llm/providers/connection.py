"""Connections to one server, for the SDK of any vendor: what is sent, read, and what breaks.

An SDK gets `Connection.http` as its `http_client`. Whatever it does by itself, no redirect is
followed, no header is sent that the environment adds, and no answer fills the memory. Nothing is
sent twice from here: the server may have done, and billed, a request that it did not get to
answer.
"""

from __future__ import annotations

import collections
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import NamedTuple

import anyio
import httpx2

from claimscore import __version__
from claimscore.errors import ClaimscoreError, ConfigError, TransientError
from claimscore.http_policy import (
    CONNECT_S,
    IDLE_S,
    open_line,
    password_wanted,
    reason_of,
    scrubbed,
)

#: A larger answer is a broken one.
MAX_BODY_BYTES = 64 * 2**20

#: What a request keeps of an SDK's headers; all others are ours.
_KEPT = frozenset({b"accept", b"content-length", b"content-type", b"transfer-encoding"})

#: What an SDK would unpack an answer by; a charset may be one of `zlib` too.
_UNPACKS = frozenset({b"content-encoding", b"content-type"})

#: The extension of a request whose answer may have so many bytes instead.
MOST_BYTES = "claimscore.most_bytes"


class Reply(NamedTuple):
    """A response, read to its end. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One server's connections, and what breaks on them as errors of ours.

    `headers` go with every request, `host`, `user-agent` and `accept-encoding` besides; of an
    SDK's own headers only those that describe the body. `secrets` are left out of errors. There are
    as many connections as requests at a time. `transport` replaces the network in tests. Raises
    `ConfigError` where the environment names a proxy that cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        secrets: tuple[str, ...] = (),
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = base_url
        self.timeout_s = timeout_s
        self._secrets = secrets
        sent = {
            "host": httpx2.URL(base_url).netloc.decode("ascii"),
            "user-agent": f"claimscore/{__version__}",
            **{name.lower(): value for name, value in (headers or {}).items()},
            "accept-encoding": "identity",
        }
        connect_s = min(CONNECT_S, timeout_s / 2)
        self.http = httpx2.AsyncClient(
            transport=_Guard(base_url, sent, transport),
            timeout=httpx2.Timeout(timeout_s, connect=connect_s, pool=None),
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
        with anyio.move_on_after(timeout_s):
            try:
                response = await send()
            except Exception as exc:
                refused = getattr(exc, "response", None)  # of an SDK's class for a refusal
                if not isinstance(refused, httpx2.Response):
                    raise self._error(exc) from None  # a cause may quote headers or a key
                response = refused
            lines = response.headers.raw
            headers = {name.lower().decode(): value.decode("latin-1") for name, value in lines}
            return Reply(response.status_code, headers, response.content)
        raise self._no_answer(timeout_s)

    async def aclose(self) -> None:
        """Close connections; may be called twice."""
        await self.http.aclose()

    def _error(self, exc: Exception) -> Exception:
        """The error of ours that an exception is by its cause; itself where it is none of HTTP.

        An SDK's own classes do not tell whether anything was sent; their causes do.
        """
        cause: BaseException | None = exc
        while cause is not None:
            if isinstance(cause, ClaimscoreError):
                return cause
            if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
                return self._not_reached(cause)
            if isinstance(cause, httpx2.TimeoutException):
                return self._no_answer(self.timeout_s)
            if isinstance(cause, httpx2.TransportError | ssl.SSLError | anyio.EndOfStream):
                message = f"{self.base_url} hung up without an HTTP answer"
                return TransientError(message, "dropped")
            cause = cause.__cause__
        return exc

    def _not_reached(self, exc: BaseException) -> ClaimscoreError:
        """Nothing was sent. Waiting helps neither against a certificate that is not trusted nor
        against a proxy that wants a password."""
        if isinstance(exc, httpx2.ProxyError):  # whose words are not shown
            if str(exc).startswith("407"):
                return password_wanted(self.base_url)
            why = f"the proxy answers {str(exc)[:3]}"
        else:
            is_late = isinstance(exc, httpx2.ConnectTimeout)
            why = "it took too long" if is_late else scrubbed(reason_of(exc), *self._secrets)
        if "CERTIFICATE_VERIFY_FAILED" in str(exc):
            return ConfigError(
                f"{self.base_url}: its certificate is not trusted ({why}); check the address, or "
                "name the certificate of your own authority in SSL_CERT_FILE"
            )
        return TransientError(f"{self.base_url} cannot be reached: {why}", "connect")

    def _no_answer(self, timeout_s: float) -> TransientError:
        """The answer may come, and be billed, afterwards."""
        return TransientError(f"{self.base_url}: no answer within {timeout_s:g} s", "timeout")


class _Guard(httpx2.AsyncBaseTransport):
    """Sends our headers, and reads only what an answer may be.

    Each connection is a transport of its own, here a line: httpx2's pool looks at all that it has
    at every request, which for a hundred takes longer than the request itself.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        replacement: httpx2.AsyncBaseTransport | None,
    ) -> None:
        self.base_url = base_url
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._replacement = replacement
        #: Since when, and which; the one used last is used first.
        self._idle: collections.deque[tuple[float, httpx2.AsyncBaseTransport]] = collections.deque()
        self._is_closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        kept = [header for header in request.headers.raw if header[0].lower() in _KEPT]
        sent = httpx2.Request(  # an SDK looks its own headers up again in the request
            request.method,
            request.url,
            headers=kept + self._headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        line = self._idle.pop()[1] if self._idle else self._replacement or open_line(self.base_url)
        try:
            response = await line.handle_async_request(sent)
        except BaseException:
            await self.put_back(line)
            raise
        body: httpx2.AsyncByteStream = _Body(
            self, line, response, request.extensions.get(MOST_BYTES, MAX_BODY_BYTES)
        )
        lines = response.headers.raw
        codings = {value.lower() for name, value in lines if name.lower() == b"content-encoding"}
        if codings - {b"identity"}:
            await body.aclose()
            if response.is_success:
                raise TransientError(f"{self.base_url}: the answer cannot be decoded", "body")
            body = httpx2.ByteStream(b"")
        return httpx2.Response(
            response.status_code,
            headers=[header for header in lines if header[0].lower() not in _UNPACKS],
            stream=body,
            extensions=response.extensions,
        )

    async def put_back(self, line: httpx2.AsyncBaseTransport) -> None:
        """Keep a line for the next request; one that was idle for long is closed instead."""
        now = anyio.current_time()
        self._idle.append((now, line))
        with anyio.CancelScope(shield=True):
            while self._idle and (self._is_closed or self._idle[0][0] < now - IDLE_S):
                await self._idle.popleft()[1].aclose()

    async def aclose(self) -> None:
        """Close what is idle now, and the rest as it comes back."""
        self._is_closed = True
        while self._idle:
            await self._idle.popleft()[1].aclose()


class _Body(httpx2.AsyncByteStream):
    """A response's body; of a refusal that breaks off, what came. Its end frees the line."""

    def __init__(
        self,
        guard: _Guard,
        line: httpx2.AsyncBaseTransport,
        response: httpx2.Response,
        most_bytes: int,
    ) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._guard = guard
        self._line: httpx2.AsyncBaseTransport | None = line
        self._stream = response.stream
        self._is_answer = response.is_success
        self._most_bytes = self._left = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        url = self._guard.base_url
        try:
            async for part in self._stream:
                self._left -= len(part)
                if self._left < 0:
                    message = f"the answer is larger than {self._most_bytes:,} bytes"
                    raise TransientError(f"{url}: {message}", "body")
                yield part
        except (httpx2.NetworkError, httpx2.ProtocolError):
            if self._is_answer:
                raise TransientError(f"{url}: the answer broke off", "body") from None

    async def aclose(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            is_spoilt = _read_beyond(self._stream)
            try:
                await self._stream.aclose()
                if is_spoilt:
                    await line.aclose()
            finally:
                await self._guard.put_back(line)


def _read_beyond(stream: object) -> bool:
    """Whether more was read than this response: httpx2 would take it for the next one.

    Nothing public tells. Where the way there is another one day, the answer is yes.
    """
    for name in ("_httpcore_stream", "_stream", "_connection", "_h11_state", "trailing_data"):
        stream = getattr(stream, name, None)
    return stream != (b"", False)
