"""Connections: what breaks on the way, what is used again, and that nothing is sent twice."""

from __future__ import annotations

import contextlib
import gzip
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from shutil import which

import anyio
import httpx2
import pytest
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener

from claimscore.errors import ConfigError, TransientError
from claimscore.pipeline.llm.providers import transport as transport_module
from claimscore.pipeline.llm.providers.transport import (
    ClientTransport,
    DirectTransport,
    Reply,
    Transport,
    open_transport,
)

pytestmark = pytest.mark.anyio

HUNG_UP = (
    anyio.EndOfStream,
    anyio.IncompleteRead,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)
PROXY = "http://p:1"
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine has, these tests are about none, or about their own."""
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def answer(body: bytes = b"{}", status: int = 200, **headers: str) -> bytes:
    """A response with a length."""
    fields = {"content-length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} x\r\n{head}\r\n".encode() + body


class Visit:
    """One connection as the server sees it."""

    def __init__(self, server: Server, stream: ByteStream) -> None:
        self._server = server
        self._reader = BufferedByteReceiveStream(stream)
        self.stream = stream

    async def request(self) -> bytes:
        """The next request's head."""
        head = await self._reader.receive_until(b"\r\n\r\n", 65536)
        lines = head.lower().split(b"\r\n")
        lengths = [line[15:] for line in lines if line.startswith(b"content-length:")]
        await self._reader.receive_exactly(int(lengths[0]) if lengths else 0)
        self._server.heads.append(head)
        return head

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def gone(self) -> None:
        """Return when the client has hung up."""
        with contextlib.suppress(*HUNG_UP):
            await self._reader.receive_exactly(1)
            raise AssertionError("the client sent more")


Handler = Callable[[Visit], Awaitable[None]]


class Server:
    """Counts connections; `heads` are what was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.n_connections = 0
        self.heads: list[bytes] = []


@contextlib.asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server whose connections are handled so."""
    server = Server()

    async def visited(stream: ByteStream) -> None:
        server.n_connections += 1
        async with stream:
            with contextlib.suppress(*HUNG_UP):
                await handler(Visit(server, stream))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1"
        serves = TLSListener(listener, tls, standard_compatible=False) if tls else listener
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serves.serve, visited)
            yield server
            tasks.cancel_scope.cancel()


def connected(server: Server, timeout_s: float = 10.0) -> contextlib.aclosing[DirectTransport]:
    return contextlib.aclosing(DirectTransport(server.url, timeout_s))


async def post(to: Transport, body: bytes = b"[1]") -> Reply:
    return await to.send("POST", "/chat/completions", [(b"authorization", b"Bearer x")], body)


def always(data: bytes, most: int = 10**9) -> Handler:
    """The same answer to every request on a connection."""

    async def handler(visit: Visit) -> None:
        for _ in range(most):
            await visit.request()
            await visit.send(data)

    return handler


def then_hang_up(data: bytes) -> Handler:
    return always(data, 1)


# -- asking


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(answer(b"hello"), id="a length"),
        pytest.param(CHUNKED + b"2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", id="chunks"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nhello", id="until the end"),
        pytest.param(answer(gzip.compress(b"hello"), content_encoding="GZIP"), id="gzip"),
    ],
)
async def test_bodies_in_all_their_forms(data: bytes):
    async with serving(then_hang_up(data)) as server, connected(server) as direct:
        assert (await post(direct)).body == b"hello"


# -- what breaks


HALF = answer(b'{"choices": []}')[:-4]
HALF_GZIP = gzip.compress(b"hello")[:-3]


def coded(body: bytes, coding: str) -> bytes:
    return answer(body, content_encoding=coding)


@pytest.mark.parametrize(
    ("handler", "kind", "words"),
    [
        pytest.param(then_hang_up(b""), "dropped", "without an answer", id="closed"),
        pytest.param(then_hang_up(HALF), "body", "broke off", id="shorter than its length"),
        pytest.param(then_hang_up(CHUNKED + b"xyz\r\n"), "body", "broke off", id="no chunk"),
        pytest.param(then_hang_up(HALF[:20]), "dropped", "no whole HTTP", id="half a head"),
        pytest.param(always(coded(b"?", "br")), "body", "decoded", id="unknown coding"),
        pytest.param(always(coded(HALF_GZIP, "gzip")), "body", "decoded", id="half a gzip"),
    ],
)
async def test_what_breaks_is_named_and_not_sent_again(handler: Handler, kind: str, words: str):
    """One request on the wire, one error that says whether it may have been billed."""
    async with serving(handler) as server, connected(server) as direct:
        with pytest.raises(TransientError, match=words) as caught:
            await post(direct)
        assert (caught.value.kind, caught.value.may_be_billed) == (kind, True)
        assert str(caught.value).startswith(server.url)
        assert len(server.heads) == 1


