"""How claimscore speaks HTTP: the one policy of language models, batch jobs and served encoders.

Time limits, idle connections, TLS, proxies, where a key may go, and what breaks on the way. How
long to wait before a request is sent again is in `claimscore.retry`, what headers say of limits
and of waiting in `claimscore.http_headers`. The connections are in
`pipeline.llm.providers.transport` and in `pipeline.encoders.served`.
"""

from __future__ import annotations

import contextlib
import functools
import re
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from claimscore.addresses import is_loopback, usable_key
from claimscore.errors import ConfigError, TransientError

if TYPE_CHECKING:  # a run whose answers are all stored sends nothing, and does not wait for it
    import httpx2

#: An answer may take minutes; a connection that takes longer than this will not come.
CONNECT_S = 15.0

#: Below the five seconds after which uvicorn and Node close an idle connection.
IDLE_S = 4.0

#: After so many seconds of silence the system asks whether the other side is still there.
TCP_KEEP_ALIVE_S = 60

_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_KEY_LIKE = re.compile(r"\b(?:sk|pk|rk)-[\w*.…-]{4,}|(?<=Bearer )\S+")


# -- where a key may go, and by which way


def key_for(
    base_url: str, key: str | None, *, key_name: str, allow_http_key: bool = False
) -> str | None:
    """Return the key as it may be sent to `base_url`; None where there is none.

    Raises `ConfigError` where the key would go unencrypted to another machine and
    `allow_http_key` does not say that it may. `key_name` is the variable that holds it.
    """
    usable = usable_key(key, key_name)
    if usable and not allow_http_key:
        refuse_unencrypted(base_url, key_name)
    return usable


def refuse_unencrypted(base_url: str, what: str) -> None:
    """`ConfigError` where a secret would go unencrypted to another machine."""
    parts = urlsplit(base_url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigError(
            f"{base_url}: {what} would be sent unencrypted; use https, leave it out if "
            "the server needs none, or accept it with --allow-http-key"
        )


def may_be_proxied(url: str) -> bool:
    """Whether a proxy of the environment may stand before a server.

    This machine is reached directly: a proxy would see the key that plain http may carry here.
    Where this says yes, httpx2 decides by its own, finer rules.
    """
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(url), getproxies()
    if is_loopback(parts.hostname or ""):
        return False
    named = proxies.get(parts.scheme) or proxies.get("all")
    return bool(named) and not proxy_bypass(parts.netloc)


@functools.cache
def tls_context() -> ssl.SSLContext:
    """The one context of all clients: it takes a while to read the system's certificates.

    It verifies always, and speaks HTTP/1.1.
    """
    import httpx2

    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


# -- connections


def socket_options() -> list[tuple[int, int, int]]:
    """Notice a server that is gone, and keep routers from forgetting a wait of many minutes."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    if hasattr(socket, "TCP_KEEPIDLE"):
        options += [
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, TCP_KEEP_ALIVE_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, TCP_KEEP_ALIVE_S // 4),
        ]
    return options


def connect_limit_s(timeout_s: float) -> float:
    """Seconds that a connection may take of the `timeout_s` of a whole request."""
    return min(CONNECT_S, timeout_s / 2)


def client_options(
    base_url: str,
    timeout_s: float,
    direct: type[httpx2.HTTPTransport] | type[httpx2.AsyncHTTPTransport],
) -> dict[str, Any]:
    """Arguments for `httpx2.Client` and `httpx2.AsyncClient`.

    Connections are `direct`, whatever the environment says, unless a proxy may be between. A
    redirect is an answer like any other: the key goes where the user sent it.
    """
    import httpx2

    limits, tls = httpx2.Limits(keepalive_expiry=IDLE_S), tls_context()
    transport = None
    if not may_be_proxied(base_url):
        transport = direct(limits=limits, socket_options=socket_options(), verify=tls)
    return {
        "timeout": httpx2.Timeout(timeout_s, connect=connect_limit_s(timeout_s), pool=None),
        "limits": limits,
        "follow_redirects": False,
        "transport": transport,
        "verify": tls,
    }


@contextlib.contextmanager
def proxy_errors() -> Iterator[None]:
    """Make a client; `ConfigError` where the environment names a proxy that httpx2 cannot use."""
    import httpx2

    try:
        yield
    except (ImportError, ValueError, httpx2.InvalidURL) as exc:
        raise ConfigError(f"the proxy named in the environment cannot be used: {exc}") from None


# -- what breaks


def translate_http_error(
    exc: httpx2.HTTPError | httpx2.InvalidURL,
    base_url: str,
    *,
    timeout_s: float,
    trusted: bool = False,
    key: str | None = None,
) -> TransientError | ConfigError:
    """The error of ours that an error of httpx2 is; it quotes nothing but why no connection came.

    `trusted` says that the server was reached before; `key` is left out of the words.
    """
    import httpx2

    if isinstance(exc, httpx2.ConnectError | httpx2.ProxyError | httpx2.ConnectTimeout):
        why = scrubbed(_ERRNO.sub("", str(exc)) or "it took too long", key)
        if "CERTIFICATE_VERIFY_FAILED" in why:
            return untrusted(base_url, why, before=trusted)
        return not_reached(base_url, why)
    if isinstance(exc, httpx2.TimeoutException):
        return no_answer(base_url, timeout_s)
    if isinstance(exc, httpx2.DecodingError):
        return undecodable(base_url)
    if isinstance(exc, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return ConfigError(f"{base_url}: {scrubbed(str(exc), key)}")
    return TransientError(f"{base_url}: the connection broke", "dropped")


def not_reached(base_url: str, why: str) -> TransientError:
    """Nothing was sent."""
    return TransientError(f"{base_url} cannot be reached: {why}", "connect")


def untrusted(base_url: str, why: str, *, before: bool) -> TransientError | ConfigError:
    """Waiting does not help, unless this very server was trusted before."""
    if before:
        return not_reached(base_url, f"its certificate is not trusted any more ({why})")
    return ConfigError(
        f"{base_url}: its certificate is not trusted ({why}); check the address, or name the "
        "certificate of your own authority in SSL_CERT_FILE"
    )


def no_answer(base_url: str, timeout_s: float) -> TransientError:
    """The answer may come, and be billed, afterwards."""
    return TransientError(f"{base_url}: no answer within {timeout_s:g} s", "timeout")


def undecodable(base_url: str) -> TransientError:
    """The body is compressed in an unknown way, or broken."""
    return TransientError(f"{base_url}: the answer cannot be decoded", "body")


def scrubbed(text: str, *secrets: str | None) -> str:
    """A text without keys and the like, whole or as servers abbreviate them."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "[key]")
    return _KEY_LIKE.sub("[key]", text)
