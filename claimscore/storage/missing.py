"""The message where an object is missing."""

from __future__ import annotations

import difflib

from claimscore.storage.interface import Storage
from claimscore.storage.objects import ObjectStorage


def instead_of(folder: Storage, name: str) -> str:
    """A hint to put behind `there is no such file`: it is a folder, or others are called alike.

    Raises what listing raises, which tells a missing bucket from a missing object.
    """
    if not isinstance(folder, ObjectStorage) or not folder.writable:
        return ""
    if folder.some_names(name):
        return f"; it is a folder: name a file in it or a pattern such as {name}/*.jsonl"
    close = difflib.get_close_matches(name, folder.some_names(name.rpartition("/")[0]), n=3)
    if not close:
        return ""
    return "; did you mean " + " or ".join(str(folder.address(other)) for other in close) + "?"
