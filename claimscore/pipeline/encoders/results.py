"""Results of models, kept across runs and metrics: what was computed once is not computed again.

Every model (name, revision, dtype, what else its numbers depend on) has a folder of rows, keyed by
the digest of the texts. A call asks for all its rows at once and keeps what it computed when it has
all of it: a call that was interrupted leaves nothing, so it is batched the same way again and
gives the same bytes.

A folder has two flat files. `keys` is a header and 16 bytes a row, `values` the rows in the same
order, each with a check over key and numbers. Both only grow, values first, so that a kill leaves a
tail that the next writer cuts off. Keys are in memory, sorted; values are read when asked for, by
plain reads: a mapped file that another process cuts off would kill this one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from claimscore.atomic import reason, write_text
from claimscore.config import user_cache_dir
from claimscore.file_lock import FileLock
from claimscore.pipeline.encoders.distinct import (
    Distinct,
    DistinctPairs,
    Pair,
    distinct,
    distinct_pairs,
)
from claimscore.pipeline.encoders.protocols import Model, ModelInfo, OnBatch, RejectedItemsError
from claimscore.types import JSON

T = TypeVar("T", str, Pair)

#: The folder beside the cache that has a folder for each model.
FOLDER = "models"
KEYS, VALUES, FACTS = "keys", "values", "facts.json"

#: A higher one where other code gives other numbers for the same facts: old rows are then left.
ARITHMETIC = "1"

#: Rows of a model that are kept: their keys take 480 MB of memory, and that is enough for texts
#: that are scored again and again. A run over a million records has more, and asks each once.
MOST_ROWS = 20_000_000

_MAGIC = b"csrows-1"
_HEADER = struct.Struct("<8sII")  # magic, words a row, CRC-32 of both
_KEY_BYTES = 16
#: Rows with at most so many bytes between them are read at once: cheaper than another call.
_GAP_BYTES = 16_384
_PATIENCE_S = 20.0
#: Odd factors of the digests of a pair's texts: a pair is not its texts the other way round.
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)

#: Keys ``[n, 2]``: 16 bytes of a digest each.
Keys = NDArray[np.uint64]
#: Rows ``[n, width]``.
Rows = NDArray[np.float32]

_counting = threading.Lock()


class DamagedError(Exception):
    """The files are not what was written."""


@dataclasses.dataclass(slots=True)
class StoreStats:
    """Distinct items of calls (pairs, texts): taken from the store, and computed."""

    found: int = 0
    computed: int = 0

    def add(self, found: int, computed: int) -> None:
        """Count a call's; several threads may."""
        with _counting:
            self.found += found
            self.computed += computed


class ModelStore:
    """The stored results of all models in a folder; `stats` counts what this process asked."""

    def __init__(self, folder: Path, *, on_notice: Callable[[str], None]) -> None:
        self.folder = folder
        self.stats = StoreStats()
        self._on_notice = on_notice
        self._opened: dict[Path, ResultFolder] = {}

    def around(self, model: Model) -> Model:
        """The model with its results stored; as it is where it has none that can be.

        A classifier or an embedder has results to store where its ``facts`` say what its numbers
        depend on besides `info`, and its ``truncates`` which items it cuts.
        """
        facts = getattr(model, "facts", None)
        if facts is not None and hasattr(model, "classify"):
            return StoredClassifier(model, self._folder("nli", model, facts), self.stats)
        if facts is not None and hasattr(model, "embed"):
            return StoredEmbedder(model, self._folder("embedder", model, facts), self.stats)
        return model

    def _folder(self, kind: str, model: Model, facts: Mapping[str, str]) -> ResultFolder:
        all_facts = {
            "kind": kind,
            "model": model.info.model.partition("@")[0],
            "revision": model.info.revision,
            "dtype": model.info.dtype,
            "arithmetic": ARITHMETIC,
            **facts,
        }
        new = ResultFolder(self.folder, all_facts, self._on_notice)
        return self._opened.setdefault(new.folder, new)  # copies of a model share one


def open_store(cache_dir: Path | None, *, on_notice: Callable[[str], None]) -> ModelStore:
    """The store beside the cache in a folder, the user's own where None."""
    return ModelStore((cache_dir or user_cache_dir()) / FOLDER, on_notice=on_notice)


