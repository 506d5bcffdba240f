"""From texts to token rows: each distinct text is tokenised once, pairs are put together from ids.

Whether joining ids equals the tokenizer's own encoding of a pair is tried on probes
for each tokenizer; where it does not, the model is refused. A row is what one forward
pass sees as one sequence: a text with its special tokens, or a pair of texts. Rows are flat arrays,
which array operations join into batches. Nothing here knows a model or a device.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.distinct import DistinctPairs, Pair
from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError

Ints = NDArray[np.int64]


class TokenBatch(NamedTuple):
    """Rows without padding one after another.

    ``ids``, ``types`` and ``within`` (the place in its row) are of each token ``[tokens]``,
    ``lengths`` of each row ``[rows]``.
    """

    ids: Ints
    types: Ints
    within: Ints
    lengths: Ints

    @classmethod
    def of(cls, ids: NDArray[np.integer], types: NDArray[np.integer], lengths: Ints) -> TokenBatch:
        """The batch of rows of these lengths."""
        starts = np.cumsum(lengths) - lengths
        within = np.arange(len(ids)) - np.repeat(starts, lengths)
        ids, types = (part.astype(np.int64, copy=False) for part in (ids, types))
        return cls(ids, types, within, lengths)

    @property
    def starts(self) -> Ints:
        """Where each row begins."""
        return np.cumsum(self.lengths) - self.lengths

    def cut(self, rows: Sequence[int]) -> list[TokenBatch]:
        """Batches of so many of the rows each, as views."""
        ends = np.cumsum(rows)
        tokens = np.cumsum(self.lengths)[ends - 1].tolist()
        return [
            TokenBatch(self.ids[a:b], self.types[a:b], self.within[a:b], self.lengths[first:end])
            for a, b, first, end in zip([0, *tokens], tokens, [0, *ends], ends, strict=False)
        ]

    def split(self) -> list[Ints]:
        """The ids row by row."""
        return np.split(self.ids, self.starts[1:]) if len(self.lengths) else []


class TokenRows(Protocol):
    """Rows from which any batch can be taken."""

    @property
    def lengths(self) -> Ints: ...

    def batch(self, places: Ints) -> TokenBatch:
        """Return the rows at ``places`` in that order."""
        ...


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Lists of unlike length in one flat array."""

    flat: NDArray[np.int32]
    lengths: Ints

    @cached_property
    def starts(self) -> Ints:
        return np.cumsum(self.lengths) - self.lengths

    def row(self, i: int) -> NDArray[np.int32]:
        return self.flat[self.starts[i] : self.starts[i] + self.lengths[i]]


def ragged(rows: Iterable[Sequence[int]]) -> Ragged:
    """Return lists of ids as flat array and lengths."""
    kept = list(rows)
    lengths = np.fromiter(map(len, kept), np.int64, count=len(kept))
    flat = np.fromiter(chain.from_iterable(kept), np.int32, count=int(lengths.sum()))
    return Ragged(flat, lengths)


def take(starts: Ints, lengths: Ints) -> Ints:
    """Return the indices of the ranges ``start .. start + length`` one after another."""
    shifts = starts - (np.cumsum(lengths) - lengths)
    return np.repeat(shifts, lengths) + np.arange(int(lengths.sum()))


class WholeRows:
    """Rows that the tokenizer has made itself; ``types`` default to zeros."""

    def __init__(self, ids: Ragged, types: Ragged | None = None) -> None:
        self._ids = ids
        self._types = types

    @property
    def lengths(self) -> Ints:
        return self._ids.lengths

    def batch(self, places: Ints) -> TokenBatch:
        lengths = self._ids.lengths[places]
        index = take(self._ids.starts[places], lengths)
        types = np.zeros_like(index) if self._types is None else self._types.flat[index]
        return TokenBatch.of(self._ids.flat[index], types, lengths)


