"""The folder at a path or an address, whatever kind of place that is."""

from __future__ import annotations

from pathlib import Path

from claimscore.storage.addresses import is_remote, parse_address
from claimscore.storage.interface import Storage
from claimscore.storage.local import LocalStorage


def open_storage(where: str | Path) -> Storage:
    """The folder at a path or an address; nothing is made, asked or checked yet.

    Raises `ConfigError` for an address of no known kind, or one that holds a secret.
    """
    if isinstance(where, str) and is_remote(where):
        from claimscore.storage.objects import ObjectStorage

        return ObjectStorage.at(parse_address(where))
    return LocalStorage(Path(where))


def open_file(address: str) -> tuple[Storage, str]:
    """The whole bucket (or server) of a file's address, and the file's name in it.

    The name is empty where the address has none. Raises what `open_storage` raises.
    """
    from claimscore.storage.objects import ObjectStorage

    place = parse_address(address)
    return ObjectStorage.at(place._replace(path="")), place.path
