"""How claimscore speaks HTTP: the one policy of language models, batch jobs and served encoders.

Time limits, idle connections, TLS, proxies, where a key may go, and what breaks on the way. How
long to wait before a request is sent again is in `claimscore.retry`, what headers say of limits
and of waiting in `claimscore.http_headers`. The connections are in
`pipeline.llm.providers.connection`.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from claimscore.addresses import is_loopback, usable_key
from claimscore.errors import ClaimscoreError, ConfigError, TransientError

if TYPE_CHECKING:  # a run whose answers are all stored sends nothing, and does not wait for it
    import httpx2

T = TypeVar("T")

#: An answer may take minutes; a connection that takes longer than this will not come.
CONNECT_S = 15.0

#: Below the five seconds after which uvicorn and Node close an idle connection.
IDLE_S = 4.0

#: After so many seconds of silence the system asks whether the other side is still there.
TCP_KEEP_ALIVE_S = 60

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
    """The one context of all clients: it takes a while to read the system's certificates.

    It verifies always.
    """
    import httpx2

    return httpx2.create_ssl_context()


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


def open_network(kind: Callable[..., T], base_url: str, *, max_connections: int | None = None) -> T:
    """A transport of httpx2 to a server: direct, or through the proxy that stands before it.

    Raises `ConfigError` where that proxy cannot be used.
    """
    import httpx2

    try:
        return kind(
            proxy=proxy_before(base_url),
            limits=httpx2.Limits(max_connections=max_connections, keepalive_expiry=IDLE_S),
            socket_options=socket_options(),
            verify=tls_context(),
        )
    except ImportError:
        raise ConfigError("a SOCKS proxy needs a package: pip install socksio") from None
    except (ValueError, httpx2.InvalidURL):  # their words may hold its password
        raise ConfigError(
            "the proxy named in the environment cannot be used; it must look like http://host:port"
        ) from None


def time_limits(timeout_s: float) -> httpx2.Timeout:
    """Seconds that a connection may take, and that nothing may come on it."""
    import httpx2

    return httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s / 2), pool=None)


# -- what breaks


def translate_http_error(
    exc: BaseException,
    base_url: str,
    *,
    timeout_s: float,
    trusted: bool = False,
    secrets: Iterable[str] = (),
) -> ClaimscoreError | None:
    """The error of ours that an exception is by its cause; None where it is none of HTTP.

    An SDK's own classes do not tell whether anything was sent; their causes do. `trusted` says
    that the server was reached before. It quotes nothing but why no connection came.
    """
    import anyio
    import httpx2

    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ClaimscoreError):
            return cause
        if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
            return _not_reached(cause, base_url, trusted, secrets)
        if isinstance(cause, httpx2.TimeoutException):
            return no_answer(base_url, timeout_s)
        if isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
            return ConfigError(f"{base_url} is no address that can be asked")
        if isinstance(cause, httpx2.DecodingError):
            return TransientError(f"{base_url}: the answer cannot be decoded", "body")
        if isinstance(cause, httpx2.TransportError | ssl.SSLError | anyio.EndOfStream):
            return TransientError(f"{base_url} hung up without an HTTP answer", "dropped")
        cause = cause.__cause__
    return None


def _not_reached(
    exc: BaseException, base_url: str, trusted: bool, secrets: Iterable[str]
) -> TransientError | ConfigError:
    """Nothing was sent. Waiting helps neither against a proxy that wants a password nor against a
    certificate that was never trusted."""
    import httpx2

    if isinstance(exc, httpx2.ProxyError):  # the rest is the proxy's words
        status = str(exc)[:3]
        return (
            password_wanted(base_url)
            if status == "407"
            else _unreachable(base_url, f"the proxy answers {status}")
        )
    timed_out = isinstance(exc, httpx2.ConnectTimeout)
    why = "it took too long" if timed_out else scrubbed(_reason(exc), *secrets)
    if "CERTIFICATE_VERIFY_FAILED" in str(exc):
        if not trusted:
            return ConfigError(
                f"{base_url}: its certificate is not trusted ({why}); check the address, or name "
                "the certificate of your own authority in SSL_CERT_FILE"
            )
        why = f"its certificate is not trusted any more ({why})"
    return _unreachable(base_url, why)


def _unreachable(base_url: str, why: str) -> TransientError:
    return TransientError(f"{base_url} cannot be reached: {why}", "connect")


def password_wanted(base_url: str) -> ConfigError:
    """What a proxy's 407 is."""
    return ConfigError(
        f"{base_url}: the proxy named in the environment refuses its user and password (HTTP 407)"
    )


def _reason(exc: BaseException) -> str:
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


def no_answer(base_url: str, timeout_s: float) -> TransientError:
    """The answer may come, and be billed, afterwards."""
    return TransientError(f"{base_url}: no answer within {timeout_s:g} s", "timeout")


def scrubbed(text: str, *secrets: str | None) -> str:
    """A text without keys and the like, whole or as servers abbreviate them."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "[key]")
    return _KEY_LIKE.sub("[key]", text)
