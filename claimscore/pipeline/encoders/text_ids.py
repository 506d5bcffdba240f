"""Token ids of single texts: each text is tokenised once, whoever asks and how often."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from claimscore.pipeline.encoders.token_rows import Ragged, ragged

#: What `KnownTexts` keeps at most, in bytes: about 150,000 sentences.
MOST_BYTES = 64 * 2**20
#: What a text costs beside its characters and ids.
_ENTRY_BYTES = 256

_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_making_locks = threading.Lock()


def alone(tokenizer: Any) -> threading.RLock:  # transformers' tokenizers: untyped
    """Return the lock of a tokenizer, to hold while it is asked.

    A tokenizer keeps the options of its last call and refuses to change them while another
    thread is in it, so one thread at a time may use it.
    """
    with _making_locks:
        return _locks.setdefault(tokenizer, threading.RLock())


def text_ids(tokenizer: Any, texts: Sequence[str]) -> Ragged:
    """Return the ids of texts without special tokens, never cut."""
    if not texts:
        return ragged([])
    backend = getattr(tokenizer, "backend_tokenizer", None)
    with alone(tokenizer):
        if backend is None or not hasattr(backend, "encode_batch_fast"):
            found = tokenizer(list(texts), add_special_tokens=False, verbose=False)
            return ragged(found["input_ids"])
        backend.no_truncation()  # an earlier call may have left it on
        backend.no_padding()
        rows = backend.encode_batch_fast(list(texts), add_special_tokens=False)
    return ragged([row.ids for row in rows])


class KnownTexts:
    """The ids of texts as `text_ids` gives them; those last used are kept.

    Why: the same sentences come again, in the next pass over a record and when rows are asked
    which of them were cut. Several threads may ask.
    """

    def __init__(self, tokenizer: Any, most_bytes: int = MOST_BYTES) -> None:
        self._tokenizer = tokenizer
        self._most_bytes = most_bytes
        self._n_bytes = 0
        self._known: OrderedDict[str, bytes] = OrderedDict()  # ids as int32

    def ids(self, texts: Sequence[str]) -> Ragged:
        """Return the ids of distinct texts."""
        with alone(self._tokenizer):
            new = [text for text in texts if text not in self._known]
            for text, row in zip(new, _pieces(text_ids(self._tokenizer, new)), strict=True):
                self._known[text] = row
                self._n_bytes += _cost(text, row)
            rows = [self._known[text] for text in texts]
            for text in texts:
                self._known.move_to_end(text)
            while self._n_bytes > self._most_bytes:
                self._n_bytes -= _cost(*self._known.popitem(last=False))
        lengths = np.fromiter(map(len, rows), np.int64, count=len(rows)) // 4
        return Ragged(np.frombuffer(b"".join(rows), dtype=np.int32), lengths)


def _pieces(ids: Ragged) -> list[bytes]:
    """Each row's bytes, which keep nothing else in memory."""
    data, ends = ids.flat.tobytes(), (4 * np.cumsum(ids.lengths)).tolist()
    return [data[start:end] for start, end in pairwise([0, *ends])]


def _cost(text: str, row: bytes) -> int:
    return _ENTRY_BYTES + len(text) + len(row)