class PairTemplate(NamedTuple):
    """The special tokens around and between two texts, and the token type of each part."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, int, int, int, int]

    @property
    def n_special(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


class PairRows:
    """Rows put together from the ids of single texts: each is named by two places in ``texts``.

    ``kept`` ``[pairs, 2]`` says how many ids of either text remain: the first ones, or with
    ``keeps_last`` the last.
    """

    def __init__(
        self,
        template: PairTemplate,
        texts: Ragged,
        places: Ints,
        kept: Ints,
        *,
        keeps_last: bool = False,
    ) -> None:
        special = [*template.before, *template.between, *template.after]
        self._pool = np.concatenate([np.array(special, dtype=np.int32), texts.flat])
        sizes = [len(template.before), len(template.between), len(template.after)]
        begins = np.array([0, sizes[0], sizes[0] + sizes[1]])
        n = len(places)
        self._starts = np.empty((n, 5), dtype=np.int64)
        self._sizes = np.empty((n, 5), dtype=np.int64)
        self._starts[:, 0::2], self._sizes[:, 0::2] = begins, sizes
        lost = texts.lengths[places] - kept if keeps_last else 0
        self._starts[:, 1::2] = texts.starts[places] + len(special) + lost
        self._sizes[:, 1::2] = kept
        self._types = np.array(template.types, dtype=np.int64)
        self._lengths: Ints = self._sizes.sum(axis=1)

    @property
    def lengths(self) -> Ints:
        return self._lengths

    def batch(self, places: Ints) -> TokenBatch:
        sizes = self._sizes[places].reshape(-1)
        index = take(self._starts[places].reshape(-1), sizes)
        if self._types.any():
            types = np.repeat(np.tile(self._types, len(places)), sizes)
        else:
            types = np.zeros_like(index)
        return TokenBatch.of(self._pool[index], types, self._lengths[places])


def cut_longest_first(sizes: Ints, most: int) -> Ints:
    """Return how much of two texts remains where together they may have ``most`` ids, ``[n, 2]``.

    The rule of the tokenizers' ``longest_first``: the longer text is cut to what the shorter one
    leaves; where that is not enough, both get half, the second (or the longer) the odd one.
    """
    first, second = sizes[:, 0], sizes[:, 1]
    swap = first > second
    short, long = np.where(swap, second, first), np.where(swap, first, second)
    rest = np.where(short > most, short, np.maximum(short, most - short))
    rest = np.minimum(rest, long)
    halves = short + rest > most
    short = np.where(halves, most // 2, short)
    rest = np.where(halves, most // 2 + most % 2, rest)
    cut = np.stack([np.where(swap, rest, short), np.where(swap, short, rest)], axis=1)
    return np.where((first + second > most)[:, None], cut, sizes)


#: Pairs on which putting texts together must equal the tokenizer's own pair encoding.
_PROBES: tuple[Pair, ...] = (
    ("The hotel was clean.", "It wasn't dirty, was it?"),
    ("a", "b"),
    ("  two spaces before", "and after  "),
    ("Café no. 12½ — naïve", "価格は¥3,000 😀"),
    ("line\nbreak\ttab", '"quoted" (and) [bracketed]'),
    ("", "the first is empty"),
    ("the second is empty", ""),
)

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
            encoded = tokenizer(list(texts), add_special_tokens=False, verbose=False)
            return ragged(encoded["input_ids"])
        backend.no_truncation()  # an earlier call may have left it on
        backend.no_padding()
        rows = backend.encode_batch_fast(list(texts), add_special_tokens=False)
    return ragged([row.ids for row in rows])


class EncodedRows(NamedTuple):
    """Rows, and which of them were cut to the limit."""

    rows: TokenRows
    truncated: NDArray[np.bool_]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.rows.lengths


class EncodedTexts(NamedTuple):
    """The ids of texts; ``special`` marks the tokens that are none of the text's own.

    ``n_cut`` is how many tokens of a text were cut off.
    """

    ids: Ragged
    special: Ragged
    n_cut: NDArray[np.int64]

    @property
    def truncated(self) -> NDArray[np.bool_]:
        return self.n_cut > 0

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.ids.lengths

    @property
    def rows(self) -> TokenRows:
        return WholeRows(self.ids)

    def own(self, i: int) -> NDArray[np.int32]:
        """Which tokens of a text are its own (1) and which special (0)."""
        return 1 - self.special.row(i)

    @property
    def n_own(self) -> list[int]:
        """How many tokens of each text are its own."""
        return [int(self.own(i).sum()) for i in range(len(self.n_cut))]


class TextTokenizer:
    """Tokenises single texts as the tokenizer does, special tokens included, cut to ``limit``.

    ``role`` is what the tokenizer calls a text: a decoder's may have other special tokens.
    """

    def __init__(self, tokenizer: Any, limit: int, *, role: str = "text") -> None:  # untyped
        self.limit = limit
        self._tokenizer = tokenizer
        self._role = role
        self._lengths: dict[str, int] = {}  # of the texts encoded last

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        ids, special = self._whole(texts)
        self._lengths = dict(zip(texts, map(len, ids), strict=True))
        n_cut = np.array([max(len(row) - self.limit, 0) for row in ids], dtype=np.int64)
        cut = np.flatnonzero(n_cut).tolist()
        if cut:
            options = {"truncation": True, "max_length": self.limit}
            shorter = zip(*self._whole([texts[i] for i in cut], **options), strict=True)
            for i, (row, mask) in zip(cut, shorter, strict=True):
                ids[i], special[i] = row, mask
        return EncodedTexts(ragged(ids), ragged(special), n_cut)

    def truncates(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return which texts are longer than the limit, ``[n]``."""
        known = self._lengths
        new = [text for text in texts if text not in known]
        lengths = known | dict(zip(new, map(len, self._whole(new)[0]), strict=True))
        return np.array([lengths[text] > self.limit for text in texts], dtype=bool)

    def _whole(self, texts: Sequence[str], **options: Any) -> tuple[list[Any], list[Any]]:
        if not texts:
            return [], []
        with alone(self._tokenizer):
            options |= {self._role: list(texts), "return_special_tokens_mask": True}
            encoded = self._tokenizer(**options, verbose=False)
        return list(encoded["input_ids"]), list(encoded["special_tokens_mask"])


