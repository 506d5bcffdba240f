"""Addresses of object stores and web servers: what is one, and what a store's error means."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, TypeGuard

from claimscore.errors import ClaimscoreError, ConfigError, InputError, StoppedEarly

#: The kinds of addresses that are read, and those of stores.
SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "http", "https")
STORES = SCHEMES[:5]

#: What messages of stores mean, and those of polars about files at addresses.
_MEANINGS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def is_address(where: object) -> TypeGuard[str]:
    """Whether this is the address of an object store or a web server, not a path."""
    return isinstance(where, str) and "://" in where


def check_address(address: str, schemes: tuple[str, ...] = SCHEMES) -> None:
    """`ConfigError` for another kind of address, or one with what may be a secret (user name,
    password, query), which is not shown."""
    scheme, _, rest = address.partition("://")
    place = rest.partition("/")[0]
    if scheme not in schemes:
        known = ", ".join(f"{name}://" for name in schemes)
        shown = scheme if re.fullmatch("[A-Za-z0-9+.-]{1,20}", scheme) else "this"
        raise ConfigError(f"{shown}://: no such kind of address is known; known ones: {known}")
    if ("@" in place and scheme not in ("abfs", "abfss")) or "?" in rest:
        raise ConfigError(
            f"{scheme}://: an address is a place alone, without user name, password or query; "
            "keys belong in the store's environment variables (docs/reference/object-stores.md)"
        )


def check_store(address: str) -> None:
    """The same for a place in an object store, where `.`, `..` and `//` are no names."""
    check_address(address, STORES)
    if {"", ".", ".."} & set(address.partition("://")[2].split("/")):
        raise ConfigError(f"{address}: no address in a store, as s3://bucket/folder is one")


def store_error(address: str, error: Exception) -> ClaimscoreError | None:
    """What a store's or polars' error means, in one line without a secret; None where that is not
    known."""
    said = _meaning("store", error)
    if said is None:
        return None
    kind = StoppedEarly if said.get("passes") else ConfigError
    return kind(f"{address}: {said['words']}")


def file_error(address: str, error: Exception) -> InputError | None:
    """The same where it is about a file at an address."""
    said = None if "NoSuchBucket" in str(error) else _meaning("file", error)
    return None if said is None else InputError(f"{address}: {said['words']}")


def _meaning(what: str, error: Exception) -> dict[str, Any] | None:
    of_what = (said for said in _MEANINGS[what] if re.search(said["pattern"], str(error)))
    return next(of_what, None)


def first_words(error: Exception) -> str:
    """The begin of a message, without addresses: these may be signed."""
    return re.sub(r"\w+://\S+", "...", str(error).strip().partition("\n")[0])[:200]
