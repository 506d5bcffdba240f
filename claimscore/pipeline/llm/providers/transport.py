"""Connections to one server: a request goes out, a whole reply comes back or an error of ours.

`DirectTransport` has connections of its own and reads replies with httptools, Node's parser in C:
a request takes the connection that was idle last, or opens one, and has it for itself. It costs
an eighth of the CPU time of an httpx2 client (decision 42 has the figures).
`ClientTransport` is that client, for proxies and for tests.

Nothing is sent twice from here: the server may have done, and billed, a request that it did not
get to answer. An idle connection that the server has closed is recognised before it is used.
There remains the server that hangs up in the moment of sending; the caller judges that.
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import socket
import ssl
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import anyio
import httptools
import httpx2
from anyio.abc import ByteStream, SocketAttribute

from claimscore.errors import TransientError
from claimscore.http_policy import (
    IDLE_S,
    client_options,
    connect_limit_s,
    may_be_proxied,
    no_answer,
    not_reached,
    proxy_errors,
    socket_options,
    tls_context,
    translate_http_error,
    undecodable,
    untrusted,
)

#: A larger answer is a broken one.
MAX_BODY_BYTES = 64 * 2**20

Headers = Sequence[tuple[bytes, bytes]]

#: What a broken connection raises; `anyio.EndOfStream` is an orderly end.
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Reply(NamedTuple):
    """A response, read to its end. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def open_transport(
    base_url: str, timeout_s: float, replacement: httpx2.AsyncBaseTransport | None = None
) -> Transport:
    """Direct connections, unless a test's replacement or a proxy of the environment is between."""
    if replacement is not None or may_be_proxied(base_url):
        return ClientTransport(base_url, timeout_s, replacement)
    return DirectTransport(base_url, timeout_s)


# -- direct


class DirectTransport:
    """Asks one server, through connections of its own and HTTP/1.1; many tasks may use it at once.

    Raises `TransientError` of kind connect, dropped, timeout or body, and `ConfigError`. No
    message quotes what was sent or received.
    """

    def __init__(self, base_url: str, timeout_s: float) -> None:
        parts = urlsplit(base_url)
        self._base_url = base_url
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._path = quote(parts.path, safe="/%:@!$&'()*+,;=~").encode()
        self._host_lines = (
            b" HTTP/1.1\r\nhost: " + parts.netloc.encode("ascii") + b"\r\n"
            b"accept-encoding: identity\r\n"
        )
        self._timeout_s = timeout_s
        self._connect_s = connect_limit_s(timeout_s)
        self._idle: collections.deque[Connection] = collections.deque()
        self._closed = False
        self._trusted = False

    async def send(self, method: str, path: str, headers: Headers, body: bytes = b"") -> Reply:
        """Ask for `path`, which is below the base URL. A redirect is a reply like any other."""
        parts = [method.encode(), b" ", self._path, path.encode(), self._host_lines]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if body:
            parts.append(b"content-length: %d\r\n" % len(body))
        data = b"".join((*parts, b"\r\n", body))
        deadline = anyio.current_time() + self._timeout_s
        connection = await self._idle_connection() or await self._connect()
        reply = None
        try:
            with anyio.CancelScope(deadline=deadline):
                reply = await connection.exchange(data)
        finally:  # whatever ended it, a cancellation too: what was not read whole is closed
            await self._put_back(connection, whole=reply is not None)
        if reply is None:
            raise no_answer(self._base_url, self._timeout_s)
        return reply

    async def aclose(self) -> None:
        """Close what is idle, and the rest as it comes back; may be called twice."""
        self._closed = True
        while self._idle:
            await self._idle.pop().aclose()

    async def _idle_connection(self) -> Connection | None:
        """The connection used last, of those that are still good."""
        oldest = time.monotonic() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since >= oldest and not connection.is_readable():
                return connection
            await connection.aclose()
        return None

    async def _put_back(self, connection: Connection, *, whole: bool) -> None:
        if not whole or self._closed or not connection.may_be_used_again:
            await connection.aclose()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if self._idle[0].idle_since < connection.idle_since - IDLE_S:
            await self._idle.popleft().aclose()  # one a request is enough

    async def _connect(self) -> Connection:
        options: Any = {}
        if self._secure:  # many servers hang up without TLS's good-bye: not standard compatible
            options = {"ssl_context": tls_context(), "tls_standard_compatible": False}
        stream: ByteStream | None = None
        try:
            with anyio.move_on_after(self._connect_s):
                stream = await anyio.connect_tcp(self._host, self._port, **options)
        except ssl.SSLCertVerificationError as exc:
            raise untrusted(self._base_url, exc.verify_message, before=self._trusted) from None
        except (*_BROKEN, anyio.EndOfStream) as exc:
            raise not_reached(self._base_url, _reason(exc)) from None
        if stream is None:
            raise not_reached(self._base_url, f"it took more than {self._connect_s:g} s")
        self._trusted = True
        for option in socket_options():
            stream.extra(SocketAttribute.raw_socket).setsockopt(*option)
        return Connection(stream, self._base_url)