@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_an_answer_beyond_all_bounds_is_broken(coding: str, monkeypatch: pytest.MonkeyPatch):
    """Neither a large answer nor a small one that grows fills the memory."""
    monkeypatch.setattr(transport_module, "MAX_BODY_BYTES", 1000)
    body = b"x" * 1001
    packed = gzip.compress(body) if coding == "gzip" else body
    handler = always(answer(packed, content_encoding=coding))
    async with serving(handler) as server, connected(server) as direct:
        with pytest.raises(TransientError) as caught:
            await post(direct)
        assert caught.value.kind == "body"


async def test_no_answer_in_time():
    """It may come, and be billed, afterwards; the connection is closed."""
    closed = anyio.Event()

    async def handler(visit: Visit) -> None:
        await visit.request()
        await visit.send(HALF)
        await visit.gone()
        closed.set()

    async with serving(handler) as server, connected(server, 1.5) as direct:
        with pytest.raises(TransientError, match=r"no answer within 1\.5 s") as caught:
            await post(direct)
        assert caught.value.kind == "timeout"
        await closed.wait()


async def test_a_server_that_is_not_there():
    """Nothing was sent, so nothing can be billed."""
    async with serving(always(answer())) as server:
        pass
    async with connected(server) as direct:
        with pytest.raises(TransientError, match="cannot be reached: Connection refused") as caught:
            await post(direct)
    assert (caught.value.kind, caught.value.may_be_billed) == ("connect", False)


# -- what is used again


@pytest.mark.parametrize("how", ["closed", "talks"])
async def test_a_connection_that_went_bad_while_idle_is_not_used(how: str):
    """It is seen before anything is sent: no error, and no request twice."""
    read, went_bad = anyio.Event(), anyio.Event()

    async def handler(visit: Visit) -> None:
        await visit.request()
        await visit.send(answer(b"good"))
        if server.n_connections > 1:
            return
        await read.wait()
        if how == "closed":
            await visit.stream.aclose()
        else:
            await visit.send(answer(b"for nobody"))
        went_bad.set()
        await visit.gone()

    async with serving(handler) as server, connected(server) as direct:
        assert (await post(direct)).body == b"good"
        read.set()
        await went_bad.wait()
        assert (await post(direct)).body == b"good"
        assert (server.n_connections, len(server.heads)) == (2, 2)


@pytest.mark.parametrize(
    "data",
    [answer(b"mine") + answer(b"not mine"), answer(b"mine", connection="close")],
    ids=["an answer to no request", "the server says close"],
)
async def test_a_connection_that_must_not_be_used_again_is_not(data: bytes):
    """The second of two answers in one go must not go to the next request."""
    async with serving(always(data)) as server, connected(server) as direct:
        for _ in range(3):
            assert (await post(direct)).body == b"mine"
        assert server.n_connections == 3


async def test_a_used_connection_that_drops_a_request_is_not_asked_again():
    """The server has read it; whether it was done, and billed, is unknown."""

    async def handler(visit: Visit) -> None:
        await visit.request()
        await visit.send(answer())
        await visit.request()

    async with serving(handler) as server, connected(server) as direct:
        await post(direct)
        with pytest.raises(TransientError) as caught:
            await post(direct)
        assert caught.value.kind == "dropped"
        assert (server.n_connections, len(server.heads)) == (1, 2)


async def test_a_cancelled_request_closes_its_connection_and_no_other():
    """Its answer is still to come; the next request must not read it."""
    waiting, closed = anyio.Event(), anyio.Event()

    async def handler(visit: Visit) -> None:
        await visit.request()
        if server.n_connections == 1:
            await visit.send(HALF)
            waiting.set()
            await visit.gone()
            closed.set()
        await visit.send(answer(b"next"))

    async with serving(handler) as server, connected(server) as direct:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post, direct)
            await waiting.wait()
            tasks.cancel_scope.cancel()
        await closed.wait()
        assert (await post(direct)).body == b"next"
        assert server.n_connections == 2


