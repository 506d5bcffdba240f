"""Results of models, kept across runs and metrics: what was computed once is not computed again.

One SQLite file beside the cache has one table: keys, digests of what decides a value (the model,
the text or pair), and values with a check. A call asks for all its rows at once and adds what it
computed in one transaction: a call that was interrupted leaves nothing, so it is batched the same
way again and gives the same bytes. A value is what was added bit for bit or is not there; of two
values of one key all readers get the first.

Each call opens the file anew: processes and threads share nothing but SQLite's locks, which hold on
network folders too; hence no WAL. Commits do not wait for the disk: a power failure may damage the
file, which is noticed. The number of rows has no limit; a million pairs take 50 MB.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from claimscore.atomic import reason
from claimscore.config import user_cache_dir
from claimscore.pipeline.encoders.distinct import Distinct, Pair, distinct_pairs, distinct_texts
from claimscore.pipeline.encoders.protocols import Model, ModelInfo, OnBatch, RejectedItemsError
from claimscore.types import JSON

T = TypeVar("T")
Numbers = NDArray[np.float32]

#: A higher one where other code gives other numbers for the same facts: old rows are then left.
ARITHMETIC = "1"

_OURS = 0x636C6D31  # `application_id` of our files; the last byte is their version
_TABLE = "CREATE TABLE results (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
#: A new file has larger pages, its journal stays and is written over, a call's pages fit (in KiB).
_SETTINGS = """PRAGMA page_size = 8192; PRAGMA journal_mode = PERSIST; PRAGMA cache_size = -65536;
PRAGMA synchronous = OFF;"""
_ADVICE = "make room, let it be read and written, or name another folder with --cache-dir"
_lock = threading.Lock()
logger = logging.getLogger("claimscore")


@dataclasses.dataclass(slots=True)
class StoreStats:
    """Distinct items of calls (pairs, texts): taken from the store, and computed."""

    found: int = 0
    computed: int = 0

    def add(self, found: int, computed: int) -> None:
        """Count a call's; several threads may."""
        with _lock:
            self.found += found
            self.computed += computed


def open_store(
    cache_dir: Path | None, *, on_notice: Callable[[str], None] = logger.warning
) -> ModelStore:
    """The store beside the cache in a folder, the user's own where None."""
    return ModelStore((cache_dir or user_cache_dir()) / "models.db", on_notice)