class Connection:
    """A connection and where its conversation stands; used by one request at a time."""

    __slots__ = ("_base_url", "_socket", "_stream", "idle_since", "may_be_used_again")

    def __init__(self, stream: ByteStream, base_url: str) -> None:
        self._stream = stream
        self._base_url = base_url
        self._socket = stream.extra(SocketAttribute.raw_socket)
        self.may_be_used_again = True
        self.idle_since = 0.0

    async def exchange(self, request: bytes) -> Reply:
        """Send and read everything. Unless this returns, the connection must be closed."""
        with contextlib.suppress(*_BROKEN):  # the server may have said why before it hung up
            await self._stream.send(request)
        parser = ReplyParser()
        try:
            while not (parser.is_whole or parser.is_broken):
                parser.feed(await self._stream.receive())
        except anyio.EndOfStream:
            parser.hung_up()
        except _BROKEN:
            pass
        self.may_be_used_again = parser.may_follow
        if parser.status is None:
            what = "sent no whole HTTP answer" if parser.n_bytes else "hung up without an answer"
            raise TransientError(f"{self._base_url} {what}", "dropped")
        if parser.n_bytes > MAX_BODY_BYTES:
            raise _too_large(self._base_url)
        if not parser.is_whole and parser.status < 300:
            raise TransientError(f"{self._base_url}: the answer broke off", "body")
        return _decompressed(parser.reply(), self._base_url)

    def is_readable(self) -> bool:
        """Whether an idle connection was closed, or holds an answer that no request asked for."""
        if self._socket.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()


class ReplyParser:
    """Takes the bytes of one response, in whatever pieces they come; `MAX_BODY_BYTES` at most.

    `status` is None until its head is there; 100 and the like are passed over. Once it
    `is_whole` or `is_broken`, there is nothing more to read.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.n_bytes = 0
        self.is_whole = False
        self.is_broken = False
        #: Whether the next response may come on the same connection.
        self.may_follow = False
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._ends_with_connection = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """The next bytes, not after the end."""
        self.n_bytes += len(data)
        self.is_broken = self.n_bytes > MAX_BODY_BYTES
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.may_follow = False  # a whole one may have been followed by noise
            self.is_broken |= not self.is_whole

    def hung_up(self) -> None:
        """The server has closed the connection, which may be how it ends its answer."""
        self.is_whole |= self._ends_with_connection and not self.is_broken

    def reply(self) -> Reply:
        """The reply so far; there must be a head."""
        assert self.status is not None, "asked for before there was a head"
        return Reply(self.status, self._headers, b"".join(self._parts))

    # -- called by httptools

    def on_message_begin(self) -> None:
        if self.is_whole:
            self.may_follow = False  # an answer to no request must not become the next one's

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status is None:  # else it is a trailer
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.status is not None or status < 200:
            return
        self.status, headers = status, self._headers
        is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._ends_with_connection = not is_chunked and "content-length" not in headers

    def on_body(self, data: bytes) -> None:
        if not self.is_whole:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        if self.status is None:
            self._headers.clear()  # a 100 and its like
        elif not self.is_whole and not self.is_broken:
            self.is_whole = True
            self.may_follow = self._parser.should_keep_alive()


# -- through httpx2


class ClientTransport:
    """The same through an httpx2 client: slower, but it knows proxies and files; `replacement` is
    for tests.

    Raises `ConfigError` where the environment names a proxy that cannot be used. `key` is left out
    of errors.
    """

    def __init__(
        self,
        base_url: str,
        timeout_s: float,
        replacement: httpx2.AsyncBaseTransport | None = None,
        key: str | None = None,
    ) -> None:
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._key = key
        self._trusted = False
        options = client_options(base_url, timeout_s, httpx2.AsyncHTTPTransport)
        if replacement is not None:
            options["transport"] = replacement
        with proxy_errors():
            self.client = httpx2.AsyncClient(**options)

    async def send(self, method: str, path: str, headers: Headers, body: bytes = b"") -> Reply:
        url = self._base_url + path
        with anyio.move_on_after(self._timeout_s), self.translated():
            async with self.client.stream(
                method, url, headers=list(headers), content=body or None
            ) as response:
                content = bytearray()
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > MAX_BODY_BYTES:
                        raise _too_large(self._base_url)
                return Reply(response.status_code, dict(response.headers), bytes(content))
        raise no_answer(self._base_url, self._timeout_s)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """What breaks in a use of the client, as ours.

        Causes are cut off (`from None`): they may quote headers or a key.
        """
        try:
            yield
            self._trusted = True
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            raise translate_http_error(
                exc,
                self._base_url,
                timeout_s=self._timeout_s,
                trusted=self._trusted,
                key=self._key,
            ) from None

    async def aclose(self) -> None:
        await self.client.aclose()


# -- both

#: What asks one server.
Transport = DirectTransport | ClientTransport


def _decompressed(reply: Reply, base_url: str) -> Reply:
    """The body as it was meant; some servers compress it though they were asked not to."""
    coding = reply.headers.get("content-encoding", "identity").lower()
    if coding == "identity":
        return reply
    body = None
    if coding in ("gzip", "x-gzip", "deflate"):
        decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)
        with contextlib.suppress(zlib.error):
            body = decoder.decompress(reply.body, MAX_BODY_BYTES)
            body = body if decoder.eof else None
    if body is None and reply.status < 300:
        raise undecodable(base_url)
    return reply._replace(body=body or b"")


def _reason(exc: BaseException) -> str:
    """The system's words for it; anyio hides them under one or several layers."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    if exc.__cause__ is not None:
        return _reason(exc.__cause__)
    if isinstance(exc, ssl.SSLError | socket.gaierror):
        return exc.strerror or str(exc)  # their numbers are not the system's
    if isinstance(exc, OSError) and exc.errno:
        return os.strerror(exc.errno)
    return str(exc) or "it was closed"


def _too_large(base_url: str) -> TransientError:
    return TransientError(f"{base_url}: the answer is larger than {MAX_BODY_BYTES:,} bytes", "body")
