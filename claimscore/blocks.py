"""Blocks: the parts of a document and of a summary that SummaC compares.

Laban et al. 2022, SummaC, Table 5 (granularity), and the authors' code, `split_text` in
`model_summac.py`. It drops blocks of at most 10 characters and reads the first 100 blocks of a
document; so does a cut whose `keep` is `code`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from claimscore.errors import ConfigError
from claimscore.tables import SOURCE_SIDE, texts_on_side
from claimscore.text import split_sentences

#: `2sents` slides (every sentence with its successor, the last alone), as the authors' code does;
#: `2sents_disjoint` cuts into pairs, as their paper says; `mixed` is sentences, then paragraphs.
GRANULARITIES = ("sentence", "2sents", "2sents_disjoint", "paragraph", "document", "mixed")
SPLITTERS = ("rules", "punkt")

#: `code` drops short blocks and cuts long documents as the authors' code does, `all` does not.
KEEP = ("all", "code")

#: `code` drops a block of at most so many characters (a whole document never).
SHORT_CHARACTERS = 10
MAX_DOCUMENT_BLOCKS = 100

_OF_SENTENCES = frozenset(("sentence", "2sents", "2sents_disjoint", "mixed"))


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """How a text is cut into blocks. A blank text has none."""

    granularity: str = "sentence"
    splitter: str = "rules"
    keep: str = "all"

    @property
    def name(self) -> str:
        """The cut in a table and in a pass's needs: `sentence`, `2sents_punkt`, `mixed_code`.

        What makes no difference is not named: a paragraph has no splitter.
        """
        parts = [self.granularity]
        if self.splitter != SPLITTERS[0] and self.granularity in _OF_SENTENCES:
            parts.append(self.splitter)
        if self.keep != KEEP[0]:
            parts.append(self.keep)
        return "_".join(parts)

    def blocks(self, text: str) -> list[str]:
        """The blocks of one text, in order."""
        if self.granularity == "document":
            return [text] if text.strip() else []
        paragraphs = self._kept(_paragraphs(text)) if self.granularity in _PARAGRAPHS else []
        if self.granularity not in _OF_SENTENCES:
            return paragraphs
        sentences = self._kept(split_sentences(text, self.splitter))
        if self.granularity == "2sents":
            return _joined_pairs(sentences, 1)
        if self.granularity == "2sents_disjoint":
            return _joined_pairs(sentences, 2)
        return sentences + paragraphs

    def document_blocks(self, texts: Sequence[str]) -> list[str]:
        """The blocks of a record's documents, one document after the other; `code` has 100."""
        blocks = [block for text in texts for block in self.blocks(text)]
        return blocks[:MAX_DOCUMENT_BLOCKS] if self.keep == "code" else blocks

    def _kept(self, blocks: Sequence[str]) -> list[str]:
        shortest = SHORT_CHARACTERS if self.keep == "code" else 0
        return [block for block in blocks if len(block) > shortest]


_PARAGRAPHS = frozenset(("paragraph", "mixed"))


def find_cut(name: str) -> Cut:
    """The cut of that name; `ConfigError` where there is none."""
    try:
        return _cuts()[name]
    except KeyError:
        known = ", ".join(GRANULARITIES)
        raise ConfigError(f"unknown cut {name}; known: {known}, with _punkt, _code") from None


@functools.cache
def _cuts() -> dict[str, Cut]:
    """Every cut by its name; of those that are the same, the one with the default splitter."""
    cuts = [Cut(g, s, k) for s in reversed(SPLITTERS) for g in GRANULARITIES for k in KEEP]
    return {cut.name: cut for cut in cuts}


def blocks_on_side(record: Mapping[str, object], side: str) -> list[str]:
    """The blocks of a record as `block_nli` numbers them; a side is `source.sentence`.

    None where the cut is of another version.
    """
    name, _, cut_name = side.partition(".")
    try:
        cut = find_cut(cut_name)
    except ConfigError:
        return []
    texts = texts_on_side(record, name)
    if name == SOURCE_SIDE:
        return cut.document_blocks(texts)
    return [block for text in texts for block in cut.blocks(text)]


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in text.split("\n\n" if "\n\n" in text else "\n")]


def _joined_pairs(sentences: Sequence[str], step: int) -> list[str]:
    return [" ".join(sentences[i : i + 2]) for i in range(0, len(sentences), step)]


def window_spans(sizes: Sequence[int], most: int) -> list[range]:
    """The places of neighbours whose sizes add up to at most so much; a larger one stands alone."""
    spans: list[range] = []
    total = 0
    for place, size in enumerate(sizes):
        if spans and total + size <= most:
            spans[-1] = range(spans[-1].start, place + 1)
            total += size
        else:
            spans.append(range(place, place + 1))
            total = size
    return spans
