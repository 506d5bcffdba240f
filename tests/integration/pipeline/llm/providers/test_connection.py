"""A server through the SDK: what is sent, what breaks, what is used again; nothing twice."""

from __future__ import annotations

import base64
import contextlib
import gzip
import ssl
import subprocess
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from shutil import which

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener

from claimscore import http_policy
from claimscore.errors import ConfigError, TransientError
from claimscore.pipeline.llm.providers import connection as connection_module
from claimscore.pipeline.llm.providers.connection import Reply
from claimscore.pipeline.llm.providers.openai import OpenAIProvider
from claimscore.types import Message, Request

pytestmark = pytest.mark.anyio

HUNG_UP = (
    anyio.EndOfStream,
    anyio.IncompleteRead,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)
KEY = "sk-0123456789"
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
async def serving(
    handler: Handler, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    """A server whose connections are handled so."""
    server = Server()

    async def visited(stream: ByteStream) -> None:
        server.n_connections += 1
        async with stream:
            with contextlib.suppress(*HUNG_UP):
                await handler(Visit(server, stream))

    async with await anyio.create_tcp_listener(local_host=host) as listener:
        port = listener.extra(SocketAttribute.local_port)
        name = f"[{host}]" if ":" in host else host
        server.url = f"{'https' if tls else 'http'}://{name}:{port}/v1"
        serves = TLSListener(listener, tls, standard_compatible=False) if tls else listener
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serves.serve, visited)
            yield server
            tasks.cancel_scope.cancel()


def connected(server: Server, timeout_s: float = 10.0) -> contextlib.aclosing[OpenAIProvider]:
    return contextlib.aclosing(
        OpenAIProvider("m", base_url=server.url, key=KEY, timeout_s=timeout_s)
    )


async def post(to: OpenAIProvider) -> Reply:
    return await to.send("/chat/completions", b"[1]")


def always(data: bytes, most: int = 10**9) -> Handler:
    """The same answer to every request on a connection."""

    async def handler(visit: Visit) -> None:
        for _ in range(most):
            await visit.request()
            await visit.send(data)

    return handler


def then_hang_up(data: bytes) -> Handler:
    return always(data, 1)


# -- what breaks


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
HALF = answer(b'{"choices": []}')[:-4]
GZIP = answer(gzip.compress(b"hello"), content_encoding="GZIP")


@pytest.mark.parametrize(
    ("handler", "kind", "words"),
    [
        pytest.param(then_hang_up(b""), "dropped", "without an HTTP answer", id="closed"),
        pytest.param(then_hang_up(HALF), "body", "broke off", id="shorter than its length"),
        pytest.param(then_hang_up(CHUNKED + b"xyz\r\n"), "body", "broke off", id="no chunk"),
        pytest.param(then_hang_up(HALF[:20]), "dropped", "without an HTTP", id="half a head"),
        pytest.param(then_hang_up(b"SSH-2.0\r\n"), "dropped", "without an HTTP", id="no HTTP"),
        pytest.param(always(GZIP), "body", "decoded", id="compressed"),
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


@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_beyond_all_bounds_is_broken(status: int, monkeypatch: pytest.MonkeyPatch):
    """Neither an answer nor a refusal fills the memory."""
    monkeypatch.setattr(connection_module, "MAX_BODY_BYTES", 1000)
    handler = always(answer(b"x" * 1001, status))
    async with serving(handler) as server, connected(server) as direct:
        with pytest.raises(TransientError, match="larger than 1,000 bytes") as caught:
            await post(direct)
        assert caught.value.kind == "body"


async def test_an_answer_may_have_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_module, "MAX_BODY_BYTES", 1000)
    async with serving(always(answer(b"x" * 1001))) as server, connected(server) as direct:
        http, extensions = direct.connection.http, {connection_module.MOST_BYTES: 1001}
        response = await http.get(server.url, extensions=extensions)
        assert len(response.content) == 1001


@pytest.mark.parametrize(
    "data",
    [
        answer(gzip.compress(b"x" * 10_000), 500, content_encoding="gzip"),
        answer(zlib.compress(b"x" * 10_000), 500, content_type="text/plain; charset=zlib"),
        answer(b"x" * 100, 500)[:-50],
    ],
    ids=["compressed", "a charset that unpacks", "broken off"],
)
async def test_a_refusal_is_a_reply_whatever_its_body(data: bytes):
    """Its status and headers decide; nothing of it is unpacked."""
    async with serving(then_hang_up(data)) as server, connected(server) as direct:
        reply = await post(direct)
        assert reply.status == 500
        assert b"xxx" not in reply.body or len(reply.body) == 50


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


async def test_a_connection_that_was_idle_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch):
    """Its server may close it in the moment of sending."""
    monkeypatch.setattr(connection_module, "IDLE_S", -1.0)
    async with serving(always(answer())) as server, connected(server) as direct:
        await post(direct)
        await post(direct)
        assert server.n_connections == 2


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


