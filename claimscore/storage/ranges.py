"""An object as a stream, read by ranges of one version of it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import obstore
from obstore import exceptions

from claimscore.errors import ConfigError
from claimscore.storage.stores import store_errors

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

#: What is asked for at a time: long enough to hide a round trip, short for a slow line.
RANGE_BYTES = 8 << 20


class RangeReader(io.RawIOBase):
    """Holds one range in memory, whatever the object's length.

    A range that breaks off is asked for again by the store's retries. `ConfigError` where the
    object is no longer the version that was looked at.
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
        stop = min(start + RANGE_BYTES, self._size)
        try:
            with store_errors(self._kind, self._shown):
                found = obstore.get(
                    self._store,
                    self._key,
                    options={"range": (start, stop), "if_match": self._e_tag},
                )
                return memoryview(found.bytes())
        except (exceptions.PreconditionError, FileNotFoundError):
            raise ConfigError(
                f"{self._shown}: the object changed while it was being read"
            ) from None
