"""A dependency parser for English: the lower layers of all-MiniLM-L6-v2, and small heads.

Word pieces go through three transformer layers; a word is the states of its first and its last
piece. Heads are found by a biaffine product, labels by a bilinear one (Dozat and Manning 2017,
sections 2.2 and 3), tags by a linear layer. Written in numpy, so that cutting claims needs neither
torch nor a GPU. Sentences are parsed together, without padding; the tree of a sentence does not
depend on what is parsed beside it.
`data/MODEL_CARD.md` says how the weights were made and how good they are.
"""

from __future__ import annotations

import functools
import json
import threading
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimscore import minilm
from claimscore.baseline.tree import Tree, Word, tokenise

WEIGHTS = Path(__file__).parent / "data" / "parser.safetensors"
#: Longer sentences are not parsed.
MAX_PIECES = 250
#: No cut depends on a head that has a lower probability, of a member of a list, on a lower second.
SURE, SURE_MEMBER = 0.4, 0.6
#: A phrase stays where it stands if its head and its label have together a lower probability.
SURE_PHRASE = 0.7
_PHRASES = ("advcl", "advmod", "agent", "npadvmod", "prep")
_NEEDED = {"conj": SURE_MEMBER, **dict.fromkeys(_PHRASES, SURE_PHRASE)}
_PIECES_A_WORD = 8
_PIECES_A_PACK = 500
#: Scores that differ by less may change their order where matrices of other sizes are multiplied.
_CLOSE = 3e-4
_HEADS = 12
#: Contractions that are read as the words they stand for.
_CONTRACTED = {"n't": "not", "'re": "are", "'ve": "have", "'ll": "will", "'m": "am"}
_CONTRACTED |= {"ca": "can", "wo": "will"}
_CLS, _SEP, _UNKNOWN = 101, 102, 100

_Floats = NDArray[np.floating[Any]]
_Integers = NDArray[np.intp]
_lock = threading.Lock()


class _Read(NamedTuple):
    """A sentence as words, and the word pieces of each."""

    words: list[Word]
    pieces: list[list[int]]


class _Scores(NamedTuple):
    """Of the ``n`` words of some sentences: heads ``[words, words + 1]`` of each sentence (the root
    first), tags ``[n, tags]``, and states ``[1 + n, width]`` (the root first)."""

    heads: list[_Floats]
    tags: _Floats
    states: _Floats