@pytest.mark.parametrize(
    ("variable", "name"),
    [("SSL_CERT_FILE", "absent"), ("SSL_CERT_FILE", "text"), ("SSLKEYLOGFILE", "absent/log")],
)
async def test_certificates_that_cannot_be_read_stop_the_run(
    variable: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Waiting would not help, and nothing was sent that may be billed."""
    (tmp_path / "text").write_text("no certificate")
    monkeypatch.setenv(variable, str(tmp_path / name))
    http_policy.tls_context.cache_clear()
    with pytest.raises(ConfigError, match=f"certificates cannot be read.*{variable}"):
        await post(OpenAIProvider("m", base_url="https://127.0.0.1:1/v1", key=KEY))


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
        monkeypatch.setattr(http_policy, "tls_context", lambda: trusting)
    async with serving(always(answer()), tls) as server, connected(server) as direct:
        with pytest.raises(ConfigError, match=r"not trusted.*SSL_CERT_FILE"):
            await post(direct)
        assert server.heads == []


# -- what is sent


# -- proxies


@pytest.mark.parametrize(
    ("variables", "url", "proxied"),
    [
        ({"http_proxy": "PROXY"}, "http://example.org/v1", True),
        ({"all_proxy": "PROXY"}, "http://example.org/v1", True),
        ({"https_proxy": "PROXY"}, "http://{host}/v1", False),
        ({"http_proxy": "PROXY", "no_proxy": "*"}, "http://{host}/v1", False),
        # this machine: a key may go there by plain http
        ({"all_proxy": "PROXY", "http_proxy": "PROXY"}, "http://localhost/v1", False),
    ],
)
def test_direct_unless_a_proxy_applies(
    variables: dict[str, str], url: str, proxied: bool, monkeypatch: pytest.MonkeyPatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert http_policy.proxy_before(url) == ("http://PROXY" if proxied else None)


REFUSED = b"HTTP/1.1 407 me:pass-word\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_refuses_its_password_stops_the_run(
    scheme: str, monkeypatch: pytest.MonkeyPatch
):
    """Its own words are not shown."""
    async with serving(always(REFUSED)) as server:
        address = server.url.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv(f"{scheme}_proxy", f"http://me:pass-word@{address}")
        asked = OpenAIProvider("m", base_url=f"{scheme}://example.org/v1")
        with pytest.raises(ConfigError, match=r"refuses its user and password \(HTTP 407\)$"):
            await asked.complete(Request("openai", "n", "m", (Message("user", "q"),)))
        await asked.aclose()


async def test_a_proxy_with_a_password(monkeypatch: pytest.MonkeyPatch):
    """It gets the password, the server does not; and what comes through it is bounded too."""
    monkeypatch.setattr(connection_module, "MAX_BODY_BYTES", 1000)
    async with serving(always(answer(b"x" * 1001))) as server:
        address = server.url.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv("http_proxy", f"http://me:pass-word@{address}")
        asked = OpenAIProvider("m", base_url="http://example.org/v1", key=KEY, allow_http_key=True)
        async with contextlib.aclosing(asked) as direct:
            with pytest.raises(TransientError, match="larger than 1,000 bytes"):
                await post(direct)
        head = server.heads[0].decode()
        assert head.startswith("POST http://example.org/v1/chat/completions HTTP/1.1")
        password = base64.b64encode(b"me:pass-word").decode()
        assert f"proxy-authorization: basic {password}".lower() in head.lower()


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("gopher://me:pass-word@p:1", "the proxy named in the environment"),
        ("http://me:pass-word@p:port", "the proxy named in the environment"),
        ("http://me:pass-word@127.0.0.1:99999", "the proxy named in the environment"),
        ("http://me:pass-word@127.0.0.1:1", "cannot be reached: Connection refused"),
    ],
)
async def test_a_proxys_password_is_never_shown(
    proxy: str, words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises((ConfigError, TransientError), match=words) as caught:
        await post(OpenAIProvider("m", base_url="https://example.org/v1", key=KEY))
    assert "pass-word" not in str(caught.value)