# -- TLS


@pytest.mark.parametrize("name", ["IP:127.0.0.1", "DNS:example.org"], ids=["untrusted", "named"])
@pytest.mark.skipif(which("openssl") is None, reason="openssl makes the certificate")
async def test_an_untrusted_certificate_stops_the_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing is sent, and waiting would not help: self-made, or trusted but for another name."""
    key, certificate = tmp_path / "key", tmp_path / "pem"
    options = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test"
    made = ["-addext", f"subjectAltName={name}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        ["openssl", "req", "-x509", *options.split(), *made], check=True, capture_output=True
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    if name.startswith("DNS"):
        trusting = ssl.create_default_context(cafile=certificate)
        monkeypatch.setattr(transport_module, "tls_context", lambda: trusting)
    async with serving(always(answer()), tls) as server, connected(server) as direct:
        with pytest.raises(ConfigError, match=r"not trusted.*SSL_CERT_FILE"):
            await post(direct)
        assert server.heads == []


# -- proxies and doubles


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch):
    async with serving(always(answer(b"by proxy"))) as server:
        monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
        through = open_transport("http://example.org/v1", 10.0)
        assert isinstance(through, ClientTransport)
        assert (await post(through)).body == b"by proxy"
        await through.aclose()
        assert server.heads[0].startswith(b"POST http://example.org/v1/chat/completions HTTP/1.1")


@pytest.mark.parametrize(
    ("variables", "url", "expected"),
    [
        ({"https_proxy": PROXY}, "http://example.org", DirectTransport),
        ({"all_proxy": PROXY}, "http://example.org", ClientTransport),
        (
            {"http_proxy": PROXY, "no_proxy": ".example.org"},
            "http://a.example.org",
            DirectTransport,
        ),
        ({"http_proxy": PROXY, "no_proxy": "*"}, "http://example.org", DirectTransport),
        # this machine: a key may go there by plain http
        ({"all_proxy": PROXY, "http_proxy": PROXY}, "http://localhost:8000/v1", DirectTransport),
    ],
)
async def test_direct_unless_a_proxy_applies(
    variables: dict[str, str], url: str, expected: type, monkeypatch: pytest.MonkeyPatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    opened = open_transport(url, 10.0)
    await opened.aclose()
    assert type(opened) is expected


def test_an_impossible_proxy_stops_the_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", "gopher://p:1")
    with pytest.raises(ConfigError, match="the proxy named in the environment"):
        open_transport("http://example.org", 10.0)


UNTRUSTED = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx2.ConnectError("refused"), "connect"),
        (httpx2.ProxyError("503"), "connect"),
        (httpx2.ReadTimeout(""), "timeout"),
        (httpx2.ReadError(""), "dropped"),
        (httpx2.RemoteProtocolError("Bearer x"), "dropped"),
        (httpx2.DecodingError(""), "body"),
        (httpx2.UnsupportedProtocol("no"), "stop"),
        (httpx2.ConnectError(UNTRUSTED), "stop"),
    ],
    ids=repr,
)
async def test_the_clients_errors_become_ours(failure: Exception, kind: str):
    """By kind, and without a word of what was sent."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        raise failure

    client = open_transport("http://example.org/v1", 10.0, httpx2.MockTransport(handle))
    with pytest.raises(ConfigError if kind == "stop" else TransientError) as caught:
        await post(client)
    await client.aclose()
    assert getattr(caught.value, "kind", "stop") == kind
    assert "Bearer" not in str(caught.value)
    assert ("SSL_CERT_FILE" in str(caught.value)) == (UNTRUSTED in str(failure))


async def test_the_client_has_bounds_too(monkeypatch: pytest.MonkeyPatch):
    """Of size, as for direct connections, and of time as a whole."""
    monkeypatch.setattr(transport_module, "MAX_BODY_BYTES", 10)

    async def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/large":
            return httpx2.Response(200, content=b"x" * 11)
        await anyio.sleep_forever()
        raise AssertionError

    for path, kind, timeout_s in (("/large", "body", 30), ("/slow", "timeout", 0.05)):
        client = ClientTransport("http://example.org", timeout_s, httpx2.MockTransport(handle))
        with pytest.raises(TransientError) as caught:
            await client.send("POST", path, [])
        assert caught.value.kind == kind
        await client.aclose()