class ModelStore:
    """The stored results of all models in a file; `stats` counts what this process asked.

    Where the file is damaged, of another maker or format, or cannot be read or written, one notice
    says what to do, and calls go on without it.
    """

    def __init__(self, path: Path, on_notice: Callable[[str], None]) -> None:
        self.path, self.stats = path, StoreStats()
        self._on_notice = on_notice
        self._may_read = self._may_write = True

    def around(self, model: Model) -> Model:
        """The model with its results stored; as it is where it has none that can be.

        A classifier or an embedder has results to store where its ``facts`` say what its numbers
        depend on besides `info`, and its ``truncates`` which items it cuts.
        """
        if members := getattr(model, "members", ()):
            several: Any = model
            return cast(Model, several._replace(members=tuple(map(self.around, members))))
        has_results = hasattr(model, "classify") or hasattr(model, "embed")
        is_known = getattr(model, "facts", None) is not None
        return StoredModel(model, self) if has_results and is_known else model

    def recall(self, name: str) -> JSON | None:
        """What `remember` was last given by this name."""
        for row in self.look_up([_digests([name]).tobytes()]).values():
            return cast(JSON, json.loads(row[4:]))
        return None

    def remember(self, name: str, value: JSON) -> None:
        """Keep a fact about this machine, in place of the last one."""
        text = json.dumps(value).encode()
        words = np.frombuffer(text.ljust(-len(text) // 4 * -4), "<f4")[None]
        self._add("REPLACE", _rows([_digests([name]).tobytes()], words))

    def size(self) -> tuple[int, int]:
        """Rows, and bytes of the file."""
        count = "SELECT count(*) FROM results"
        n_rows = self._do(False, 0, lambda file: int(file.execute(count).fetchone()[0]))
        return n_rows, self.path.stat().st_size if n_rows else 0

    def look_up(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The rows that are there, by key; see `_rows`."""

        def read(file: sqlite3.Connection) -> dict[bytes, bytes]:
            rows: dict[bytes, bytes] = {}
            for start in range(0, len(keys), 900):  # an old SQLite takes 999 values
                some = keys[start : start + 900]
                marks = ",".join("?" * len(some))
                rows.update(file.execute(f"SELECT * FROM results WHERE key IN ({marks})", some))
            if rows and rows != _rows([*rows], _words(rows.values())[:, 1:]):
                raise sqlite3.DatabaseError("rows do not check")
            return rows

        return self._do(False, {}, read)

    def keep(self, rows: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Add rows by key; return what is there where another process was first with some."""
        return self.look_up([*rows]) if self._add("IGNORE", rows) < len(rows) else {}

    def _add(self, if_there: str, rows: Mapping[bytes, bytes]) -> int:
        """Add rows in the order of the file; return how many."""
        sql, ordered = f"INSERT OR {if_there} INTO results VALUES (?, ?)", sorted(rows.items())
        return self._do(True, len(rows), lambda file: file.executemany(sql, ordered).rowcount)

    def _do(self, writes: bool, otherwise: T, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do work in a transaction; `otherwise` without a file that can be used."""
        if not (self._may_write if writes else self._may_read and self.path.exists()):
            return otherwise
        try:
            if writes:
                # SQLite's locks end where a file is closed: only a new one is opened here.
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with _lock, contextlib.suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            address = f"{self.path.absolute().as_uri()}?mode=rw"
            opened = sqlite3.connect(address, timeout=20, isolation_level=None, uri=True)
            with contextlib.closing(opened) as file, file:
                file.executescript(_SETTINGS)
                file.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                (made_by,) = file.execute("PRAGMA application_id").fetchone()
                if made_by != _OURS:
                    if made_by or file.execute("SELECT 1 FROM sqlite_master").fetchone():
                        raise sqlite3.DatabaseError("it is of another program or version")
                    if not writes:
                        return otherwise
                    file.execute(_TABLE)
                    file.execute(f"PRAGMA application_id = {_OURS}")
                return work(file)
        except (OSError, sqlite3.OperationalError) as exc:
            why = reason(exc) if isinstance(exc, OSError) else f"{exc}; {_ADVICE}"
            self._stop(why, may_read=self._may_read and writes)
        except (sqlite3.Error, TypeError, ValueError) as exc:
            self._stop(f"{exc}; remove or rename the file to begin anew", may_read=False)
        return otherwise

    def _stop(self, why: str, *, may_read: bool) -> None:
        with _lock:
            is_news = self._may_read > may_read or self._may_write
            self._may_read, self._may_write = may_read, False
        if is_news:
            used = "kept" if may_read else "used"
            self._on_notice(f"{self.path}: results of models are not {used} from here on: {why}")


class StoredModel:
    """A classifier or an embedder with the store before it; see `protocols`."""

    def __init__(self, model: Any, store: ModelStore) -> None:
        self.model, self.store = model, store
        self.info: ModelInfo = model.info
        kind = "nli" if hasattr(model, "classify") else "embedder"
        facts = [kind, self.info.model.partition("@")[0], *self.info[1:], ARITHMETIC]
        self._salt = _digests([json.dumps([facts, sorted(model.facts.items())])])

    def __getattr__(self, name: str) -> Any:
        """Everything else is the model's own: its limit, its threshold."""
        return getattr(self.model, name)

    def classify(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> Numbers:
        """See `PairClassifier`."""
        return self._values(self.model.classify, pairs, on_batch)

    def embed(self, texts: Sequence[str], *, on_batch: OnBatch | None = None) -> Numbers:
        """See `Embedder`."""
        distinct_texts(texts)  # refuses blank ones
        return self._values(self.model.embed, texts, on_batch)

    def truncates(self, items: Sequence[Any]) -> NDArray[np.bool_]:
        """Which of all inputs the model cuts ``[n]``: as stored, else asked of the model."""
        unique, keys = self._keyed(items)
        rows = self.store.look_up(keys)
        missing = [place for place, key in enumerate(keys) if key not in rows]
        cut = np.array([any(rows.get(key, b"")[4:8]) for key in keys], dtype=bool)
        if missing:
            cut[missing] = self.model.truncates([unique.items[place] for place in missing])
        return cut[unique.inverse]

    def _values(
        self, compute: Callable[..., Numbers], items: Sequence[Any], on_batch: OnBatch | None
    ) -> Numbers:
        """The values of all inputs ``[n, d]``; those that are not stored are computed."""
        unique, keys = self._keyed(items)
        rows = self.store.look_up(keys)
        missing = [place for place, key in enumerate(keys) if key not in rows]
        n_missing = int(unique.counts[missing].sum())
        n_stored = len(items) - n_missing
        if on_batch is not None and n_stored:
            on_batch(n_stored)
        self.store.stats.add(len(rows), 0)
        if missing or not keys:
            new = [unique.items[place] for place in missing]
            tell = on_batch and (
                lambda done: on_batch(n_stored + n_missing * done // max(1, len(new)))
            )
            try:
                values = compute(new, on_batch=tell)
            except RejectedItemsError as exc:
                inputs = unique.positions(*(missing[i] for i in exc.indices))
                raise RejectedItemsError(str(exc), exc.kind, inputs) from exc
            if not keys:
                return values
            self.store.stats.add(0, len(new))
            cut = np.asarray(self.model.truncates(new), np.float32)[:, None]
            added = _rows([keys[place] for place in missing], np.hstack([cut, values]))
            rows |= added | self.store.keep(added)
        return _words([rows[key] for key in keys])[unique.inverse, 2:]

    def _keyed(self, items: Sequence[Any]) -> tuple[Distinct[Any], list[bytes]]:
        """Distinct items, and the key of each; half a pair's is the digest of its first text, so
        that a call's rows are near each other in the file."""
        if hasattr(self.model, "classify"):
            pairs = distinct_pairs(items)
            return pairs.pairs, _cells(_digests(pairs.texts)[:, 0][pairs.places] ^ self._salt)
        texts = distinct_texts(items)
        return texts, _cells(_digests(texts.items) ^ self._salt)


def _digests(texts: Sequence[str]) -> NDArray[np.uint64]:
    """16 bytes of BLAKE2b a text, ``[n, 2]``; a text may have lone surrogates."""
    data = (text.encode("utf-8", "surrogatepass") for text in texts)
    joined = b"".join([hashlib.blake2b(one, digest_size=16).digest() for one in data])
    return np.frombuffer(joined, dtype=np.uint64).reshape(-1, 2)


def _rows(keys: Sequence[bytes], values: Numbers) -> dict[bytes, bytes]:
    """The bytes that the table has of values ``[n, d]``, after a check of 4 bytes in which a change
    of any one word of key and value shows."""
    data = np.ascontiguousarray(values, "<f4").view("<u4")
    words = np.hstack([np.frombuffer(b"".join(keys), "<u4").reshape(len(keys), 4), data])
    odd = (2 * np.arange(words.shape[1], dtype=np.uint32) + 1) * np.uint32(0x9E3779B1)
    checks = (words * odd).sum(axis=1, dtype=np.uint32)[:, None]
    return dict(zip(keys, _cells(np.hstack([checks, data])), strict=True))


def _cells(rows: NDArray[Any]) -> list[bytes]:
    """The bytes of each row."""
    cells: list[bytes] = rows.view(f"V{rows.itemsize * rows.shape[1]}").ravel().tolist()
    return cells


def _words(cells: Collection[bytes]) -> Numbers:
    return np.frombuffer(b"".join(cells), "<f4").reshape(len(cells), -1)
