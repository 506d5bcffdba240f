"""Results of models, kept across runs and metrics: what was computed once is not computed again.

Every model (name, revision, dtype, what else its numbers depend on) has a folder of rows, keyed by
the digest of the texts. A call asks for all its rows at once and keeps what it computed when it has
all of it: a call that was interrupted leaves nothing, so it is batched the same way again and
gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from claimscore.config import user_cache_dir
from claimscore.pipeline.encoders.base import (
    CountsTruncated,
    Model,
    ModelInfo,
    OnBatch,
    RejectedItemsError,
)
from claimscore.pipeline.encoders.batching import Distinct, distinct
from claimscore.pipeline.encoders.key_index import Keys
from claimscore.pipeline.encoders.pairs import DistinctPairs, Pair, distinct_pairs
from claimscore.pipeline.encoders.row_files import RowFiles

T = TypeVar("T", str, Pair)

FOLDER = "models"

#: A higher one where other code gives other numbers for the same facts: old rows are then left.
ARITHMETIC = "1"

#: Odd factors of the digests of a pair's texts: a pair is not its texts the other way round.
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)

_counting = threading.Lock()


@runtime_checkable
class StorableClassifier(Protocol):
    """A `PairClassifier` that says what its numbers depend on besides `info`: `facts`."""

    info: ModelInfo

    @property
    def facts(self) -> Mapping[str, str]: ...

    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]: ...

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]: ...


@runtime_checkable
class StorableEmbedder(Protocol):
    """An `Embedder` that says what its numbers depend on besides `info`: `facts`."""

    info: ModelInfo

    @property
    def facts(self) -> Mapping[str, str]: ...

    def embed(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]: ...

    def truncates(self, texts: Sequence[str]) -> NDArray[np.bool_]: ...


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
        self._opened: dict[str, StoredRows] = {}

    def around(self, model: Model) -> Model:
        """The model with its results stored; as it is where it has none that can be."""
        if isinstance(model, StorableClassifier):
            return StoredClassifier(model, self._rows("nli", model), self.stats)
        if isinstance(model, StorableEmbedder):
            return StoredEmbedder(model, self._rows("embedder", model), self.stats)
        return model

    def _rows(self, kind: str, model: StorableClassifier | StorableEmbedder) -> StoredRows:
        facts = {
            "kind": kind,
            "model": model.info.model.partition("@")[0],
            "revision": model.info.revision,
            "dtype": model.info.dtype,
            "arithmetic": ARITHMETIC,
            **model.facts,
        }
        name = json.dumps(facts, sort_keys=True)
        if name not in self._opened:  # copies of a model on several devices share them
            self._opened[name] = StoredRows(self.folder, facts, self._on_notice)
        return self._opened[name]


def open_store(cache_dir: Path | None, *, on_notice: Callable[[str], None]) -> ModelStore:
    """The store beside the cache in a folder, the user's own where None."""
    return ModelStore((cache_dir or user_cache_dir()) / FOLDER, on_notice=on_notice)


class Found(NamedTuple):
    """Which items are stored (``[n]``), and of those the values ``[found, d]`` and whether the
    model cut them ``[found]``."""

    which: NDArray[np.bool_]
    values: NDArray[np.float32]
    truncated: NDArray[np.bool_]


