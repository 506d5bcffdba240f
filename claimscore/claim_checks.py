"""Checks of a run's claims: what looks wrong about a claim, or about the claims of a sentence.

Each finding is a row of the table `claim_checks`. A check is a function of the sentence (or the
whole text, where that was asked about), its claims and the prompt's examples; one more asks the NLI
model. None of them fails a run or changes a score.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from claimscore.config import read_toml
from claimscore.text import claim_key, content_words, has_dangling_subject
from claimscore.types import JSON

#: A claim is marked that shares less than this of its content words with its sentence.
LEAST_OVERLAP = 1 / 2

#: A sentence is marked of whose content words more than this are in none of its claims.
MOST_UNCOVERED = 1 / 3

#: Fewer findings are counted, but no warning is given.
LEAST_FINDINGS = 3

#: A text of an example is recognised in a claim of at least so many words.
_COPIED_WORDS = 3


@dataclasses.dataclass(frozen=True)
class Check:
    """What a check is of (`claims` or `sentences`), how its findings are called, and the share from
    which on a warning gives advice. `mark` stands beside a claim: `{value}` is that of the row."""

    of: str
    title: str
    says: str
    mark: str
    warns_above: float
    advice: str


#: By name, in the order of reports and summaries.
CHECKS: dict[str, Check] = {
    name: Check(**fields) for name, fields in read_toml(Path(__file__).with_suffix(".toml")).items()
}

#: The checks of a verifier's answers; the others are made with the claims.
EVIDENCE_CHECKS = ("evidence_again", "evidence_dropped")


class Finding(NamedTuple):
    """What a check found: of a claim by its index, or of the sentence."""

    claim_index: int | None
    check: str
    value: float | None


class Examples:
    """The examples of a prompt: of each the text that was asked about, and its claims."""

    def __init__(self, examples: Iterable[tuple[str, Iterable[str]]] = ()) -> None:
        self._claims: dict[str, int] = {}
        self._texts: list[str] = []
        for number, (text, claims) in enumerate(examples, start=1):
            self._texts.append(f" {claim_key(text)} ")
            for claim in claims:
                self._claims.setdefault(claim_key(claim), number)

    def number_of(self, key: str) -> int | None:
        """The number, from 1, of the example that says this (`claim_key`); None where none does."""
        if key in self._claims or key.count(" ") + 1 < _COPIED_WORDS:
            return self._claims.get(key)
        numbers = (n for n, text in enumerate(self._texts, start=1) if f" {key} " in text)
        return next(numbers, None)


def word_checks(
    text: str,
    claims: Sequence[str],
    examples: Examples,
    *,
    n_ambiguous: int = 0,
    context: str = "",
) -> Iterator[Finding]:
    """The findings about a sentence (or whole text) and its claims, as far as words tell.

    The last `n_ambiguous` claims are those that do not count. `context` is what a prompt shows
    besides the sentence: its words are no foreign ones beside a word of the sentence.

    Values: of `repeat` the index of the earlier claim, of `example_copy` the example's number from
    1, of `little_overlap` the share of the claim's content words that are in the sentence or its
    context, of `uncovered_words` the share of the sentence's different ones that are in no claim,
    of `no_claims` the number of its content words.
    """
    n_counted = len(claims) - n_ambiguous
    if list(claims) == [text] and n_counted:
        if has_dangling_subject(text):
            yield Finding(0, "dangling_pronoun", None)
        return
    words = content_words(text)
    if not claims:
        yield Finding(None, "no_claims", len(words))
        return
    first: dict[str, int] = {}
    covered: set[str] = set()
    for index, claim in enumerate(claims):
        of_claim = words if claim == text else content_words(claim)
        covered.update(of_claim)
        if len(claims) > 1 and (earlier := first.setdefault(claim_key(claim), index)) != index:
            yield Finding(index, "repeat", earlier)
        if claim != text and not (of_claim and of_claim.keys() <= words.keys()):
            yield from _foreign_words(index, claim, text, context, examples)
        if index >= n_counted:
            yield Finding(index, "ambiguous", None)
        elif has_dangling_subject(claim):
            yield Finding(index, "dangling_pronoun", None)
    if words and (uncovered := len(words.keys() - covered) / len(words)) > MOST_UNCOVERED:
        yield Finding(None, "uncovered_words", uncovered)


def _foreign_words(
    index: int, claim: str, text: str, context: str, examples: Examples
) -> Iterator[Finding]:
    """The findings about a claim that has words which its sentence lacks.

    A claim without a word of its sentence is none of it, whatever the context says.
    """
    of_claim, words = content_words(claim), content_words(text)
    if of_claim & words:
        words += content_words(context)
    if of_claim and of_claim.keys() <= words.keys():
        return
    key = claim_key(claim)
    is_shown = f" {key} " in f" {claim_key(f'{text} {context}')} "
    if not is_shown and (number := examples.number_of(key)) is not None:
        yield Finding(index, "example_copy", number)
    if of_claim and (overlap := (of_claim & words).total() / of_claim.total()) < LEAST_OVERLAP:
        yield Finding(index, "little_overlap", overlap)


def summarized(counts: Mapping[str, int], claims: int, sentences: int) -> JSON:
    """The counts of a run for its summary, in one line (`text`) and with the warnings; `counts` has
    the checks that were made."""
    totals = {"claims": claims, "sentences": sentences}
    warnings = []
    for name, check in CHECKS.items():
        n, total = counts.get(name, 0), totals[check.of]
        if n >= LEAST_FINDINGS and n > check.warns_above * total:
            warnings.append(f"{n:,} of {total:,} {check.of} {check.says}: {check.advice}")
    marked = {name: counts[name] for name in CHECKS if name in counts}
    parts = [f"{n:,} {CHECKS[name].title}" for name, n in marked.items() if n]
    are = "sentence" if sentences == 1 else "sentences"
    says = ", ".join(parts) or ("nothing looks wrong" if claims else "nothing to check")
    text = f"{claims:,} from {sentences:,} {are}: {says}"
    return {**totals, "found": marked, "text": text, "warnings": warnings}


def mark(check: str, value: float | None) -> str:
    """A finding in words, as it stands beside a claim or a sentence."""
    return CHECKS[check].mark.format(value=value or 0)
