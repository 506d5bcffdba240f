"""Claims without a language model: a parser, and what its trees let say in parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from claimscore.baseline import parser
from claimscore.baseline.extraction import extract
from claimscore.baseline.tree import Tree, move_stops
from claimscore.text import split_sentences

_REMEMBERED = 10_000
_YEAR = r"(?: \([12]\d{3}(?:[–-](?:\d{2,4}|present))?\))"
_TITLE = rf'(?:["“][^"“”()]+["”]{_YEAR}?|[A-Z0-9][^,;()"“”]*?{_YEAR})'
_LISTING = re.compile(
    r"(?P<before>.*?\b(?:include|includes|included|including|such as|like|in|series|films|albums) )"
    rf"(?P<titles>{_TITLE}(?:, {_TITLE})*),? and (?P<last>{_TITLE})\.?"
)


class ClaimMaker:
    """Makes the claims of texts; sentences that it has seen before cost nothing."""

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    def claims(self, texts: Sequence[str]) -> list[list[str]]:
        """The single claims of each text, sentence by sentence, each a sentence.

        A sentence that is one claim, or cannot be cut with certainty, is one claim as it stands.
        The words of a claim are those of its sentence, with articles, forms of "be", "at" and the
        past tense of participles. Sentences are parsed together. `ConfigError` where the parser's
        backbone is not installed.
        """
        sentences = [split_sentences(text, splitter="rules") for text in texts]
        made = iter(self.sentence_claims([s for of_text in sentences for s in of_text]))
        return [
            [claim for of in islice(made, len(of_text)) for claim in of] for of_text in sentences
        ]

    def sentence_claims(self, sentences: Sequence[str]) -> list[list[str]]:
        """The claims of each sentence; none of one without a word."""
        known = self._known
        claims = {s: known[s] for s in sentences if s in known}
        new = [s for s in dict.fromkeys(sentences) if s not in claims and re.search(r"\w", s)]
        if new:
            read = {s: _with_first_title(s) for s in new}
            parts = {s: text.split("; ") for s, (text, _) in read.items()}
            trees = iter(parser.load().parse_all([part for s in new for part in parts[s]]))
            for sentence in new:
                text, titles = read[sentence]
                made = _claims_of(text, parts[sentence], list(islice(trees, len(parts[sentence]))))
                known[sentence] = claims[sentence] = _with_each_title(made, titles)
        for oldest in list(islice(known, max(0, len(known) - _REMEMBERED))):
            known.pop(oldest, None)
        return [claims.get(sentence, []) for sentence in sentences]


def _with_first_title(sentence: str) -> tuple[str, list[str]]:
    """A sentence that ends with a list of titles, with the first of them alone; and the titles.

    Titles are in quotation marks, or each has a year in brackets behind it, so that they are known
    from the text: parsers read such lists badly.
    """
    text = move_stops(sentence)
    listing = _LISTING.fullmatch(text)
    if listing is None:
        return sentence, []
    listed = [*re.findall(_TITLE, listing["titles"]), listing["last"]]
    titles = [re.sub(f"{_YEAR}$", "", title) for title in listed]
    return f"{listing['before']}{titles[0]}.", titles


def _with_each_title(claims: list[str], titles: list[str]) -> list[str]:
    """Claims of a sentence with its first title, and those with this one for each other title."""
    repeated = [
        claim.replace(titles[0], title) if titles else claim
        for claim in claims
        for title in (titles if titles and titles[0] in claim else titles[:1] or [""])
    ]
    return list(dict.fromkeys(repeated))


def _claims_of(sentence: str, parts: list[str], trees: list[Tree | None]) -> list[str]:
    """The claims of a sentence, from the trees of its parts between semicolons."""
    if len(trees) > 1 and all(tree is not None and tree.is_clause() for tree in trees):
        pairs = zip(parts, trees, strict=True)
        return [c for part, tree in pairs if tree for c in extract(tree) or [_whole(part)]]
    tree = trees[0] if len(trees) == 1 else None
    return (extract(tree) if tree else None) or [_whole(sentence)]


def _whole(sentence: str) -> str:
    """A sentence as one claim, with a capital and an end mark."""
    text = _capitalised(sentence.strip())
    closed = text.rstrip("\"'”’)]»")
    return text if closed[-1:] in tuple(".!?…") else text + "."


def _capitalised(text: str) -> str:
    """The first letter as a capital, unless a digit stands before it."""
    for i, char in enumerate(text):
        if char.isalpha():
            upper = char.upper()
            same = upper.lower() == char.lower()  # not "ß" or the micro sign
            return text[:i] + (upper if same else char) + text[i + 1 :]
        if char.isdigit():
            return text
    return text