class StoredRows:
    """Values of one model by item: `RowFiles` whose first column says whether it was cut."""

    def __init__(
        self, folder: Path, facts: Mapping[str, str], on_notice: Callable[[str], None]
    ) -> None:
        said = json.dumps(facts, sort_keys=True, ensure_ascii=False)
        self._salt = _digests([said])[0]
        name = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        self.files = RowFiles(folder / f"{facts['kind']}-{name}", facts, on_notice)

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

    def look_up(self, keys: Keys) -> Found:
        which, rows = self.files.look_up(keys)
        return Found(which, rows[:, 1:], rows[:, :1].reshape(-1) > 0)

    def keep(
        self, keys: Keys, values: NDArray[np.float32], truncated: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Add values; return what is stored of these keys now."""
        rows = np.concatenate([truncated[:, None].astype(np.float32), values], axis=1)
        return self.files.keep(keys, rows)[:, 1:]


class _Stored(Generic[T]):
    """A model's calls with the store before it."""

    def __init__(
        self,
        rows: StoredRows,
        stats: StoreStats,
        compute: Callable[..., NDArray[np.float32]],
        truncates: Callable[[Sequence[T]], NDArray[np.bool_]],
    ) -> None:
        self._rows = rows
        self._stats = stats
        self._compute = compute
        self._truncates: Callable[[Sequence[T]], NDArray[np.bool_]] = truncates

    def values(
        self, unique: Distinct[T], keys: Keys, on_batch: OnBatch | None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The values of the distinct items ``[n, d]``, and which of them the model cuts ``[n]``."""
        found = self._rows.look_up(keys)
        missing = np.flatnonzero(~found.which)
        n_missing = int(unique.counts[missing].sum())
        n_found = len(unique.inverse) - n_missing
        if on_batch is not None and n_found:
            on_batch(n_found)
        self._stats.add(len(keys) - len(missing), 0)
        if not len(missing) and len(keys):
            return found.values, found.truncated

        def tell(done: int) -> None:
            assert on_batch is not None
            on_batch(n_found + n_missing * done // len(missing))

        items = [unique.items[place] for place in missing.tolist()]
        try:
            computed = self._compute(items, on_batch=tell if on_batch is not None else None)
        except RejectedItemsError as exc:
            owners = unique.positions(*missing[list(exc.indices)].tolist())
            raise RejectedItemsError(str(exc), exc.kind, owners) from exc
        cut = self._truncates(items)
        self._stats.add(0, len(items))
        computed = self._rows.keep(keys[missing], computed, cut)
        values = np.empty((len(keys), computed.shape[1]), dtype=np.float32)
        truncated = np.empty(len(keys), dtype=bool)
        values[missing], truncated[missing] = computed, cut
        if n_found:
            values[found.which], truncated[found.which] = found.values, found.truncated
        return values, truncated

    def cuts(self, items: list[T], keys: Keys) -> NDArray[np.bool_]:
        """Which of the items the model cuts: as stored, else asked of the model."""
        found = self._rows.look_up(keys)
        cut = np.empty(len(items), dtype=bool)
        cut[found.which] = found.truncated
        missing = np.flatnonzero(~found.which)
        if len(missing):
            cut[missing] = self._truncates([items[place] for place in missing.tolist()])
        return cut


class StoredClassifier(CountsTruncated):
    """A pair classifier that computes what is not stored; see `PairClassifier`.

    ``truncated`` counts the pairs that the model cut, stored ones too.
    """

    def __init__(self, model: StorableClassifier, rows: StoredRows, stats: StoreStats) -> None:
        self.model = model
        self.info = model.info
        self._rows = rows
        self._stored = _Stored[Pair](rows, stats, model.classify, model.truncates)

    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        unique = distinct_pairs(pairs)
        keys, inverse = self._rows.pair_keys(unique), unique.pairs.inverse
        values, truncated = self._stored.values(unique.pairs, keys, on_batch)
        self.count_truncated(int(truncated[inverse].sum()))
        return values[inverse]

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        unique = distinct_pairs(pairs)
        cut = self._stored.cuts(unique.pairs.items, self._rows.pair_keys(unique))
        return cut[unique.pairs.inverse]


class StoredEmbedder(CountsTruncated):
    """A sentence encoder that computes what is not stored; see `Embedder`.

    ``truncated`` counts the distinct texts of each call that the model cut, stored ones too.
    """

    def __init__(self, model: StorableEmbedder, rows: StoredRows, stats: StoreStats) -> None:
        self.model = model
        self.info = model.info
        self._rows = rows
        self._stored = _Stored[str](rows, stats, model.embed, model.truncates)

    def embed(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        stripped = [text.strip() for text in texts]
        if "" in stripped:
            return self.model.embed(texts)  # which refuses it
        unique = distinct(stripped)
        keys = self._rows.text_keys(unique.items)
        values, truncated = self._stored.values(unique, keys, on_batch)
        self.count_truncated(int(truncated.sum()))
        return values[unique.inverse]

    def truncates(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        unique = distinct([text.strip() for text in texts])
        cut = self._stored.cuts(unique.items, self._rows.text_keys(unique.items))
        return cut[unique.inverse]


def _digests(texts: Sequence[Any]) -> Keys:
    """16 bytes of BLAKE2b a text, ``[n, 2]``; a text may have lone surrogates."""
    blake2b = hashlib.blake2b
    data = (text.encode("utf-8", "surrogatepass") for text in texts)
    joined = b"".join([blake2b(one, digest_size=16).digest() for one in data])
    return np.frombuffer(joined, dtype="<u8").reshape(-1, 2).astype(np.uint64)
