"""How claimscore speaks HTTP: the one policy of language models, batch jobs and served encoders.

Time limits, idle connections, TLS, proxies, and where a key may go. How long to wait before a
request is sent again is in `claimscore.retry`; the connections are in
`pipeline.llm.providers.transport` and in `pipeline.encoders.served`.
"""

from __future__ import annotations

import functools
import re
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from claimscore.addresses import is_loopback, is_public_http, usable_key
from claimscore.errors import ConfigError

#: An answer may take minutes; a connection that takes longer than this will not come.
CONNECT_S = 15.0

#: Below the five seconds after which uvicorn and Node close an idle connection.
IDLE_S = 4.0

#: After so many seconds of silence the system asks whether the other side is still there.
TCP_KEEP_ALIVE_S = 60

_LIMITS = httpx2.Limits(keepalive_expiry=IDLE_S)
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")


# -- where a key may go, and by which way


def key_for(
    base_url: str, key: str | None, *, key_name: str, allow_http_key: bool = False
) -> str | None:
    """Return the key as it may be sent to `base_url`; None where there is none.

    Raises `ConfigError` where the key would go unencrypted to another machine and
    `allow_http_key` does not say that it may. `key_name` is the variable that holds it.
    """
    usable = usable_key(key, key_name)
    if usable and not allow_http_key and is_public_http(base_url):
        raise ConfigError(
            f"{base_url}: {key_name} would be sent unencrypted; use https, unset the key if "
            "the server needs none, or accept it with --allow-http-key"
        )
    return usable


def may_be_proxied(url: str) -> bool:
    """Whether a proxy of the environment may stand before a server.

    This machine is reached directly: a proxy would see the key that plain http may carry here.
    Where this says yes, httpx2 decides by its own, finer rules.
    """
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


def client_options(timeout_s: float) -> dict[str, Any]:
    """Arguments for `httpx2.Client` and `httpx2.AsyncClient`, but for their transport.

    A redirect is an answer like any other: the key goes where the user sent it.
    """
    return {
        "timeout": httpx2.Timeout(timeout_s, connect=connect_limit_s(timeout_s), pool=None),
        "limits": _LIMITS,
        "follow_redirects": False,
        "verify": tls_context(),
    }


def transport_options() -> dict[str, Any]:
    """Arguments for `httpx2.HTTPTransport` and its asynchronous twin.

    A client that is given one of them connects directly, whatever the environment says.
    """
    return {"limits": _LIMITS, "socket_options": socket_options(), "verify": tls_context()}


def why_not_reached(exc: httpx2.HTTPError) -> str:
    """The system's words for a connection that did not come, without their number."""
    return _ERRNO.sub("", str(exc)) or "it took too long"


def is_untrusted(why: str) -> bool:
    """Whether a connection failed because the server's certificate is not trusted."""
    return "CERTIFICATE_VERIFY_FAILED" in why
