"""Folders on a disk or in an object store, behind one interface.

obstore is loaded when the first address of a store is opened."""

from __future__ import annotations

from claimscore.storage.addresses import is_remote
from claimscore.storage.interface import Storage
from claimscore.storage.local import LocalStorage
from claimscore.storage.opening import open_file, open_storage

__all__ = ["LocalStorage", "Storage", "is_remote", "open_file", "open_storage"]
