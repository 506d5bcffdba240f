"""One HTTP request at a time on a connection, to one server. The LLM stage's home of httpx2.

A pool that looks at all its connections for every request, as a general client's does, costs
several times what the request costs. Here a request takes the connection that was idle last,
or opens one, and has it for itself.

Nothing is sent twice from here: the server may have done, and billed, what it did not get to
answer. An idle connection that the server has closed is recognised before it is used; there
remains the server that hangs up in the moment of sending, and that is the caller's to judge.
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
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx2
from anyio.abc import ByteStream, SocketAttribute

from claimscore.addresses import is_loopback
from claimscore.errors import ConfigError, TransientError
from claimscore.pipeline.llm.providers.reply import Reply, ReplyReader
from claimscore.tls import tls_context

#: A larger answer is a broken one.
MAX_BODY_BYTES = 64 * 2**20

#: Below the five seconds after which uvicorn and Node close an idle connection.
LONGEST_IDLE_S = 4.0
LONGEST_CONNECT_S = 15.0
KEEP_ALIVE_S = 60

Headers = Sequence[tuple[bytes, bytes]]

#: What a broken connection raises; `anyio.EndOfStream` is an orderly end.
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Transport(Protocol):
    """Asks one server; many tasks may use it at once.

    Raises `TransientError` of kind connect, dropped, timeout or body, and `ConfigError`. No
    message quotes what was sent or received.
    """

    async def send(self, method: str, path: str, headers: Headers, body: bytes = b"") -> Reply:
        """Ask for `path`, which is below the base URL. A redirect is a reply like any other."""

    async def aclose(self) -> None:
        """Close what is idle, and the rest as it comes back; may be called twice."""


def open_transport(
    base_url: str, timeout_s: float, double: httpx2.AsyncBaseTransport | None = None
) -> Transport:
    """Direct connections, unless a test's double or a proxy of the environment is between."""
    if double is not None or _may_be_proxied(base_url):
        return ClientTransport(base_url, timeout_s, double)
    return DirectTransport(base_url, timeout_s)


def _may_be_proxied(base_url: str) -> bool:
    """Where this says yes, httpx2 decides by its own, finer rules.

    This machine is reached directly: a proxy would see the key that plain http may carry here.
    """
    parts, proxies = urlsplit(base_url), getproxies()
    if is_loopback(parts.hostname or ""):
        return False
    named = proxies.get(parts.scheme) or proxies.get("all")
    return bool(named) and not proxy_bypass(parts.netloc)


# -- direct


class DirectTransport:
    """Connections of its own, and HTTP/1.1."""

    def __init__(
        self,
        base_url: str,
        timeout_s: float,
        *,
        tls: ssl.SSLContext | None = None,
        longest_idle_s: float = LONGEST_IDLE_S,
    ) -> None:
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
        self._tls = tls
        self._timeout_s = timeout_s
        self._connect_s = min(LONGEST_CONNECT_S, timeout_s / 2)
        self._longest_idle_s = longest_idle_s
        self._idle: collections.deque[_Line] = collections.deque()
        self._closed = False
        self._trusted = False

    async def send(self, method: str, path: str, headers: Headers, body: bytes = b"") -> Reply:
        data = self._request(method, path, headers, body)
        deadline = anyio.current_time() + self._timeout_s
        line = await self._idle_line() or await self._new_line()
        reply = None
        try:
            with anyio.CancelScope(deadline=deadline):
                reply = await line.exchange(data)
        finally:  # whatever ended it, a cancellation too: what was not read whole is closed
            await self._put_back(line, whole=reply is not None)
        if reply is None:
            raise _no_answer(self._base_url, self._timeout_s)
        return reply

    def _request(self, method: str, path: str, headers: Headers, body: bytes) -> bytes:
        parts = [method.encode(), b" ", self._path, path.encode(), self._host_lines]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if body:
            parts.append(b"content-length: %d\r\n" % len(body))
        return b"".join((*parts, b"\r\n", body))

    async def aclose(self) -> None:
        self._closed = True
        while self._idle:
            await self._idle.pop().aclose()

    async def _idle_line(self) -> _Line | None:
        """The connection used last, of those that are still good."""
        oldest = time.monotonic() - self._longest_idle_s
        while self._idle:
            line = self._idle.pop()
            if line.idle_since >= oldest and not line.is_readable():
                return line
            await line.aclose()
        return None

    async def _put_back(self, line: _Line, *, whole: bool) -> None:
        if not whole or self._closed or not line.may_be_used_again:
            await line.aclose()
            return
        line.idle_since = time.monotonic()
        self._idle.append(line)
        if self._idle[0].idle_since < line.idle_since - self._longest_idle_s:
            await self._idle.popleft().aclose()  # one a request is enough

    async def _new_line(self) -> _Line:
        stream = None
        try:
            with anyio.move_on_after(self._connect_s):
                stream = await self._connect()
        except ssl.SSLCertVerificationError as exc:
            raise _untrusted(self._base_url, exc.verify_message, before=self._trusted) from None
        except (*_BROKEN, anyio.EndOfStream) as exc:
            raise _not_reached(self._base_url, _reason(exc)) from None
        if stream is None:
            raise _not_reached(self._base_url, f"it took more than {self._connect_s:g} s")
        self._trusted = True
        _keep_alive(stream.extra(SocketAttribute.raw_socket))
        return _Line(stream, self._base_url)

    async def _connect(self) -> ByteStream:
        if not self._secure:
            return await anyio.connect_tcp(self._host, self._port)
        return await anyio.connect_tcp(
            self._host,
            self._port,
            ssl_context=self._tls or tls_context(),
            tls_standard_compatible=False,  # many servers hang up without TLS's good-bye
        )


