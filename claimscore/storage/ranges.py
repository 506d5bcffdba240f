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
    at the start. A web server without ranges is read whole, into a temporary file without a name.
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
        self._whole: BinaryIO | None = None

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

    def close(self) -> None:
        if self._whole is not None:
            self._whole.close()
        super().close()

    def _fetched(self, start: int) -> memoryview:
        stop = min(start + RANGE_BYTES, self._size)
        options: GetOptions = {"range": (start, stop)}
        if self._e_tag and not self._e_tag.startswith("W/"):  # a weak one never matches
            options["if_match"] = self._e_tag
        if self._whole is None:
            try:
                with store_errors(self._kind, self._shown):
                    return self._asked(options)
            except (exceptions.PreconditionError, FileNotFoundError):
                raise self._changed() from None
            except _NoRangesError:
                self._whole = self._copied()
        self._whole.seek(start)
        return memoryview(self._whole.read(stop - start))

    def _asked(self, options: GetOptions) -> memoryview:
        try:
            ask = partial(obstore.get, self._store, self._key, options=options)
            return interruptible(lambda: memoryview(ask().bytes()))
        except exceptions.NotSupportedError:
            raise _NoRangesError from None

    def _copied(self) -> BinaryIO:
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the reader
        try:
            with store_errors(self._kind, self._shown):
                blocks = iter(obstore.get(self._store, self._key).stream())
                while (block := interruptible(lambda: next(blocks, None))) is not None:
                    copy.write(block)
            if copy.tell() != self._size:
                raise self._changed()
        except BaseException:
            copy.close()
            raise
        return copy

    def _changed(self) -> ConfigError:
        return ConfigError(
            f"{self._shown}: the object changed while it was being read; "
            "let its writer finish, then run the same command again"
        )


class _NoRangesError(Exception):
    """The server sends whole files only."""
