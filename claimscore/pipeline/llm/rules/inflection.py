"""Regular English inflection: forms from a base form. Irregular forms are the lexicon's."""

from __future__ import annotations

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