class _Line:
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
        with contextlib.suppress(*_BROKEN):  # it may have said why before it hung up
            await self._stream.send(request)
        reader = ReplyReader(MAX_BODY_BYTES)
        heard = await self._read(reader)
        self.may_be_used_again = reader.may_follow
        if reader.is_too_large:
            raise _too_large(self._base_url)
        if reader.status is None:
            what = "sent no whole HTTP answer" if heard else "hung up without an answer"
            raise TransientError(f"{self._base_url} {what}", "dropped")
        if not reader.is_whole and reader.status < 300:
            raise TransientError(f"{self._base_url}: the answer broke off", "body")
        return _decoded(reader.reply(), self._base_url)

    async def _read(self, reader: ReplyReader) -> bool:
        """Until there is a whole answer or none will come; whether anything came."""
        heard = False
        try:
            while not (reader.is_whole or reader.is_broken):
                reader.feed(await self._stream.receive())
                heard = True
        except anyio.EndOfStream:
            reader.hung_up()
        except _BROKEN:
            pass
        return heard

    def is_readable(self) -> bool:
        """Whether an idle connection was closed, or holds what nobody asked for."""
        return _is_readable(self._socket.fileno())

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()


def _keep_alive(raw: socket.socket) -> None:
    """Notice a server that is gone, and keep routers from forgetting a wait of many minutes."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_S)


def _is_readable(descriptor: int) -> bool:
    if descriptor < 0:
        return True
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


# -- through a proxy, or to a double


class ClientTransport:
    """An httpx2 client: slower, but it knows proxies, and tests can take its transport's place."""

    def __init__(
        self, base_url: str, timeout_s: float, double: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._trusted = False
        connect_s = min(LONGEST_CONNECT_S, timeout_s / 2)
        try:
            self._client = httpx2.AsyncClient(
                transport=double,
                timeout=httpx2.Timeout(timeout_s, connect=connect_s, pool=None),
                limits=httpx2.Limits(keepalive_expiry=LONGEST_IDLE_S),
                follow_redirects=False,
                verify=tls_context(),
            )
        except (ImportError, ValueError, httpx2.InvalidURL) as exc:
            raise ConfigError(f"the proxy named in the environment cannot be used: {exc}") from None

    async def send(self, method: str, path: str, headers: Headers, body: bytes = b"") -> Reply:
        reply = None
        try:
            with anyio.move_on_after(self._timeout_s):
                reply = await self._exchange(method, self._base_url + path, headers, body)
        except (httpx2.ConnectError, httpx2.ProxyError, httpx2.ConnectTimeout) as exc:
            why = str(exc) or "it took too long"
            if "CERTIFICATE_VERIFY_FAILED" in why:
                raise _untrusted(self._base_url, why, before=self._trusted) from None
            raise _not_reached(self._base_url, why) from None
        except httpx2.TimeoutException:
            pass
        except httpx2.DecodingError:
            raise _undecodable(self._base_url) from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as exc:
            raise ConfigError(f"{self._base_url}: {exc}") from None
        except httpx2.TransportError:
            raise TransientError(f"{self._base_url}: the connection broke", "dropped") from None
        if reply is None:
            raise _no_answer(self._base_url, self._timeout_s)
        self._trusted = True
        return reply

    async def _exchange(self, method: str, url: str, headers: Headers, body: bytes) -> Reply:
        async with self._client.stream(
            method, url, headers=list(headers), content=body or None
        ) as response:
            content = bytearray()
            async for part in response.aiter_bytes():
                content += part
                if len(content) > MAX_BODY_BYTES:
                    raise _too_large(self._base_url)
            return Reply(response.status_code, dict(response.headers), bytes(content))

    async def aclose(self) -> None:
        await self._client.aclose()


# -- both


def _decoded(reply: Reply, base_url: str) -> Reply:
    """The body as it was meant; some servers compress it though they were asked not to."""
    coding = reply.headers.get("content-encoding", "identity").lower()
    if coding == "identity":
        return reply
    body = _unzipped(reply.body) if coding in ("gzip", "x-gzip", "deflate") else None
    if body is None and reply.status < 300:
        raise _undecodable(base_url)
    return reply._replace(body=body or b"")


def _unzipped(data: bytes) -> bytes | None:
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        body = decoder.decompress(data, MAX_BODY_BYTES)
    except zlib.error:
        return None
    return body if decoder.eof else None


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


def _not_reached(base_url: str, why: str) -> TransientError:
    return TransientError(f"{base_url}: connection failed: {why}", "connect")


def _untrusted(base_url: str, why: str, *, before: bool) -> TransientError | ConfigError:
    """Waiting does not help, unless this very server was trusted before."""
    if before:
        return _not_reached(base_url, f"its certificate is not trusted any more ({why})")
    return ConfigError(
        f"{base_url}: its certificate is not trusted ({why}); check --base-url, or name the "
        "certificate of your own authority in SSL_CERT_FILE"
    )


def _no_answer(base_url: str, timeout_s: float) -> TransientError:
    return TransientError(f"{base_url}: no answer within {timeout_s:g} s", "timeout")


def _too_large(base_url: str) -> TransientError:
    return TransientError(f"{base_url}: the answer is larger than {MAX_BODY_BYTES:,} bytes", "body")


def _undecodable(base_url: str) -> TransientError:
    return TransientError(f"{base_url}: the answer cannot be decoded", "body")
