"""FactSim's tuples: (subject, description), one lower-case word each.

A negated description is given by its antonym ("not fast" -> "slow"); where the lexicon
has none, by the word with "un" ("not quirky" -> "unquirky"), so that it stays one word.
A pronoun stands for the last subject; "product" where there was none.
"""

from __future__ import annotations

from collections.abc import Iterator

from claimscore.baseline.coordination import copula
from claimscore.baseline.decomposition import decompose_text
from claimscore.baseline.grammar import (
    is_adjective,
    is_noun,
    is_participle,
    low_at,
    main_verb,
)
from claimscore.baseline.lexicon import lexicon
from claimscore.baseline.words import (
    CONJUNCTIONS,
    DETERMINERS,
    POSSESSIVES,
    PREPOSITIONS,
    RELATIVES,
    Tokens,
    is_adverb,
    is_word,
    tokenise,
    word_class,
    word_map,
    word_set,
)

Fact = tuple[str, str]

PRODUCT = "product"
_MISSING = "missing"
_NOT_MISSED = frozenset(("one", "longer", "time", "doubt", "matter"))
_THINGS = word_set("it this that they these those he she")
_PEOPLE = word_set("i we you one who")
_NOT = word_set("not n't never")
#: Words that describe nothing: quantities, order, identity.
_EMPTY = word_class("empty")
_FELT = word_map("felt")
_DONE = word_map("done")


def facts(text: str) -> list[Fact]:
    """The tuples of a text, in its order; one tuple once for each run of the same claim."""
    found: list[Fact] = []
    last = PRODUCT
    for claim in decompose_text(text):
        tokens = tokenise(claim)
        subjects = _subjects(tokens, last)
        new = [fact for fact in _claim_facts(tokens, subjects, last) if fact not in found[-8:]]
        found.extend(new)
        last = _next_subject(tokens, subjects, new, last)
    return found


def opposite(description: str) -> str:
    """One word for "not `description`"."""
    known = lexicon().antonyms.get(description)
    if known is not None:
        return known
    if description.startswith("un") and not description.startswith(("under", "uni")):
        return description[2:] or description
    return f"un{description}"


def _next_subject(tokens: Tokens, subjects: list[str], new: list[Fact], last: str) -> str:
    pronoun = low_at(tokens, 0) in _THINGS
    if pronoun and last == PRODUCT and new:
        return new[0][0]
    verb = main_verb(tokens)
    if subjects and verb is not None:
        return subjects[-1]
    return new[-1][0] if new and not subjects else last


def _claim_facts(tokens: Tokens, subjects: list[str], last: str) -> Iterator[Fact]:
    described = list(_predicate(tokens))
    inside = list(_attributive(tokens))
    verb = main_verb(tokens)
    yield from (fact for at, fact in inside if verb is None or at < verb)
    for subject in subjects:
        yield from ((subject, description) for description in described)
    yield from (fact for at, fact in inside if verb is not None and at > verb)
    yield from _missing(tokens)
    yield from _verbal(tokens, subjects, last)


def _subjects(tokens: Tokens, last: str) -> list[str]:
    """The heads of the subject; empty for people and "there"."""
    verb = main_verb(tokens)
    if not verb:
        return []
    start = 0
    while start < verb - 1 and (is_adverb(tokens[start].low) or not is_word(tokens[start])):
        start += 1
    subject = tokens[start:verb]
    first = subject[0].low
    if first in _THINGS and (len(subject) == 1 or is_adverb(subject[1].low)):
        return [last]
    if first in _PEOPLE or first == "there":
        return []
    return [head for part in _joined(_core(subject)) if (head := _head(part))]


def _core(subject: Tokens) -> Tokens:
    """The phrase without what hangs on it: "staff at the desk", "food that we had"."""
    for i, token in enumerate(subject):
        hanging = token.low in PREPOSITIONS | RELATIVES - {"that"} or token.low in (",", "that")
        if i and hanging:
            return subject[:i]
        if i and is_participle(token.low) and is_noun(subject[i - 1].low):
            return subject[:i]
    return subject


def _joined(phrase: Tokens) -> Iterator[Tokens]:
    start = 0
    for i, token in enumerate(phrase):
        if token.low in CONJUNCTIONS | {"&"}:
            yield phrase[start:i]
            start = i + 1
    yield phrase[start:]


def _head(phrase: Tokens) -> str | None:
    for token in reversed(phrase):
        if token.low.startswith("'") or token.low in DETERMINERS | POSSESSIVES:
            continue
        if is_noun(token.low):
            return token.low
    return None