class Parser:
    """Parses sentences; `parse` may be called by several threads."""

    def __init__(
        self,
        weights: dict[str, _Floats],
        embeddings: _Floats,
        vocabulary: dict[str, int],
        tags: list[str],
        labels: list[str],
    ) -> None:
        self._w = weights
        self._embeddings = embeddings
        self._vocabulary = vocabulary
        self.tags, self.labels = tags, labels
        one_more, _, width = weights["label"].transpose(1, 0, 2).shape
        self._label = weights["label"].transpose(1, 0, 2).reshape(one_more, -1)
        self._label_shape = (-1, len(labels), width)
        self._layers = 1 + max(int(k.split(".")[1]) for k in weights if k.startswith("layer."))

    def parse(self, sentence: str) -> Tree | None:
        """The tree of a sentence; None where it is empty or too long."""
        return self.parse_all([sentence])[0]

    def parse_all(self, sentences: Sequence[str]) -> list[Tree | None]:
        """The trees of sentences, computed together in packs of some hundred word pieces.

        A tree does not depend on the sentences beside it: matrix products of other sizes round
        otherwise, so a sentence that this could change is parsed again alone.
        """
        trees: list[Tree | None] = [None] * len(sentences)
        pack: dict[int, _Read] = {}
        size = 0
        for place, sentence in enumerate(sentences):
            words = tokenise(sentence)
            read = _Read(words, [self.pieces(word.text) for word in words])
            length = sum(map(len, read.pieces))
            if not 0 < length <= MAX_PIECES:
                continue
            if pack and size + length > _PIECES_A_PACK:
                self._parse_pack(pack, trees)
                pack, size = {}, 0
            pack[place] = read
            size += length
        if pack:
            self._parse_pack(pack, trees)
        return trees

    def _parse_pack(self, pack: dict[int, _Read], trees: list[Tree | None]) -> None:
        scores = self._scores(list(pack.values()))
        heads, is_tie = zip(*map(tree_of, scores.heads), strict=True)
        sizes = [len(chosen) for chosen in heads]
        starts = np.cumsum([0, *sizes[:-1]])
        in_pack = [
            np.where(chosen, chosen + start, 0) for chosen, start in zip(heads, starts, strict=True)
        ]
        of_labels = self._label_scores(scores.states, np.concatenate(in_pack))
        tags, labels = scores.tags.argmax(axis=1), of_labels.argmax(axis=1)
        is_close = _is_close(scores.tags) | _is_close(of_labels)
        places = zip(pack.items(), heads, is_tie, scores.heads, starts.tolist(), strict=True)
        for (place, read), chosen, is_tied, of_heads, start in places:
            end = start + len(chosen)
            words_labels = [self.labels[k] for k in labels[start:end]]
            least = np.array([_NEEDED.get(label, SURE) for label in words_labels])
            sure = _probability(of_heads, chosen)
            phrases = [k for k, label in enumerate(words_labels) if label in _PHRASES]
            sure[phrases] *= _probability(of_labels[start:end], labels[start:end])[phrases]
            if len(pack) > 1 and (
                is_tied or is_close[start:end].any() or (abs(sure - least) < _CLOSE).any()
            ):
                self._parse_pack({place: read}, trees)
                continue
            trees[place] = Tree(
                read.words,
                [self.tags[k] for k in tags[start:end]],
                words_labels,
                [head - 1 if head else k for k, head in enumerate(chosen.tolist())],
                frozenset((sure < least).nonzero()[0].tolist()),
            )

    def pieces(self, word: str) -> list[int]:
        """Word pieces, longest first from the left (Wordpiece, uncased, accents stripped)."""
        text, start = _plain(word), 0
        pieces: list[int] = []
        while start < len(text) and len(pieces) < _PIECES_A_WORD:
            for end in range(len(text), start, -1):
                piece = self._vocabulary.get(("##" if start else "") + text[start:end])
                if piece is not None:
                    pieces.append(piece)
                    start = end
                    break
            else:
                return [_UNKNOWN]
        return pieces or [_UNKNOWN]

    def _scores(self, pack: Sequence[_Read]) -> _Scores:
        w = self._w
        ids: list[int] = []
        kinds: list[int] = []
        places: list[int] = []
        lengths, firsts, lasts = [], [], []
        for read in pack:
            start = len(ids)
            ids.append(_CLS)
            kinds.append(0)
            for word, pieces in zip(read.words, read.pieces, strict=True):
                firsts.append(len(ids))
                ids += pieces
                kinds += [kind_of(word.text)] * len(pieces)
                lasts.append(len(ids) - 1)
            ids.append(_SEP)
            kinds.append(0)
            lengths.append(len(ids) - start)
            places += range(lengths[-1])
        x = self._embeddings[ids] + w["position"][places] + w["type"][0]
        x = _norm(x, w["embedding_norm.weight"], w["embedding_norm.bias"])
        x += w["case"][kinds]
        for layer in range(self._layers):
            x = self._layer(x, lengths, f"layer.{layer}.")
        words = np.concatenate([x[firsts], x[lasts]], axis=1)
        states = np.concatenate([w["root"][None], words])
        dependents = _gelu(words @ w["arc_dependent.weight"] + w["arc_dependent.bias"])
        products = _with_one(dependents) @ w["arc"]
        of = _gelu(states @ w["arc_head.weight"] + w["arc_head.bias"])
        heads, end = [], 0
        for read in pack:
            start, end = end, end + len(read.words)
            with_root = np.concatenate([of[:1], of[1 + start : 1 + end]])
            heads.append(products[start:end] @ with_root.T)
        return _Scores(heads, words @ w["tag.weight"] + w["tag.bias"], states)

    def _label_scores(self, states: _Floats, heads: _Integers) -> _Floats:
        w = self._w
        dependents = _gelu(states[1:] @ w["label_dependent.weight"] + w["label_dependent.bias"])
        of = _gelu(states[heads] @ w["label_head.weight"] + w["label_head.bias"])
        products = (_with_one(dependents) @ self._label).reshape(self._label_shape)
        scores: _Floats = (products @ _with_one(of)[:, :, None])[:, :, 0]
        return scores

    def _layer(self, x: _Floats, lengths: Sequence[int], name: str) -> _Floats:
        w = self._w
        qkv = x @ w[name + "qkv.weight"]
        qkv += w[name + "qkv.bias"]
        ends = np.cumsum(lengths).tolist()
        attended = [_attend(qkv[end - n : end]) for n, end in zip(lengths, ends, strict=True)]
        mixed = np.concatenate(attended) @ w[name + "out.weight"]
        mixed += x
        mixed += w[name + "out.bias"]
        x = _norm(mixed, w[name + "norm1.weight"], w[name + "norm1.bias"])
        inner = x @ w[name + "in.weight"]
        inner += w[name + "in.bias"]
        down = _gelu(inner) @ w[name + "down.weight"]
        down += x
        down += w[name + "down.bias"]
        return _norm(down, w[name + "norm2.weight"], w[name + "norm2.bias"])


def _attend(qkv: _Floats) -> _Floats:
    """Attention of one sentence, from queries, keys and values ``[pieces, 3 * width]``."""
    n = len(qkv)
    q, k, v = qkv.reshape(n, 3, _HEADS, -1).transpose(1, 2, 0, 3)
    attention = q @ k.transpose(0, 2, 1)
    attention *= np.float32(1 / np.sqrt(q.shape[-1]))
    attention -= attention.max(axis=-1, keepdims=True)
    np.exp(attention, out=attention)
    attention /= np.add.reduce(attention, axis=-1, keepdims=True)
    return (attention @ v).transpose(1, 0, 2).reshape(n, -1)


