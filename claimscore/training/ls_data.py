"""Documents with a good summary and its negatives, as token ids: what LS_Score trains on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from claimscore.errors import InputError
from claimscore.records.files import find_files
from claimscore.records.readers import place, read
from claimscore.text import split_sentences
from claimscore.training.ls_negatives import (
    add_sentence,
    delete_pieces,
    disorder_sentences,
    disorder_words,
)


class Columns(NamedTuple):
    """The columns of a training table; with `label`, only rows where it is 1 or true count."""

    document: str = "source"
    summary: str = "summary"
    label: str | None = None


class TextPair(NamedTuple):
    """A document and a good summary of it."""

    document: str
    summary: str


class Candidates(NamedTuple):
    """Ids of a document and of its summaries, the good one first; `kinds` names the others."""

    document: list[int]
    summaries: list[list[int]]
    kinds: tuple[str, ...]


class Records(NamedTuple):
    """Records to learn from, records held out, and how many pairs could not be used."""

    learning: list[Candidates]
    held_out: list[Candidates]
    skipped: int


def read_pairs(tables: Sequence[str], columns: Columns) -> list[TextPair]:
    """The distinct pairs of some JSONL, CSV or Parquet files (or globs), in their order.

    Rows with a blank text are left out. `InputError` names file, line and column where a row has
    no such column or holds something else than text.
    """
    rows = (pair for table in tables for pair in _read(table, columns))
    pairs = dict.fromkeys(pair for pair in rows if pair.document.strip() and pair.summary.strip())
    if not pairs:
        raise InputError(f"{', '.join(tables)}: no row to train on")
    return list(pairs)


def _read(table: str, columns: Columns) -> Iterator[TextPair]:
    for file in find_files(table):
        for line, record in read(file):
            for column in columns:
                if column is not None and column not in record:
                    raise InputError(
                        f"{place(file, line)}: no column {column}; the row has: "
                        f"{', '.join(record)}; name others with --document-column, "
                        "--summary-column or --label-column"
                    )
            if columns.label is not None and str(record[columns.label]).lower() not in _TRUE:
                continue
            texts = [record[column] or "" for column in columns[:2]]
            for column, text in zip(columns[:2], texts, strict=True):
                if not isinstance(text, str):
                    raise InputError(f"{place(file, line)}: {column} must be text")
            yield TextPair(*texts)


_TRUE = frozenset(("1", "1.0", "true"))


class CandidateMaker:
    """Turns a pair into candidates, always the same for the same pair and seed.

    `joined` is what stands between sentences where one was added: a space, or nothing as in the
    published code.
    """

    def __init__(
        self,
        tokenizer: Any,  # transformers' tokenizers are untyped
        negatives: Sequence[str],
        *,
        seed: int,
        max_tokens: int,
        joined: str = " ",
    ) -> None:
        self._tokenizer = tokenizer
        self._negatives = tuple(negatives)
        self._seed = seed
        self._max_tokens = max_tokens
        self._joined = joined

    def __call__(self, pair: TextPair) -> Candidates | None:
        """The candidates; None where there is nothing to rank.

        So is a document with no more sentences than its summary (as in the published code), and
        a summary of which every negative equals it.
        """
        document, sentences = split_sentences(pair.document), split_sentences(pair.summary)
        if len(document) <= len(sentences):
            return None
        pieces = self._pieces(pair.summary)
        makers: dict[str, Callable[[random.Random], list[str]]] = {
            "delete": lambda rng: delete_pieces(pieces, rng),
            "add": lambda rng: self._pieces(
                self._joined.join(add_sentence(sentences, document, rng))
            ),
            "disorder_words": lambda rng: self._pieces(
                " ".join(word for words in disorder_words(sentences, rng) for word in words)
            ),
            "disorder_sentences": lambda rng: self._pieces(
                " ".join(disorder_sentences(sentences, rng))
            ),
        }
        good = self._ids(pieces)
        summaries, kinds = [good], []
        for name in self._negatives:
            rng = random.Random(f"{self._seed} {name} {pair.document} {pair.summary}")
            bad = self._ids(makers[name](rng))
            if bad != good and len(bad) > 2:
                summaries.append(bad)
                kinds.append(name)
        if not kinds:
            return None
        return Candidates(self._ids(self._pieces(pair.document)), summaries, tuple(kinds))

    def _pieces(self, text: str) -> list[str]:
        ids = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        pieces: list[str] = self._tokenizer.convert_ids_to_tokens(ids)
        return pieces

    def _ids(self, pieces: Sequence[str]) -> list[int]:
        own = self._tokenizer.convert_tokens_to_ids(list(pieces[: self._max_tokens - 2]))
        return [self._tokenizer.cls_token_id, *own, self._tokenizer.sep_token_id]


def draw_records(
    pairs: Sequence[TextPair],
    make: Callable[[TextPair], Candidates | None],
    most: int,
    validation: float,
    seed: int,
) -> Records:
    """Draw at most ``most`` usable pairs; hold out that share of the documents, one at least.

    All pairs of a document are on one side.
    """
    used: list[tuple[str, Candidates]] = []
    skipped = 0
    for index in np.random.default_rng(seed).permutation(len(pairs)).tolist():
        if len(used) == most:
            break
        candidates = make(pairs[index])
        if candidates is None:
            skipped += 1
        else:
            used.append((pairs[index].document, candidates))
    documents = list(dict.fromkeys(document for document, _ in used))
    held_out = set(documents[: max(1, int(len(documents) * validation))])
    return Records(
        [record for document, record in used if document not in held_out],
        [record for document, record in used if document in held_out],
        skipped,
    )
