"""The word lists of this folder, read once, as sets and maps."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

from claimscore.baseline.words import read_words

VerbKind = Literal["base", "third", "past", "participle", "ing"]


class VerbForm(NamedTuple):
    """One reading of a spelling: "serves" is the `third` of "serve"."""

    base: str
    kind: VerbKind


@dataclasses.dataclass(frozen=True)
class Lexicon:
    """Everything the rules know about words, lower-case."""

    adjectives: frozenset[str]
    participles: frozenset[str]
    nouns: frozenset[str]
    verb_forms: Mapping[str, tuple[VerbForm, ...]]
    inflected: Mapping[tuple[str, VerbKind], str]
    shy_verbs: frozenset[str]  # their -s form is mostly a plural noun
    intransitive: frozenset[str]
    linking: frozenset[str]
    plural_nouns: frozenset[str]
    singular_s: frozenset[str]
    mass_nouns: frozenset[str]
    offered: frozenset[str]
    antonyms: Mapping[str, str]
    verb_antonyms: Mapping[str, str]
    adverb_antonyms: Mapping[str, str]
    adjective_synonyms: Mapping[str, str]
    noun_synonyms: Mapping[str, str]
    verb_synonyms: Mapping[str, str]
    adverb_synonyms: Mapping[str, str]
    phrase_synonyms: Mapping[str, str]

    def verb(self, base: str, kind: VerbKind) -> str:
        """A form of a verb: the irregular one where the lexicon has it."""
        known = self.inflected.get((base, kind))
        return known if known is not None else _regular(base, kind, frozenset())

    def is_plural(self, noun: str) -> bool:
        """Whether a noun form takes "are": by list, else by its -s."""
        if noun in self.plural_nouns:
            return True
        if noun in self.singular_s or noun.endswith(("ss", "us", "is")):
            return False
        return len(noun) > 2 and noun.endswith("s")


@cache
def lexicon() -> Lexicon:
    """The lexicon, read from the package at the first call."""
    words = read_words("words.toml")
    antonyms, synonyms = read_words("antonyms.toml"), read_words("synonyms.toml")
    verbs = _verb_tables(words)
    opposites = _antonyms(
        table for name, table in antonyms.items() if name not in ("verbs", "adverbs")
    )
    adjective_synonyms = _pairs(synonyms["adjectives"].values())
    base_adjectives = {*words["adjectives"].split(), *opposites, *opposites.values()}
    base_adjectives.update(adjective_synonyms)
    verb_opposites = _antonyms([antonyms["verbs"]])
    return Lexicon(
        adjectives=frozenset(_with_comparatives(base_adjectives)),
        participles=frozenset(words["participles"].split()),
        nouns=frozenset(words["nouns"].split()),
        verb_forms=verbs.forms,
        inflected=verbs.inflected,
        shy_verbs=verbs.shy,
        antonyms=opposites,
        verb_antonyms=verb_opposites,
        adverb_antonyms=_antonyms([antonyms["adverbs"]]),
        adjective_synonyms=adjective_synonyms,
        noun_synonyms=_pairs(synonyms["nouns"].values()),
        verb_synonyms=_pairs(synonyms["verbs"].values()),
        adverb_synonyms=_pairs(synonyms["adverbs"].values()),
        phrase_synonyms=_pairs(synonyms["phrases"].values()),
        **{
            name: frozenset(words[name].split())
            for name in (
                *("intransitive", "linking", "plural_nouns"),
                *("singular_s", "mass_nouns", "offered"),
            )
        },
    )


class _Verbs(NamedTuple):
    forms: dict[str, tuple[VerbForm, ...]]
    inflected: dict[tuple[str, VerbKind], str]
    shy: frozenset[str]


def _entry(line: str) -> tuple[str, str]:
    left, right = line.split()
    return left.replace("_", " "), right.replace("_", " ")


def _pairs(blocks: Iterable[str]) -> dict[str, str]:
    """Entries of all blocks; the first line that names a word wins."""
    pairs: dict[str, str] = {}
    for block in blocks:
        for line in filter(None, block.splitlines()):
            pairs.setdefault(*_entry(line))
    return pairs


def _antonyms(tables: Iterable[Mapping[str, str]]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for table in tables:
        for line in filter(None, table["both"].splitlines()):
            left, right = _entry(line)
            pairs.setdefault(left, right)
            pairs.setdefault(right, left)
        for line in filter(None, table["one_way"].splitlines()):
            pairs.setdefault(*_entry(line))
    return pairs


def _verb_tables(words: Mapping[str, Any]) -> _Verbs:
    listed = words["verbs"].split()
    shy = frozenset(word[:-1] for word in listed if word.endswith("~"))
    doubling = frozenset(words["doubling"].split())
    irregular = dict(_irregular(words["irregular"]))
    forms: defaultdict[str, list[VerbForm]] = defaultdict(list)
    inflected: dict[tuple[str, VerbKind], str] = {}
    kinds: tuple[VerbKind, ...] = ("base", "third", "past", "participle", "ing")
    bases = {word.rstrip("~") for word in listed} | set(irregular) | doubling
    for base in sorted(bases):
        for kind in kinds:
            form = irregular.get(base, {}).get(kind) or _regular(base, kind, doubling)
            inflected[base, kind] = form
            forms[form].append(VerbForm(base, kind))
    return _Verbs({form: tuple(found) for form, found in forms.items()}, inflected, shy)


def _irregular(block: str) -> Iterator[tuple[str, dict[VerbKind, str]]]:
    for line in filter(None, block.splitlines()):
        base, past_form, participle = line.split()
        forms: dict[VerbKind, str] = {"past": past_form, "participle": participle}
        if base == "have":
            forms["third"] = "has"
        if base == "be":
            forms["third"] = "is"
        yield base, forms


def _regular(base: str, kind: VerbKind, doubling: frozenset[str]) -> str:
    if kind == "third":
        return third_person(base)
    if kind in ("past", "participle"):
        return past(base, doubling)
    return gerund(base, doubling) if kind == "ing" else base


def _with_comparatives(adjectives: Iterable[str]) -> Iterator[str]:
    for adjective in adjectives:
        yield adjective
        for ending in ("er", "est"):
            form = comparative(adjective, ending)
            if form:
                yield form


_VOWELS = frozenset("aeiou")


def third_person(base: str) -> str:
    """serve -> serves, try -> tries, watch -> watches. Plurals of nouns go the same way."""
    if base.endswith(("s", "x", "z", "ch", "sh")):
        return base + "es"
    if _consonant_y(base):
        return base[:-1] + "ies"
    return base + ("es" if base in ("do", "go") else "s")


def past(base: str, doubling: frozenset[str] = frozenset()) -> str:
    """serve -> served, try -> tried; verbs in `doubling` double their last letter."""
    if base.endswith("e"):
        return base + "d"
    if _consonant_y(base):
        return base[:-1] + "ied"
    return _doubled(base, doubling) + "ed"


def gerund(base: str, doubling: frozenset[str] = frozenset()) -> str:
    """serve -> serving, lie -> lying, plan -> planning."""
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith(("ee", "oe", "ye")) and len(base) > 2:
        return base[:-1] + "ing"
    return _doubled(base, doubling) + "ing"


def comparative(adjective: str, ending: str) -> str | None:
    """`ending` is "er" or "est": big -> bigger; None where the language says "more"."""
    stem = _short_stem(adjective)
    return None if stem is None else stem + ending


def _short_stem(adjective: str) -> str | None:
    if not adjective.isalpha() or _syllables(adjective) > 2:
        return None
    if _consonant_y(adjective):
        return adjective[:-1] + "i"
    if adjective.endswith("e"):
        return adjective[:-1]
    if _syllables(adjective) == 2:
        return None
    doubles = len(adjective) > 2 and adjective[-1] not in "aeiouwxy"
    single_vowel = adjective[-2] in _VOWELS and adjective[-3:-2] not in _VOWELS
    return adjective + adjective[-1] if doubles and single_vowel else adjective


def _syllables(word: str) -> int:
    groups = sum(
        char in "aeiouy" and (i == 0 or word[i - 1] not in "aeiouy") for i, char in enumerate(word)
    )
    silent_e = word.endswith("e") and not word.endswith("le") and groups > 1
    return groups - silent_e


def _consonant_y(word: str) -> bool:
    return len(word) > 1 and word[-1] == "y" and word[-2] not in _VOWELS


def _doubled(base: str, doubling: frozenset[str]) -> str:
    return base + base[-1] if base in doubling else base
