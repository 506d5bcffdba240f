"""The one policy of HTTP: addresses of servers and where a key may go, time limits, idle
connections, TLS, proxies, and what is never shown.

How long to wait before a request is sent again is in `claimscore.retry`, what headers say of limits
in `claimscore.http_headers`.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

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


# Addresses: one spelling each, and no secret in them or on the way

_DEFAULT_PORTS = {"http": 80, "https": 443}


def server_address(
    url: str, *, key_name: str, what: str = "the base URL", like: str = "https://host/v1"
) -> str:
    """Return one spelling a server: no default port, no slash at the end, no query.

    Raises `ConfigError`, which never quotes the URL: it may hold a secret.
    """
    wrong = ConfigError(f"{what} must look like {like}")
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        raise wrong from None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or not parts.path.isprintable():
        raise wrong
    if parts.username or parts.password:
        raise ConfigError(f"{what} holds a user name or password; leave it out and set {key_name}")
    if not re.fullmatch("[!-~]+", parts.hostname):
        raise ConfigError(
            f"{what}'s host {parts.hostname!r}: write it in plain letters (a name with "
            "others has such a form, which begins with xn--)"
        )
    try:
        port = parts.port
    except ValueError as exc:
        raise ConfigError(f"{what} of {parts.hostname}: {exc}") from None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
        host = f"{host}:{port}"
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def key_for(
    base_url: str, key: str | None, *, key_name: str, allow_http_key: bool = False
) -> str | None:
    """Return the key as it may be sent to `base_url`, without the line break that a file gave it;
    None where there is none.

    Raises `ConfigError` where it is no key, or would go unencrypted to another machine and
    `allow_http_key` does not say that it may. `key_name` is the variable that holds it.
    """
    key = (key or "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise ConfigError(f"{key_name} holds characters that no key has; set it again")
    if key and not allow_http_key:
        refuse_unencrypted(base_url, key_name)
    return key or None


def refuse_unencrypted(base_url: str, what: str) -> None:
    """`ConfigError` where a secret would go unencrypted to another machine."""
    parts = urlsplit(base_url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigError(
            f"{base_url}: {what} would be sent unencrypted; use https, leave it out if "
            "the server needs none, or accept it with --allow-http-key"
        )


def is_loopback(host: str) -> bool:
    """Whether the host is this machine, by its name or number."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
