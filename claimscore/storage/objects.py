"""Files in an object store, through obstore.

A PUT is atomic in every store: a reader gets the old content or the new one, whole. A content
longer than 5 MiB goes up in pieces that become one object at the end. A conditional write is one
request that the store itself judges, so of several writers at once one succeeds.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import itertools
import json
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import obstore
from obstore import exceptions

from claimscore.errors import ConfigError
from claimscore.storage.interface import checked
from claimscore.storage.store_address import Address
from claimscore.storage.stores import interruptible, no_bucket, open_store, store_errors

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta, PutMode, PutResult, UpdateVersion
    from obstore.store import ObjectStore

_UPLOADS = 4

#: Bytes of one request of a stream: enough to hide a round trip, few for a slow line.
RANGE_BYTES = 8 << 20


class Stat(NamedTuple):
    """The size in bytes, and a version that changes with the content as far as metadata tells."""

    size: int
    version: str


class ObjectStorage:
    """A `Storage` in a bucket, or on a web server, which is read-only.

    Beyond `Storage` it has the conditional writes of a store: `create`, `version`, `replace_if`.
    After a lost connection obstore repeats the request, so the writer that succeeded may be
    answered False or None: then the content tells.
    """

    local = None

    def __init__(self, store: ObjectStore, address: Address) -> None:
        self._store = store
        self._address = address
        self._has_written = False

    @classmethod
    def at(cls, address: Address) -> ObjectStorage:
        """The files below an address; raises `ConfigError` where credentials are missing."""
        return cls(open_store(address), address)

    def __repr__(self) -> str:
        return f"ObjectStorage({self.name!r})"

    @property
    def name(self) -> str:
        return str(self._address)

    @property
    def writable(self) -> bool:
        return self._address.kind != "http"

    def address(self, name: str = "") -> str:
        return str(self._address._replace(path=self._key(name)) if name else self._address)

    def read(self, name: str) -> bytes:
        with self._errors(name):
            key = self._key(name)
            return interruptible(lambda: bytes(obstore.get(self._store, key).bytes()))

    def open(self, name: str) -> BinaryIO:
        meta = self._head(name)
        if self._address.kind == "http":
            return self._copied(name, meta)
        return io.BufferedReader(_RangeReader(self, name, meta), 1 << 20)

    def _copied(self, name: str, meta: ObjectMeta) -> BinaryIO:
        """A web server may have no ranges: read whole, into a temporary file without a name."""
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            with self._errors(name):
                blocks = iter(obstore.get(self._store, self._key(name)).stream())
                while (block := interruptible(lambda: next(blocks, None))) is not None:
                    copy.write(block)
            if copy.tell() != meta["size"]:
                raise self._changed(name)
            copy.seek(0)
        except BaseException:
            copy.close()
            raise
        return copy

    def read_range(self, name: str, meta: ObjectMeta, start: int) -> memoryview:
        """Up to `RANGE_BYTES` bytes of this version of a file; `ConfigError` where another one
        has replaced it."""
        options: GetOptions = {"range": (start, min(start + RANGE_BYTES, meta["size"]))}
        e_tag = meta["e_tag"]
        if e_tag and not e_tag.startswith("W/"):  # a weak one never matches
            options["if_match"] = e_tag
        ask = partial(obstore.get, self._store, self._key(name), options=options)
        try:
            with self._errors(name):
                return interruptible(lambda: memoryview(ask().bytes()))
        except (exceptions.PreconditionError, FileNotFoundError):
            raise self._changed(name) from None

    def _changed(self, name: str) -> ConfigError:
        return ConfigError(
            f"{self.address(name)}: the object changed while it was being read; "
            "let its writer finish, then run the same command again"
        )

    def stat(self, name: str) -> Stat:
        """Size and version of the content; `FileNotFoundError` where there is none."""
        meta = self._head(name)
        version = meta["e_tag"] or str(meta["last_modified"])
        return Stat(meta["size"], f"{meta['size']} {version} {meta['version'] or ''}".strip())

    def exists(self, name: str) -> bool:
        return self.version(name) is not None

    def write(self, name: str, data: bytes | memoryview) -> None:
        self._put(name, _flat(data))

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="claimscore-") as scratch:
            path = Path(scratch, "file")
            yield path
            self.upload(name, path)

    def upload(self, name: str, path: Path) -> None:
        """Replace the content by a local file's, of any length, wholly or not at all."""
        self._put(name, path)

    def create(self, name: str, data: bytes | memoryview) -> bool:
        """Write unless the file is there; of several writers at once, at most one gets True."""
        try:
            self._put(name, _flat(data), "create")
        except exceptions.AlreadyExistsError:
            return False
        return True

    def version(self, name: str) -> str | None:
        """The version that `replace_if` compares; None where there is no file."""
        try:
            return _version(self._head(name))
        except FileNotFoundError:
            return None

    def replace_if(self, name: str, data: bytes | memoryview, version: str) -> str | None:
        """Replace the content if it still has this version; the new version, or None."""
        expected = cast("UpdateVersion", json.loads(version))
        try:
            return _version(self._put(name, _flat(data), expected))
        except exceptions.PreconditionError:
            return None

    def delete(self, *names: str) -> None:
        self._refuse_read_only("")
        keys = [self._key(name) for name in names]
        if not keys:
            return
        try:
            with self._errors(names[0]):
                interruptible(lambda: obstore.delete(self._store, keys))
        except FileNotFoundError:  # one of many was missing: the others one by one
            for name, key in zip(names, keys, strict=True):
                with contextlib.suppress(FileNotFoundError), self._errors(name):
                    interruptible(partial(obstore.delete, self._store, key))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        return dict(sorted(self._listed(prefix)))

    def suggestion(self, name: str) -> str:
        """A hint to put behind `there is no such file`: it is a folder, or others have similar
        names.

        Raises the errors of listing, which tell a missing bucket from a missing object.
        """
        if not self.writable:
            return ""
        if self._some_names(name):
            return f"; it is a folder: name a file in it or a pattern such as {name}/*.jsonl"
        close = difflib.get_close_matches(name, self._some_names(name.rpartition("/")[0]), n=3)
        if not close:
            return ""
        return "; did you mean " + " or ".join(self.address(other) for other in close) + "?"

    def _some_names(self, prefix: str) -> list[str]:
        """Up to a thousand of the names: there may be millions."""
        return [name for name, _ in itertools.islice(self._listed(prefix), 1_000)]

    def _listed(self, prefix: str) -> Iterator[tuple[str, int]]:
        if self._address.kind == "http":
            raise ConfigError(f"{self.name}: a web server does not say which files it has")
        start = len(self._address.path) + 1 if self._address.path else 0
        folder = self._key(prefix) if prefix else self._address.path
        with self._errors(""):
            pages = iter(obstore.list(self._store, folder or None))
            while (metas := interruptible(lambda: next(pages, None))) is not None:
                for meta in metas:
                    if not meta["path"].rpartition("/")[2].startswith("."):
                        yield meta["path"][start:], int(meta["size"])

    def _key(self, name: str) -> str:
        return f"{self._address.path}/{checked(name)}".lstrip("/")

    def _head(self, name: str) -> ObjectMeta:
        with self._errors(name):
            key = self._key(name)
            return interruptible(lambda: obstore.head(self._store, key))

    def _errors(self, name: str) -> AbstractContextManager[None]:
        shown = self.address(name) if name else self.name
        return store_errors(self._address.kind, shown, worked=self._has_written)

    def _put(self, name: str, data: memoryview | Path, mode: PutMode = "overwrite") -> PutResult:
        self._refuse_read_only(name)
        key = self._key(name)
        with self._errors(name):
            try:
                put = partial(obstore.put, mode=mode, max_concurrency=_UPLOADS)
                done = interruptible(lambda: put(self._store, key, data))
            except FileNotFoundError as exc:  # an object may be missing, its bucket may not
                raise no_bucket(self.address(name), self._has_written) from exc
        self._has_written = True
        return done

    def _refuse_read_only(self, name: str) -> None:
        if not self.writable:
            raise ConfigError(f"{self.name}/{name}: a web server's files can only be read")


class _RangeReader(io.RawIOBase):
    """One version of an object as a stream. Holds one range in memory, whatever the length, and no
    connection between two, so hours may pass between two lines."""

    def __init__(self, storage: ObjectStorage, name: str, meta: ObjectMeta) -> None:
        super().__init__()
        self._fetch = partial(storage.read_range, name, meta)
        self._size = meta["size"]
        self._position = self._start = 0
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
            self._range, self._start, offset = self._fetch(self._position), self._position, 0
        part = self._range[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)


def _flat(data: bytes | memoryview) -> memoryview:
    return memoryview(data).cast("B")


def _version(meta: ObjectMeta | PutResult) -> str:
    """The condition of a put, as text: the ETag, and the generation where there is one."""
    found = {"e_tag": meta["e_tag"], "version": meta["version"]}
    return json.dumps({name: value for name, value in found.items() if value not in (None, "null")})
