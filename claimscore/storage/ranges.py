"""An object as a stream, read by ranges of one version of it."""

from __future__ import annotations

import io
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import obstore
from obstore import exceptions

from claimscore.errors import ConfigError
from claimscore.storage.stores import interruptible, store_errors

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore

#: Bytes of one request: enough to hide a round trip, few for a slow line.
RANGE_BYTES = 8 << 20


class RangeReader(io.RawIOBase):
    """Holds one range in memory, whatever the object's length, and no connection between two.

    So hours may pass between two lines. `ConfigError` where the object has another version than
    at the start.
    """

    def __init__(
        self, store: ObjectStore, key: str, meta: ObjectMeta, kind: str, address: str
    ) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._size = meta["size"]
        self._e_tag = meta["e_tag"]
        self._kind = kind
        self._shown = address
        self._position = 0
        self._start = 0
        self._range = memoryview(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        if self._position >= self._size or not len(buffer):
            return 0
        offset = self._position - self._start
        if not 0 <= offset < len(self._range):
            self._range, self._start, offset = self._fetched(self._position), self._position, 0
        part = self._range[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)

    def _fetched(self, start: int) -> memoryview:
        options: GetOptions = {"range": (start, min(start + RANGE_BYTES, self._size))}
        if self._e_tag and not self._e_tag.startswith("W/"):  # a weak one never matches
            options["if_match"] = self._e_tag
        ask = partial(obstore.get, self._store, self._key, options=options)
        try:
            with store_errors(self._kind, self._shown):
                return interruptible(lambda: memoryview(ask().bytes()))
        except (exceptions.PreconditionError, FileNotFoundError):
            raise changed(self._shown) from None


def copied(store: ObjectStore, key: str, meta: ObjectMeta, kind: str, address: str) -> BinaryIO:
    """The same of a web server, which may have no ranges: read whole, into a temporary file
    without a name."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with store_errors(kind, address):
            blocks = iter(obstore.get(store, key).stream())
            while (block := interruptible(lambda: next(blocks, None))) is not None:
                copy.write(block)
        if copy.tell() != meta["size"]:
            raise changed(address)
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return copy


def changed(address: str) -> ConfigError:
    """An object that another one has replaced meanwhile."""
    return ConfigError(
        f"{address}: the object changed while it was being read; "
        "let its writer finish, then run the same command again"
    )