class _Stored(Generic[T]):
    """A model's calls with the store before it."""

    def __init__(self, model: Any, rows: ResultFolder, stats: StoreStats) -> None:
        self.model = model
        self.info: ModelInfo = model.info
        self.rows = rows
        self._stats = stats

    def __getattr__(self, name: str) -> Any:
        """Everything else is the model's own: its limit, its threshold."""
        return getattr(self.model, name)

    def _values(
        self,
        compute: Callable[..., NDArray[np.float32]],
        unique: Distinct[T],
        keys: Keys,
        on_batch: OnBatch | None,
    ) -> NDArray[np.float32]:
        """The values of all inputs ``[n, d]``; those that are not stored are computed."""
        is_stored, rows = self.rows.look_up(keys)
        missing = np.flatnonzero(~is_stored)
        n_missing = int(unique.counts[missing].sum())
        n_stored = len(unique.inverse) - n_missing
        if on_batch is not None and n_stored:
            on_batch(n_stored)
        self._stats.add(len(keys) - len(missing), 0)
        if not len(missing) and len(keys):
            return rows[unique.inverse, 1:]
        items = [unique.items[place] for place in missing.tolist()]
        tell = on_batch and (
            lambda done: on_batch(n_stored + n_missing * done // max(1, len(missing)))
        )
        try:
            computed = compute(items, on_batch=tell)
        except RejectedItemsError as exc:
            owners = unique.positions(*missing[list(exc.indices)].tolist())
            raise RejectedItemsError(str(exc), exc.kind, owners) from exc
        self._stats.add(0, len(items))
        computed = self.rows.keep(keys[missing], computed, self.model.truncates(items))
        values = np.empty((len(keys), computed.shape[1]), dtype=np.float32)
        values[missing] = computed
        if n_stored:
            values[is_stored] = rows[:, 1:]
        return values[unique.inverse]

    def truncates(self, items: Sequence[T]) -> NDArray[np.bool_]:
        """Which of all inputs the model cuts ``[n]``: as stored, else asked of the model."""
        unique, keys = self._keyed(items)
        is_stored, rows = self.rows.look_up(keys)
        cut = np.empty(len(keys), dtype=bool)
        cut[is_stored] = rows[:, 0] > 0
        missing = np.flatnonzero(~is_stored)
        if len(missing):
            cut[missing] = self.model.truncates([unique.items[i] for i in missing.tolist()])
        return cut[unique.inverse]

    def _keyed(self, items: Sequence[T]) -> tuple[Distinct[T], Keys]:
        raise NotImplementedError


class StoredClassifier(_Stored[Pair]):
    """A pair classifier before which stored results come; see `PairClassifier`."""

    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        return self._values(self.model.classify, *self._keyed(pairs), on_batch)

    def _keyed(self, pairs: Sequence[Pair]) -> tuple[Distinct[Pair], Keys]:
        unique = distinct_pairs(pairs)
        return unique.pairs, self.rows.pair_keys(unique)


class StoredEmbedder(_Stored[str]):
    """A sentence encoder before which stored results come; see `Embedder`."""

    def embed(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        if not all(map(str.strip, texts)):
            return cast(NDArray[np.float32], self.model.embed(texts))  # which refuses it
        return self._values(self.model.embed, *self._keyed(texts), on_batch)

    def _keyed(self, texts: Sequence[str]) -> tuple[Distinct[str], Keys]:
        unique = distinct([text.strip() for text in texts])
        return unique, self.rows.text_keys(unique.items)


class ResultFolder:
    """The stored values of one model, which several processes and threads may read and add to.

    Guarantees: a value is what was added, bit for bit, or is not there; of two values of one key
    all readers get the first. A kill loses at most the rows being added. Where a folder is damaged,
    or cannot be read or written, nothing is found or kept, and one notice says why. ``facts``
    decide the folder's name and its keys.
    """

    def __init__(
        self, parent: Path, facts: Mapping[str, str], on_notice: Callable[[str], None]
    ) -> None:
        described = json.dumps(facts, sort_keys=True, ensure_ascii=False)
        name = hashlib.sha256(described.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        self.folder = parent / f"{facts['kind']}-{name}"
        self._salt = _digests([described])[0]
        self._facts = dict(facts)
        self._on_notice = on_notice
        self._may_read = self._may_write = True
        self._files: RowFiles | None = None
        self._using = threading.Lock()

    def text_keys(self, texts: Sequence[str]) -> Keys:
        """A key a text: 16 bytes of its digest."""
        keys: Keys = _digests(texts) ^ self._salt
        return keys

    def pair_keys(self, pairs: DistinctPairs) -> Keys:
        """A key a pair: the digests of both texts mixed.

        Digests are as good as random, so a weighted sum of two is; each text is hashed once, and
        the rest is arithmetic on arrays.
        """
        both = _digests(pairs.texts)[pairs.places]
        keys: Keys = (both[:, 0] * _FIRST + both[:, 1] * _SECOND) ^ self._salt
        return keys

    def look_up(self, keys: Keys) -> tuple[NDArray[np.bool_], Rows]:
        """Which keys are there ``[n]``, and of those the rows ``[found, 1 + d]``: whether the model
        cut the item, then its values."""
        with self._using:
            try:
                files = self._current() if self._may_read else None
                if files is not None:
                    places = files.index.find(keys)
                    which = places >= 0
                    return which, files.read(places[which], keys[which])
            except DamagedError as exc:
                self._refuse(exc)
            except OSError as exc:
                self._may_read = False
                self._stop_keeping(reason(exc))
        return np.zeros(len(keys), dtype=bool), np.zeros((0, 1), dtype=np.float32)

    def keep(
        self, keys: Keys, values: NDArray[np.float32], truncated: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Add values of distinct keys; return those stored now: another process may be first."""
        rows = np.concatenate([truncated[:, None].astype(np.float32), values], axis=1)
        with self._using:
            if not (self._may_read and self._may_write and len(keys)):
                return values
            try:
                with self._locked():
                    return self._add(keys, rows)[:, 1:]
            except DamagedError as exc:
                self._refuse(exc)
            except OSError as exc:
                self._stop_keeping(reason(exc))
        return values

    def close(self) -> None:
        """Close the files; the next call opens them again."""
        if self._files is not None:
            self._files.close()
            self._files = None

    def _add(self, keys: Keys, rows: Rows) -> Rows:
        files = self._current()
        if files is None:
            create_files(self.folder, self._facts, rows.shape[1])
            files = self._files = RowFiles(self.folder)
        if files.width != rows.shape[1]:
            raise DamagedError("its header says another width")
        places = files.index.find(keys)
        new, known = places < 0, places >= 0
        if files.index.size + int(new.sum()) > MOST_ROWS:
            self._stop_keeping(f"{files.index.size:,} are there, of at most {MOST_ROWS:,}")
        else:
            files.append(keys[new], rows[new])
        if not known.any():
            return rows
        kept = rows.copy()
        kept[known] = files.read(places[known], keys[known])
        return kept

    def _current(self) -> RowFiles | None:
        """The files with all that any process has added; None where there are none."""
        if self._files is not None and not self._files.are_in(self.folder):
            self.close()
        if self._files is None:
            try:
                self._files = RowFiles(self.folder)
            except FileNotFoundError:
                return None
        self._files.refresh()
        return self._files

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process adds or replaces at a time; the lock ends with the process."""
        self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder.with_name(f"{self.folder.name}.lock")
        lock = FileLock.take(path, patience_s=_PATIENCE_S)
        if lock is None:
            raise TimeoutError("another process does not let go of it")
        with lock:
            yield

    def _stop_keeping(self, why: str) -> None:
        self._may_write = False
        self._on_notice(f"{self.folder}: results of models are not kept from here on ({why})")

    def _refuse(self, damage: DamagedError) -> None:
        self._may_read = False
        self._stop_keeping(f"they are damaged: {damage}; remove the folder to begin anew")
        self.close()


class RowFiles:
    """The two files of a folder as they are; `refresh` reads the keys that were added since.

    `FileNotFoundError` where there are none, or a kill left one before its header was whole.
    """

    def __init__(self, folder: Path) -> None:
        self.index = KeyIndex()
        self._folder = folder
        with contextlib.ExitStack() as stack:
            self._keys = stack.enter_context(_opened(folder / KEYS, os.O_RDONLY))
            try:
                self._values = stack.enter_context(_opened(folder / VALUES, os.O_RDONLY))
            except FileNotFoundError:
                raise DamagedError("its values are gone") from None
            header = os.pread(self._keys, _HEADER.size, 0)
            if len(header) < _HEADER.size:
                raise FileNotFoundError(KEYS)
            _, words, _ = _HEADER.unpack(header)
            if header != _header(words):
                raise DamagedError("its header is not one")
            self.width = words - 1
            self._row_bytes = 4 * words
            self.close = stack.pop_all().close

    def are_in(self, folder: Path) -> bool:
        """Whether these are still the files of the folder."""
        try:
            return os.path.samestat((folder / KEYS).stat(), os.fstat(self._keys))
        except FileNotFoundError:
            return False

    def refresh(self) -> None:
        """Read the keys that were added since; `DamagedError` where some are gone."""
        n = (os.fstat(self._keys).st_size - _HEADER.size) // _KEY_BYTES
        if n < self.index.size:
            raise DamagedError("its keys were cut off")
        if os.fstat(self._values).st_size < n * self._row_bytes:
            raise DamagedError("its values were cut off")
        if n > self.index.size:
            size, offset = (n - self.index.size) * _KEY_BYTES, self.index.size * _KEY_BYTES
            data = _read_at(self._keys, size, _HEADER.size + offset)
            self.index.add(np.frombuffer(data, dtype=np.uint64).reshape(-1, 2))

    def read(self, places: NDArray[np.int64], keys: Keys) -> Rows:
        """The rows at these places; `DamagedError` where they are not those of the keys."""
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        raw = np.empty((len(places), self.width + 1), dtype=np.uint32)
        ends = np.flatnonzero(np.diff(ordered) * self._row_bytes > _GAP_BYTES) + 1
        for start, stop in itertools.pairwise([0, *ends.tolist(), len(ordered)]):
            if start < stop:
                first, n = int(ordered[start]), int(ordered[stop - 1] - ordered[start]) + 1
                data = _read_at(self._values, n * self._row_bytes, first * self._row_bytes)
                block = np.frombuffer(data, dtype=np.uint32).reshape(n, -1)
                raw[order[start:stop]] = block[ordered[start:stop] - first]
        if not np.array_equal(raw[:, 0], _checks(keys, raw[:, 1:])):
            raise DamagedError("rows do not check")
        rows: Rows = raw[:, 1:].view(np.float32)
        return rows

    def append(self, keys: Keys, rows: Rows) -> None:
        """Add rows at the end; the caller has the folder's lock and has refreshed."""
        raw = np.ascontiguousarray(rows, dtype=np.float32).view(np.uint32)
        checked = np.concatenate([_checks(keys, raw)[:, None], raw], axis=1)
        n = self.index.size
        with (
            _opened(self._folder / VALUES, os.O_RDWR) as values,
            _opened(self._folder / KEYS, os.O_RDWR) as key_file,
        ):
            parts = (
                (values, n * self._row_bytes, checked.tobytes()),
                (key_file, _HEADER.size + n * _KEY_BYTES, np.ascontiguousarray(keys).tobytes()),
            )
            try:
                for file, end, data in parts:
                    os.ftruncate(file, end)  # what a kill left
                    _write_at(file, data, end)
            except OSError:
                with contextlib.suppress(OSError):
                    for file, end, _ in reversed(parts):
                        os.ftruncate(file, end)
                raise
        self.index.add(keys)


class KeyIndex:
    """Where keys are: a few sorted runs in memory, 24 bytes a key, each twice the next or longer.

    Of three keys with the same first 8 bytes, which is next to impossible, the third may be
    looked for in vain: it is computed each time.
    """

    def __init__(self) -> None:
        self.size = 0
        self._runs: list[tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]] = []

    def add(self, keys: Keys) -> None:
        """Add keys whose places follow those that are there."""
        order = np.argsort(keys[:, 0], kind="stable")
        self._runs.append((keys[order, 0], keys[order, 1], order + self.size))
        self.size += len(keys)
        while len(self._runs) > 1 and 2 * len(self._runs[-1][0]) > len(self._runs[-2][0]):
            last, before = self._runs.pop(), self._runs.pop()
            order = np.argsort(np.concatenate([before[0], last[0]]), kind="stable")
            first, second, places = (
                np.concatenate(columns)[order] for columns in zip(before, last, strict=True)
            )
            self._runs.append((first, second, places))

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """The place of each key, -1 where there is none."""
        positions = np.full(len(keys), -1, dtype=np.int64)
        order = np.argsort(keys[:, 0])
        first, second = keys[order, 0], keys[order, 1]
        for run_first, run_second, places in self._runs:
            if len(places):
                start = np.searchsorted(run_first, first)
                for step in (0, 1):
                    at = np.minimum(start + step, len(places) - 1)
                    same = (run_first[at] == first) & (run_second[at] == second)
                    positions[order[same]] = places[at[same]]
        return positions


def create_files(folder: Path, facts: Mapping[str, str], width: int) -> None:
    """Make new files without rows; ``facts`` are for people."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_text(folder / FACTS, json.dumps({**facts}, indent=1, ensure_ascii=False) + "\n")
    for name, content in ((VALUES, b""), (KEYS, _header(width + 1))):
        with _opened(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            _write_at(file, content, 0)


class StoredModel(NamedTuple):
    """The stored results of one model; ``last_added`` is in seconds since 1970."""

    folder: Path
    facts: JSON
    rows: int
    n_bytes: int
    last_added: float

    def to_json(self) -> JSON:
        """The figures of `claimscore cache stats --json`."""
        sizes = {"rows": self.rows, "bytes": self.n_bytes}
        return {"folder": self.folder.name, **self.facts, **sizes}

    def text(self) -> str:
        """The same for people."""
        facts = {"kind": "?", "model": "?", "dtype": "?", **self.facts}
        named = f"{facts['kind']} {facts['model']}, {facts['dtype']}"
        return f"{self.rows:,} stored results of {named} ({self.n_bytes / 1e6:,.1f} MB)"


def stored_models(folder: Path) -> list[StoredModel]:
    """Every model with results in the folder."""
    models = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        keys, values = path / KEYS, path / VALUES
        if not (keys.is_file() and values.is_file()):
            continue
        try:
            facts = json.loads((path / FACTS).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            facts = {}
        stats = keys.stat(), values.stat()
        rows = max(0, stats[0].st_size - _HEADER.size) // _KEY_BYTES
        n_bytes = sum(stat.st_size for stat in stats)
        last_added = max(stat.st_mtime for stat in stats)
        facts = facts if isinstance(facts, dict) else {}
        models.append(StoredModel(path, facts, rows, n_bytes, last_added))
    return models


def prune_models(folder: Path, older_than_s: float, *, dry_run: bool) -> list[StoredModel]:
    """Remove the results of models to which none was added for so long; return which."""
    before = time.time() - older_than_s
    old = [model for model in stored_models(folder) if model.last_added < before]
    for model in [] if dry_run else old:
        gone = model.folder.with_name(f".{model.folder.name}.gone")
        shutil.rmtree(gone, ignore_errors=True)
        model.folder.rename(gone)  # at once: a run in progress begins a new one
        shutil.rmtree(gone, ignore_errors=True)
    return old


def _digests(texts: Sequence[str]) -> Keys:
    """16 bytes of BLAKE2b a text, ``[n, 2]``; a text may have lone surrogates."""
    blake2b = hashlib.blake2b
    data = (text.encode("utf-8", "surrogatepass") for text in texts)
    joined = b"".join([blake2b(one, digest_size=16).digest() for one in data])
    return np.frombuffer(joined, dtype="<u8").reshape(-1, 2).astype(np.uint64)


def _header(words: int) -> bytes:
    return _HEADER.pack(_MAGIC, words, zlib.crc32(words.to_bytes(4, "little"), zlib.crc32(_MAGIC)))


def _checks(keys: Keys, raw: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A CRC-32 of each row that begins with its key's."""
    size = 4 * raw.shape[1]
    data = memoryview(np.ascontiguousarray(raw).tobytes())
    seeds = keys[:, 1].astype(np.uint32).tolist()
    crc32, starts = zlib.crc32, range(0, len(seeds) * size, size)
    sums = (crc32(data[at : at + size], seed) for at, seed in zip(starts, seeds, strict=True))
    return np.fromiter(sums, dtype=np.uint32, count=len(seeds))


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def _read_at(descriptor: int, size: int, offset: int) -> bytes:
    """So many bytes; a large read may come in pieces."""
    pieces = []
    while size:
        piece = os.pread(descriptor, size, offset)
        if not piece:
            raise DamagedError("its files were cut off")
        pieces.append(piece)
        size, offset = size - len(piece), offset + len(piece)
    return b"".join(pieces)
