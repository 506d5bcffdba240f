"""Addresses of object stores: which there are, their parts, and no secret in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from claimscore.errors import ConfigError

#: What may stand before `://`, and the kind of store that it names.
SCHEMES = {
    "s3": "s3",
    "gs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "http": "http",
    "https": "http",
}

_AZURE_ACCOUNT = re.compile(r"[a-z0-9-]+@[a-z0-9.-]+", re.IGNORECASE)


class Address(NamedTuple):
    """`root` is the bucket or the server, `path` what follows, without slashes at its ends."""

    kind: str
    root: str
    path: str

    def __str__(self) -> str:
        path = quote(self.path) if self.kind == "http" else self.path
        return f"{self.root}/{path}" if path else self.root

    @property
    def name(self) -> str:
        """The bucket, the container or the host."""
        return self.root.partition("://")[2]


def is_remote(where: str | Path) -> bool:
    """Whether this is the address of an object store or a web server, not a path."""
    return isinstance(where, str) and "://" in where


def parse_address(text: str) -> Address:
    """The parts of an address.

    Raises `ConfigError` for an unknown kind, for one without a bucket, and for one with what
    may be a secret (user name, password, query), which is not shown.
    """
    scheme, _, rest = text.partition("://")
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        shown = scheme if re.fullmatch("[A-Za-z0-9+.-]{1,20}", scheme) else "this"
        raise ConfigError(f"{shown}://: no such kind of address is known; known ones: {known}")
    place, _, path = rest.partition("/")
    kind = SCHEMES[scheme]
    account = scheme in ("abfs", "abfss") and _AZURE_ACCOUNT.fullmatch(place)
    query = r"[?#]" if kind == "http" else r"\?[\w.-]+="  # elsewhere ? may be a pattern's
    if ("@" in place and not account) or re.search(query, rest):
        raise ConfigError(
            f"{scheme}://: an address is a place alone, without user name, password or query; "
            "keys belong in the store's environment variables (docs/reference/object-stores.md)"
        )
    if not re.fullmatch(r"[!-~]+", place) or not _is_place(scheme, place):
        raise ConfigError(
            f"{text}: the address names no {_place(kind)}; it looks like {_LIKE[kind]}"
        )
    if kind == "http":
        path = unquote(path)
    path = path.strip("/")
    if any(part in ("", ".", "..") for part in path.split("/") if path):
        raise ConfigError(f"{text}: '.', '..' and '//' are no names in an object store")
    return Address(kind, f"{scheme}://{place}", path)


_LIKE = {
    "s3": "s3://bucket/folder",
    "gs": "gs://bucket/folder",
    "az": "az://container/folder",
    "http": "https://host/folder",
}


def _place(kind: str) -> str:
    return {"az": "container", "http": "host"}.get(kind, "bucket")


def _is_place(scheme: str, place: str) -> bool:
    try:
        parts = urlsplit(f"{scheme}://{place}")
        return bool(parts.hostname) and (parts.port is None or scheme in ("http", "https"))
    except ValueError:
        return False