def _predicate(tokens: Tokens) -> Iterator[str]:
    """The descriptions behind "is", "looks", "has been", each with its negation put in."""
    link = copula(tokens)
    if link is None:
        return
    negated = any(token.low in _NOT for token in tokens[max(0, link - 2) : link])
    i = link + 1
    while i < len(tokens):
        low = tokens[i].low
        if low in _NOT:
            negated = True
        elif low in ("but", "yet"):
            negated = False
        elif _describes(tokens, i):
            if not _goes_on(tokens, i) and low not in _EMPTY:
                yield opposite(low) if negated else low
        elif not (is_adverb(low) or low in ("and", "or", ",", "a", "bit", "little", "as", "been")):
            return
        i += 1


def _describes(tokens: Tokens, i: int) -> bool:
    low = tokens[i].low
    return (is_adjective(low) or is_participle(low)) and low not in PREPOSITIONS


def _goes_on(tokens: Tokens, i: int) -> bool:
    """Whether a noun follows (attributive) or another description ("pretty fast")."""
    following = low_at(tokens, i + 1)
    if not following:
        return False
    noun = is_noun(following) and following not in ("enough",)
    degree = is_adverb(tokens[i].low) and is_adjective(following)
    return (noun and not is_participle(tokens[i].low)) or degree


def _attributive(tokens: Tokens) -> Iterator[tuple[int, Fact]]:
    """ "a great pool" -> (pool, great), with the place of the adjective."""
    for i, token in enumerate(tokens):
        if not is_adjective(token.low) or token.low in _EMPTY:
            continue
        head = _head_behind(tokens, i)
        if head is None or (is_adverb(token.low) and is_adjective(low_at(tokens, i + 1))):
            continue
        negated = _is_negated(tokens, i)
        yield i, (head, opposite(token.low) if negated else token.low)


def _head_behind(tokens: Tokens, i: int) -> str | None:
    """The last noun of the run behind the adjectives at `i`."""
    at = i + 1
    while low_at(tokens, at) and (
        is_adjective(low_at(tokens, at)) or low_at(tokens, at) in (",", "and")
    ):
        at += 1
    if low_at(tokens, at - 1) in (",", "and") or not is_noun(low_at(tokens, at)):
        return None
    while is_noun(low_at(tokens, at + 1)) and not is_participle(low_at(tokens, at + 1)):
        at += 1
    return None if low_at(tokens, at + 1) == "'s" else tokens[at].low


def _is_negated(tokens: Tokens, i: int) -> bool:
    """A "no", "without" or "not" before the adjective, in the same phrase."""
    for j in range(i - 1, max(-1, i - 6), -1):
        low = tokens[j].low
        if low in _NOT or low in ("no", "without", "nor", "cannot"):
            return True
        if low in PREPOSITIONS - {"of"} or low in ("but", ",", "which"):
            return False
    return False


def _missing(tokens: Tokens) -> Iterator[Fact]:
    """ "There is no pool", "lacks a pool": nothing is said of it but that it is not there."""
    for i, token in enumerate(tokens[:-1]):
        forms = lexicon().verb_forms.get(token.low, ())
        lacking = i > 0 and any(form.base == "lack" for form in forms)
        if token.low not in ("no", "without") and not lacking:
            continue
        at = i + 1 + (low_at(tokens, i + 1) in DETERMINERS)
        if is_noun(low_at(tokens, at)) and low_at(tokens, at) not in _NOT_MISSED:
            while is_noun(low_at(tokens, at + 1)) and not is_participle(low_at(tokens, at + 1)):
                at += 1
            yield tokens[at].low, _MISSING


def _verbal(tokens: Tokens, subjects: list[str], last: str) -> Iterator[Fact]:
    """ "We loved the pool" -> (pool, loved); "The shower leaks" -> (shower, leaky)."""
    verb = main_verb(tokens)
    if verb is None:
        return
    negated = any(token.low in _NOT for token in tokens[verb : verb + 3])
    for i in range(verb, min(verb + 4, len(tokens))):
        for base in sorted({form.base for form in lexicon().verb_forms.get(tokens[i].low, ())}):
            if base in _FELT and (i == verb or not is_participle(tokens[i].low)):
                thing = _object(tokens[i + 1 :], last)
                if thing:
                    yield thing, _FELT[base][negated]
            elif base in _DONE and copula(tokens) is None:
                yield from ((subject, _DONE[base][negated]) for subject in subjects)


def _object(rest: Tokens, last: str) -> str | None:
    core = tuple(token for token in _core(rest) if is_word(token))
    if len(core) < 2 and low_at(core, 0) in _THINGS | {"them", ""}:
        return last
    return _head(next(_joined(core)))