def _is_close(scores: _Floats) -> NDArray[np.bool_]:
    """Of each row whether its two best scores hardly differ."""
    best = np.partition(scores, -2, axis=1)[:, -2:]
    is_close: NDArray[np.bool_] = best[:, 1] - best[:, 0] < _CLOSE
    return is_close


def _probability(scores: _Floats, chosen: _Integers) -> _Floats:
    """The probability of what was chosen for each word, from scores ``[n, choices]``."""
    best = scores.max(axis=1, keepdims=True)
    of_chosen = scores[np.arange(len(scores)), chosen] - best[:, 0]
    probability: _Floats = np.exp(of_chosen) / np.exp(scores - best).sum(axis=1)
    return probability


def tree_of(scores: _Floats) -> tuple[_Integers, bool]:
    """Heads ``[n]`` that make a tree, from scores ``[n, n + 1]`` (the root first), and whether
    others would do hardly worse.

    Each word has its best head. Where these are no tree, only the best root stays one, and of a
    circle the word that loses least gets its best head outside.
    """
    heads: _Integers = scores.argmax(axis=1)
    is_tied = bool(_is_close(scores).any())
    if (heads == 0).sum() == 1 and _circle(heads) is None:
        return heads, is_tied
    scores = scores.copy()
    gains = scores[:, 0] - scores[:, 1:].max(axis=1)
    root = gains.argmax()
    scores[np.arange(len(scores)) != root, 0] = -np.inf
    scores[root, 1:] = -np.inf
    heads = scores.argmax(axis=1)
    rows = [gains, *scores]
    while (circle := _circle(heads)) is not None:
        outside = scores[circle].copy()
        outside[:, circle + 1] = -np.inf
        gains = outside.max(axis=1) - scores[circle, heads[circle]]
        leaving = gains.argmax()
        scores[circle[leaving], circle + 1] = -np.inf
        heads[circle[leaving]] = outside[leaving].argmax()
        rows += [gains, outside[leaving]]
    return heads, is_tied or any(_is_close(np.append(row, -np.inf)[None])[0] for row in rows)


def _circle(heads: _Integers) -> _Integers | None:
    """The words of a circle of heads, if there is one."""
    steps = np.concatenate([[0], heads])
    reached = np.arange(len(steps))
    for _ in range(len(steps).bit_length()):
        reached, steps = steps[reached], steps[steps]
    if not reached.any():
        return None
    steps = np.concatenate([[0], heads])
    circle = [int(reached[reached > 0][0])]
    while (following := int(steps[circle[-1]])) not in circle:
        circle.append(following)
    return np.array(circle[circle.index(following) :]) - 1


def kind_of(word: str) -> int:
    """The kind of a word's letters, which the uncased vocabulary does not tell."""
    if word.islower():
        return 1
    if word.isupper():
        return 3 if len(word) > 1 else 4
    if word[0].isupper():
        return 2
    if word[0].isdigit():
        return 5
    return 7 if any(map(str.isalnum, word)) else 6


def _plain(word: str) -> str:
    straight = word.lower().replace("’", "'")
    parts = unicodedata.normalize("NFD", _CONTRACTED.get(straight, straight))
    return "".join(c for c in parts if unicodedata.category(c) != "Mn")


def _with_one(x: _Floats) -> _Floats:
    return np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1)


def _gelu(x: _Floats) -> _Floats:
    """GELU by its tanh form (Hendrycks and Gimpel 2016), within 0.001 of the exact one."""
    factor = np.float32(np.sqrt(2 / np.pi))
    y = x * x
    y *= np.float32(0.044715) * factor
    y += factor
    y *= x
    np.tanh(y, out=y)
    y += np.float32(1)
    y *= x
    y *= np.float32(0.5)
    return y


def _norm(x: _Floats, weight: _Floats, bias: _Floats) -> _Floats:
    size = np.float32(x.shape[-1])
    y = x - np.add.reduce(x, axis=-1, keepdims=True) / size
    variance = np.einsum("wi,wi->w", y, y)[:, None] / size
    y /= np.sqrt(variance + np.float32(1e-12))
    y *= weight
    y += bias
    return y


def read_vocabulary() -> dict[str, int]:
    """The word pieces of the backbone by their text."""
    lines = (minilm.find() / "vocab.txt").read_text(encoding="utf-8").split("\n")
    return {line: number for number, line in enumerate(lines) if line}


def load() -> Parser:
    """The parser that ships."""
    with _lock:
        return _load()


@functools.cache
def _load() -> Parser:
    from safetensors import safe_open

    folder = minilm.find()
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        embeddings = file.get_tensor("embeddings.word_embeddings.weight").astype(np.float32)
    with safe_open(WEIGHTS, framework="numpy") as file:
        about = json.loads(file.metadata()["claimscore"])
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    weights = {
        name: value.astype(np.float32) * stored.get(f"{name}.scale", np.float32(1))
        for name, value in stored.items()
        if not name.endswith(".scale")
    }
    return Parser(weights, embeddings, read_vocabulary(), about["tags"], about["labels"])