def refuse_bare(
    n_tokens: Sequence[int],
    texts: Sequence[str],
    info: ModelInfo,
    owners: Callable[..., tuple[int, ...]],
) -> None:
    """Raise `RejectedItemsError` if the tokenizer leaves nothing of some texts.

    ``n_tokens`` counts each text's own tokens; ``owners`` gives the items of the call to which
    texts belong.
    """
    bare = [i for i, n in enumerate(n_tokens) if not n]
    if bare:
        raise RejectedItemsError(
            f"the tokenizer of {info.model} leaves nothing of {texts[bare[0]]!r}",
            kind="no_tokens",
            indices=owners(*bare),
        )


class PairTokenizer:
    """Tokenises pairs, each distinct text once; the ``template`` says how texts are joined by ids.

    A sentence takes part in many pairs (15 to 57 in our data), so this is an order of magnitude
    faster. Pairs longer than ``limit`` lose tokens from the longer text first. ``read`` makes of a
    text what is tokenised.
    """

    def __init__(
        self,
        tokenizer: Any,  # transformers' tokenizers: untyped
        limit: int,
        template: PairTemplate,
        *,
        read: Callable[[str], str] = str,
    ) -> None:
        self.limit = limit
        self.template = template
        self._tokenizer = tokenizer
        self._read = read
        self._keeps_last = getattr(tokenizer, "truncation_side", "right") == "left"
        self._last: tuple[Sequence[str], Ragged] = [], ragged([])

    def text_lengths(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return how many tokens each text has, without special ones."""
        return self._ids(texts).lengths

    def _ids(self, texts: Sequence[str]) -> Ragged:
        """The ids of texts; those of the last call are known, for pairs are judged and then asked
        whether they were cut."""
        known, ids = self._last
        if texts != known:
            ids = text_ids(self._tokenizer, list(map(self._read, texts)))
            self._last = texts, ids
        return ids

    def encode(self, pairs: DistinctPairs) -> EncodedRows:
        """Return the rows of the distinct pairs."""
        ids = self._ids(pairs.texts)
        sizes = ids.lengths[pairs.places]
        room = self.limit - self.template.n_special
        too_long = sizes.sum(axis=1) > room
        if too_long.any():
            sizes = cut_longest_first(sizes, room)
        rows = PairRows(self.template, ids, pairs.places, sizes, keeps_last=self._keeps_last)
        return EncodedRows(rows, too_long)

    def truncates(self, pairs: DistinctPairs) -> NDArray[np.bool_]:
        """Return which of the distinct pairs are longer than the limit, ``[n]``."""
        sizes = self._ids(pairs.texts).lengths[pairs.places]
        too_long: NDArray[np.bool_] = sizes.sum(axis=1) > self.limit - self.template.n_special
        return too_long


class PairEncoding(NamedTuple):
    """The model's input for one pair."""

    ids: list[int]
    types: list[int]


def find_template(tokenizer: Any, name: str) -> PairTemplate:  # transformers' tokenizers: untyped
    """Return how the tokenizer joins two texts; `ConfigError` where its ids are not those of the
    texts one after the other, with special ones around them."""
    whole = tokenizer(*_PROBES[0], return_special_tokens_mask=True, return_token_type_ids=True)
    ids, types, special = (
        list(whole[field]) for field in ("input_ids", "token_type_ids", "special_tokens_mask")
    )
    first, second = text_ids(tokenizer, _PROBES[0]).lengths.tolist()
    begin = special.index(0)
    again = next((at for at in range(begin + first, len(ids)) if not special[at]), len(ids))
    places = (0, begin, begin + first, again, again + second, len(ids))
    parts = [slice(*ends) for ends in pairwise(places)]
    kinds: tuple[Any, ...] = tuple(max(types[part], default=0) for part in parts)
    before, between, after = (tuple(ids[part]) for part in parts[::2])
    template = PairTemplate(before, between, after, kinds)
    for pair in _PROBES:
        joined = text_ids(tokenizer, pair)
        if _joined(template, joined, joined.lengths[None]) != tokenize_pair(tokenizer, pair):
            raise ConfigError(
                f"{name}: its tokenizer reads two texts together otherwise than each by itself; "
                "name another model"
            )
    return template


def joined_template(tokenizer: Any, prefix: str) -> PairTemplate:
    """Return how a pair is put as one text: ``prefix``, the first, the end token, the second."""
    own = text_ids(tokenizer, ["a"]).flat.tolist()
    with alone(tokenizer):
        whole = list(tokenizer(f"{prefix}a", verbose=False)["input_ids"])
    at = max(i for i in range(len(whole)) if whole[i : i + len(own)] == own)
    end = tokenizer.eos_token_id
    between = tokenizer.sep_token_id if end is None else end
    return PairTemplate(
        tuple(whole[:at]), (between,), tuple(whole[at + len(own) :]), (0, 0, 0, 0, 0)
    )


def _joined(template: PairTemplate, ids: Ragged, kept: NDArray[np.int64]) -> PairEncoding:
    batch = PairRows(template, ids, np.array([[0, 1]]), kept).batch(np.array([0]))
    return PairEncoding(batch.ids.tolist(), batch.types.tolist())


def tokenize_pair(tokenizer: Any, pair: Pair, **options: Any) -> PairEncoding:
    """Return the tokenizer's own encoding of a pair.

    Asked as a list of one pair: asked alone, it takes an empty second text for no second text.
    """
    first, second = pair
    options |= {"return_token_type_ids": True, "verbose": False}
    with alone(tokenizer):
        encoded = tokenizer([first], [second], **options)
    return PairEncoding(list(encoded["input_ids"][0]), list(encoded["token_type_ids"][0]))
