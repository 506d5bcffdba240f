"""The one policy of HTTP: time limits, idle connections, TLS, proxies, and what is never shown.

Where a key may go is in `claimscore.addresses`, how long to wait before a request is sent again in
`claimscore.retry`, what headers say of limits in `claimscore.http_headers`.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from claimscore.addresses import is_loopback
from claimscore.errors import ConfigError

if TYPE_CHECKING:  # a run whose answers are all stored sends nothing, and does not wait for it
    import httpx2

#: An answer may take minutes; a connection that takes longer than this will not come.
CONNECT_S = 15.0

#: Below the five seconds after which uvicorn and Node close an idle connection.
IDLE_S = 4.0

#: After so many seconds of silence the system asks whether the other side is still there.
TCP_KEEP_ALIVE_S = 60

_KEY_LIKE = re.compile(r"\b(?:sk|pk|rk)-[\w*.…-]{4,}|(?<=Bearer )\S+")


def proxy_before(url: str) -> str | None:
    """The proxy of the environment that stands before a server.

    This machine is reached directly: a proxy would see the key that plain http may carry here.
    """
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or is_loopback(parts.hostname or "") or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


@functools.cache
def tls_context() -> ssl.SSLContext:
    """The one context of all clients; it takes a while to read the system's certificates.

    Raises `ConfigError` where a file that the environment names cannot be read.
    """
    import httpx2

    try:
        return httpx2.create_ssl_context()
    except OSError as exc:  # those of TLS are among them
        raise ConfigError(
            f"certificates cannot be read: {reason_of(exc)}; look at what SSL_CERT_FILE, "
            "SSL_CERT_DIR and SSLKEYLOGFILE name"
        ) from None


def socket_options() -> list[tuple[int, int, int]]:
    """Notice a server that is gone, and keep routers from forgetting a wait of many minutes."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    if hasattr(socket, "TCP_KEEPIDLE"):
        options += [
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, TCP_KEEP_ALIVE_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, TCP_KEEP_ALIVE_S // 4),
        ]
    return options


def open_line(base_url: str) -> httpx2.AsyncHTTPTransport:
    """One connection to a server: direct, or through the proxy that stands before it.

    Raises `ConfigError` where that proxy cannot be used.
    """
    import httpx2

    proxy = proxy_before(base_url)
    try:
        _ = urlsplit(proxy or "").port  # ValueError where it can be none
        return httpx2.AsyncHTTPTransport(
            proxy=proxy,
            limits=httpx2.Limits(max_connections=1, keepalive_expiry=IDLE_S),
            socket_options=socket_options(),
            verify=tls_context(),
        )
    except ImportError:
        raise ConfigError("a SOCKS proxy needs a package: pip install socksio") from None
    except (ValueError, httpx2.InvalidURL):  # their words may hold its password
        raise ConfigError(
            "the proxy named in the environment cannot be used; it must look like http://host:port"
        ) from None


def reason_of(exc: BaseException) -> str:
    """The system's words for why no connection came; they lie under several layers."""
    layer: BaseException | None = exc
    while layer is not None:
        if isinstance(layer, ssl.SSLCertVerificationError):
            return layer.verify_message
        if isinstance(layer, OSError) and layer.errno:
            # those of names and TLS have numbers of their own
            is_system = not isinstance(layer, ssl.SSLError | socket.gaierror)
            return os.strerror(layer.errno) if is_system else str(layer.strerror)
        inner = layer.exceptions[0] if isinstance(layer, BaseExceptionGroup) else None
        layer = inner or layer.__cause__ or layer.__context__
    return str(exc)


def password_wanted(base_url: str) -> ConfigError:
    """What a proxy's 407 is."""
    return ConfigError(
        f"{base_url}: the proxy named in the environment refuses its user and password (HTTP 407)"
    )


def scrubbed(text: str, *secrets: str | None) -> str:
    """A text without keys and the like, whole or as servers abbreviate them."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "[key]")
    return _KEY_LIKE.sub("[key]", text)
