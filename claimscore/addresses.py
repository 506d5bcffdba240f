"""Addresses of servers and their keys: one spelling each, and no secret in them or on the way."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit, urlunsplit

from claimscore.errors import ConfigError

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
