"""Folders on a disk or in an object store, behind one interface.

obstore is loaded when the first address of a store is opened."""

from __future__ import annotations

from claimscore.storage.addresses import is_remote
from claimscore.storage.folder import Folder
from claimscore.storage.local import LocalFolder
from claimscore.storage.opening import open_file, open_folder

__all__ = ["Folder", "LocalFolder", "is_remote", "open_file", "open_folder"]
