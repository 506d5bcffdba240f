"""Files on a disk or in an object store, behind one interface.

obstore is loaded when the first address of a store is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from claimscore.storage.interface import Storage
from claimscore.storage.local import LocalStorage
from claimscore.storage.store_address import is_remote, parse_address

if TYPE_CHECKING:
    from claimscore.storage.objects import ObjectStorage

__all__ = ["LocalStorage", "Storage", "is_remote", "open_file", "open_storage"]


def open_storage(where: str | Path) -> Storage:
    """The files below a path or an address; nothing is made, asked or checked yet.

    Raises `ConfigError` for an address of an unknown kind, or one that holds a secret.
    """
    if is_remote(where):
        from claimscore.storage.objects import ObjectStorage

        return ObjectStorage.at(parse_address(str(where)))
    return LocalStorage(Path(where))


def open_file(address: str) -> tuple[ObjectStorage, str]:
    """The whole bucket (or server) of a file's address, and the file's name in it.

    The name is empty where the address has none. Raises what `open_storage` raises.
    """
    from claimscore.storage.objects import ObjectStorage

    parsed = parse_address(address)
    return ObjectStorage.at(parsed._replace(path="")), parsed.path
